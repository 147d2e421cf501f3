"""Checkpoints that this run must never resume from, known by what they are; kept in a file that outlives us.

Not a cache: the list of strangers that was made when the run began cannot be
made again later, so who adds to it learns whether it is on the disk.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields

from faultrun.model.checkpoint import Entry, Identity

FILE_NAME = "left_alone.jsonl"

_FACTS = tuple(one.name for one in fields(Identity))


class LeftAlone:
    """The list in the file ``path``; None keeps it in this process only."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._known: dict[tuple[int, int], list[Identity]] = {}
        self._unkept: list[Identity] = []
        if path is not None:
            with suppress(OSError), open(path, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
                for line in lines:
                    self._learn(line)

    def holds(self, entry: Entry) -> bool:
        """Whether ``entry`` is one of them, under whatever name, and nobody has written to it since."""
        return self._holds(entry.identity)

    def add(self, entries: Iterable[Entry]) -> None:
        """Remember these, in this process; ``keep`` makes it last."""
        for entry in entries:
            if not self._holds(entry.identity):
                self._remember(entry.identity)
                self._unkept.append(entry.identity)

    def keep(self) -> None:
        """Return once all that was added is on the disk. OSError when it cannot be; it may be tried again."""
        if self._path is None or not self._unkept:
            return
        begins = not os.path.exists(self._path)  # noqa: PTH110 - a string is all there is
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # A line that was cut by a full disk or a kill must not swallow the first of these.
            data = "\n".join(["", *map(_line, self._unkept), ""]).encode()
            while data:
                data = data[os.write(fd, data) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        if begins:
            _sync_folder(os.path.dirname(self._path) or ".")  # noqa: PTH120 - as above
        self._unkept.clear()

    def _holds(self, identity: Identity) -> bool:
        alike = self._known.get((identity.size_bytes, identity.mtime_ns), ())
        return any(identity.same_as(one) for one in alike)

    def _remember(self, identity: Identity) -> None:
        self._known.setdefault((identity.size_bytes, identity.mtime_ns), []).append(identity)

    def _learn(self, line: str) -> None:
        with suppress(ValueError, TypeError, KeyError):  # torn by a crash
            said = json.loads(line)
            said = {name: None if said[name] is None else int(said[name]) for name in _FACTS}
            self._remember(Identity(**said))


def _line(identity: Identity) -> str:
    return json.dumps({name: getattr(identity, name) for name in _FACTS}, separators=(",", ":"))


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
