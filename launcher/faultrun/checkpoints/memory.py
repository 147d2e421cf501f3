"""What was learned about files, remembered by (inode, size, mtime) in a JSON-lines file of the log_dir.

A cache and only that: it neither reads checkpoints nor judges them. A line that
cannot be understood is skipped, a file that cannot be written is done without.
"""

import json
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from faultrun.checkpoints.format import Stamp
from faultrun.model.checkpoint import Depth, Entry, Kind, Verdict

_FACTS = (
    "rank", "epoch", "step_in_epoch", "global_step", "world_size", "run_id", "incarnation", "session",
    "consistent",
)  # fmt: skip
_MOST_LINES = 4096
_DEPTHS = (Depth.NAME, Depth.STRUCTURE, Depth.CHECKSUM)


class Memory:
    """Headers and verdicts by stamp; ``path`` None forgets at exit."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._headers: dict[tuple[str, str, Stamp], list[Any]] = {}
        self._verdicts: dict[tuple[str, Stamp], tuple[Verdict, Depth]] = {}
        self._seen: dict[Stamp, int] = {}
        self._unsaved: list[str] = []
        self._lines = 0
        self._room = _MOST_LINES
        self._lock = threading.Lock()
        self._load()

    def header(self, named: Entry) -> Entry | None:
        """``named`` with the facts of its header, if they were read before."""
        facts = self._headers.get((named.format, named.path, stamp_in(named)))
        return None if facts is None else _with_facts(named, facts)

    def remember_header(self, entry: Entry) -> None:
        """Keep the facts of ``entry`` until its file changes."""
        facts = _facts(entry)
        self._headers[entry.format, entry.path, stamp_in(entry)] = facts
        self._note(_header_line(entry.format, entry.path, stamp_in(entry), facts))

    def verdict(self, entry: Entry, depth: Depth) -> Verdict | None:
        """What a look of at least ``depth`` found, if the file is as it was."""
        known, looked = self._verdicts.get((entry.format, stamp_in(entry)), (None, Depth.NAME))
        if known is None or (known.whole and _DEPTHS.index(looked) < _DEPTHS.index(depth)):
            return None
        return known

    def remember_verdict(self, entry: Entry, verdict: Verdict, depth: Depth) -> None:
        """Keep what a look of ``depth`` found until the file changes."""
        self._verdicts[entry.format, stamp_in(entry)] = (verdict, depth)
        self._note(_verdict_line(entry.format, stamp_in(entry), verdict, depth))

    def know(self, entries: Iterable[Entry], life: int) -> None:
        """Remember that these files were there when ``life`` was over."""
        for entry in entries:
            self._seen[stamp_in(entry)] = life
            self._note(_seen_line(stamp_in(entry), life))

    def first_seen(self, entry: Entry) -> int | None:
        """The life at whose end exactly this file was there, under whatever name; None if it is new."""
        return self._seen.get(stamp_in(entry))

    def save(self) -> None:
        """Append what is new to the file, in one write."""
        if not self._path or not self._unsaved:
            return
        with self._lock:
            lines, self._unsaved = self._unsaved, []
            self._lines += len(lines)
        data = "".join(lines).encode()
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
        except OSError:  # a memory that cannot be kept costs time, not correctness
            self._path = None

    def forget_all_but(self, there: Iterable[Entry]) -> None:
        """Keep what is known of ``there``; rewrite a file that has grown long.

        For the run that owns the file: what another process appends in this
        moment is lost.
        """
        stamps = {stamp_in(entry) for entry in there}
        self._headers = {key: facts for key, facts in self._headers.items() if key[2] in stamps}
        self._verdicts = {key: known for key, known in self._verdicts.items() if key[1] in stamps}
        self._seen = {stamp: life for stamp, life in self._seen.items() if stamp in stamps}
        if not self._path or self._lines <= self._room:
            return
        lines = [
            *(_header_line(*key, facts) for key, facts in self._headers.items()),
            *(_verdict_line(*key, *known) for key, known in self._verdicts.items()),
            *(_seen_line(stamp, life) for stamp, life in self._seen.items()),
        ]
        partial = f"{self._path}.tmp"
        try:
            with open(partial, "w", encoding="utf-8") as file:  # noqa: PTH123
                file.writelines(map(_spelled, lines))
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self._path)  # noqa: PTH105
        except OSError:  # it stays long
            return
        self._lines = len(lines)
        self._room = max(_MOST_LINES, 2 * len(lines))

    def _note(self, line: dict[str, Any]) -> None:
        if not self._path:
            return
        with self._lock:
            self._unsaved.append(_spelled(line))

    def _load(self) -> None:
        if not self._path:
            return
        try:
            with open(self._path, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
                for line in lines:
                    self._lines += 1
                    self._learn(line)
        except OSError:
            return

    def _learn(self, line: str) -> None:
        try:
            said = json.loads(line)
            stamp = Stamp(*(int(number) for number in said["s"]))
            if "h" in said:
                self._headers[said["f"], said["p"], stamp] = said["h"]
            elif "v" in said:
                whole, why, depth, digest, looked = said["v"]
                verdict = Verdict(whole=whole is True, why=str(why), depth=Depth(depth), digest=str(digest))
                self._verdicts[said["f"], stamp] = (verdict, Depth(looked))
            elif "k" in said:
                self._seen[stamp] = int(said["k"])
        except (ValueError, TypeError, KeyError, AttributeError):  # torn by a crash
            return


def stamp_in(entry: Entry) -> Stamp:
    """The stamp that ``entry`` was listed with."""
    return Stamp(entry.inode, entry.size_bytes, entry.mtime_ns)


def _header_line(form: str, path: str, stamp: Stamp, facts: Sequence[Any]) -> dict[str, Any]:
    return {"f": form, "p": path, "s": _numbers(stamp), "h": facts}


def _verdict_line(form: str, stamp: Stamp, verdict: Verdict, depth: Depth) -> dict[str, Any]:
    values = [verdict.whole, verdict.why, verdict.depth.value, verdict.digest, depth.value]
    return {"f": form, "s": _numbers(stamp), "v": values}


def _seen_line(stamp: Stamp, life: int) -> dict[str, Any]:
    return {"s": _numbers(stamp), "k": life}


def _spelled(line: dict[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":")) + "\n"


def _numbers(stamp: Stamp) -> list[int]:
    return [stamp.inode, stamp.size_bytes, stamp.mtime_ns]


def _facts(entry: Entry) -> list[Any]:
    return [entry.kind.value, list(entry.replica_group), *(getattr(entry, name) for name in _FACTS)]


def _with_facts(named: Entry, facts: Sequence[Any]) -> Entry | None:
    try:
        kind, group, *rest = facts
        changes = dict(zip(_FACTS, rest, strict=True))
        return _replaced(named, Kind(kind), tuple(group), changes)
    except (ValueError, TypeError):  # written by another version
        return None


def _replaced(named: Entry, kind: Kind, group: tuple[int, ...], changes: dict[str, Any]) -> Entry:
    return Entry(
        path=named.path,
        format=named.format,
        kind=kind,
        size_bytes=named.size_bytes,
        mtime_ns=named.mtime_ns,
        inode=named.inode,
        series=named.series,
        replica_group=group,
        **changes,
    )
