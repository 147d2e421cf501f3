"""A rank's end of the file over which ranks of one node become one process group again.

The file is a log: a line for each thing that a rank did, appended whole. Every rank reads the same lines in
the same order, so no rank needs a lock, and a killed rank leaves at most half a line. Who has opened the file
keeps it: once the supervisor has put the next incarnation's in its place, no rank waits for the old one.

Not torch's ``FileStore``, which opens the file by its name each time: of one that was removed meanwhile it
makes another, or waits minutes for it, and in its destructor reads for ever behind the new one's end.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faultrun.sdk.own_file import OwnFile

_LOOK_S = 0.001
_READ_BYTES = 1 << 16
_BEGINS = b'{"by"'


class RendezvousFile:
    """Shares keys among ranks over the file ``path``, made by the supervisor, like ``RendezvousClient``.

    OSError, always, when it is gone.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = OwnFile(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))
        self._lock = threading.Lock()
        self._at = 0
        self._unread: list[bytes] = []
        self._values: dict[str, bytes] = {}
        self._answers: dict[str, Any] = {}
        self._asked = 0

    def set(self, key: str, value: bytes) -> None:
        """Write one key."""
        self._does("set", key, value=value.hex())

    def get(self, keys: Sequence[str], within_s: float) -> list[bytes] | None:
        """The values of ``keys`` if all are there; None, in a moment, if not."""
        with self._lock:
            self._read()
            if all(key in self._values for key in keys):
                return [self._values[key] for key in keys]
        if self._path.stat().st_ino != self._file.inode:
            raise FileNotFoundError(f"another file is in the place of {self._path}")
        time.sleep(min(_LOOK_S, within_s))
        return None

    def add(self, key: str, amount: int) -> int:
        """Add to a number that begins at 0; what it is now."""
        return int(self._does("add", key, amount=amount))

    def swap(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Write ``desired`` where ``expected`` is; what is there now."""
        return bytes(self._does("swap", key, expected=expected.hex(), value=desired.hex()))

    def drop(self, key: str) -> bool:
        """Remove one key; whether it was there."""
        return bool(self._does("drop", key))

    def close(self) -> None:
        """Use it no more."""
        self._file.close()

    def _does(self, kind: str, key: str, **fields: Any) -> Any:
        """Append one line, and say what came of it, read in its place among the others'."""
        with self._lock:
            self._asked += 1
            by = f"{os.getpid()}-{id(self)}-{self._asked}"
            line = json.dumps({"by": by, "does": kind, "key": key, **fields}).encode() + b"\n"
            if os.write(self._file.number(), line) < len(line):
                raise OSError(f"{self._path} takes no whole line")
            self._read(by)
            if by not in self._answers:
                raise OSError(f"what was written to {self._path} is not there")
            return self._answers.pop(by)

    def _read(self, by: str = "") -> None:
        """Follow the lines that are new. ``by``: whose answer to keep."""
        while part := os.pread(self._file.number(), _READ_BYTES, self._at):
            self._at += len(part)
            first, *lines = part.split(b"\n")
            self._unread.append(first)
            if lines:
                lines, self._unread = [b"".join(self._unread), *lines[:-1]], [lines[-1]]
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    # Behind what a killed rank has half written.
                    done = json.loads(line[line.rfind(_BEGINS) :])
                    answer = self._follow(done)
                    if done["by"] == by:
                        self._answers[by] = answer

    def _follow(self, done: dict[str, Any]) -> Any:
        values, key = self._values, str(done["key"])
        match done["does"]:
            case "set":
                values[key] = bytes.fromhex(done["value"])
            case "add":
                number = int(values.get(key, b"0")) + int(done["amount"])
                values[key] = str(number).encode()
                return number
            case "swap":
                if values.get(key, b"") == bytes.fromhex(done["expected"]):
                    values[key] = bytes.fromhex(done["value"])
                return values.get(key, b"")
            case "drop":
                return values.pop(key, None) is not None
        return None

    def __del__(self) -> None:
        try:
            self.close()
        except (OSError, AttributeError):
            return  # it was never opened, or the interpreter ends and has taken its modules down
