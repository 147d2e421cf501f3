"""What was learned about files, and which files are left alone, in JSON-lines files of the log_dir.

It neither reads checkpoints nor judges them. A line that cannot be understood is skipped.
"""

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from faultrun.checkpoints.format import Stamp
from faultrun.checkpoints.reading import sampled_digest
from faultrun.files import replace_durably, sync_folder
from faultrun.model.checkpoint import Depth, Entry, Identity, Kind, Verdict

LEFT_ALONE = "left_alone.jsonl"
"""The name of the list of what is left alone, beside the memory."""

_FACTS = (
    "rank", "epoch", "step_in_epoch", "global_step", "world_size", "run_id", "incarnation", "session",
    "consistent", "fits_any_world",
)  # fmt: skip
_MOST_LINES = 4096
_OURS = "ours"
_DIGEST = "digest"
_Strangers = dict[int, list[tuple[Identity, str]]]
"""By size, each with the digest of its contents; empty: only its stamp is known."""
_ENCODED = json.JSONEncoder(separators=(",", ":")).encode
_DEPTHS = (Depth.NAME, Depth.STRUCTURE, Depth.CHECKSUM)


class Memory:
    """Headers and verdicts by (inode, size, mtime): a cache and only that. ``path`` None forgets at exit.

    A file that cannot be written is done without.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._headers: dict[tuple[str, str, Stamp], list[Any]] = {}
        self._verdicts: dict[tuple[str, Stamp], tuple[Verdict, Depth]] = {}
        self._seen: dict[Stamp, int] = {}
        self._unsaved: list[str] = []
        self._lines = 0
        self._room = _MOST_LINES
        self._lock = threading.Lock()
        for said in _lines_of(path):
            self._lines += 1
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                self._learn(json.loads(said))

    def header(self, named: Entry) -> Entry | None:
        """``named`` with the facts of its header and when it was first seen, if they were read before."""
        stamp = stamp_in(named)
        facts = self._headers.get((named.format, named.path, stamp))
        if facts is None:
            return None
        try:
            kind, group, *rest = facts
            more: dict[str, Any] = dict(zip(_FACTS, rest, strict=True))
            more |= {"kind": Kind(kind), "replica_group": tuple(group), "first_seen": self._seen.get(stamp)}
            return replace(named, **more)
        except (ValueError, TypeError):  # written by another version
            return None

    def remember_header(self, entry: Entry) -> None:
        """Keep the facts of ``entry`` until its file changes."""
        facts = [entry.kind.value, list(entry.replica_group), *(getattr(entry, name) for name in _FACTS)]
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

    def first_seen(self, stamp: Stamp) -> int | None:
        """The life at whose end exactly this file was there, under whatever name; None if it is new."""
        return self._seen.get(stamp)

    def save(self) -> None:
        """Append what is new to the file, in one write."""
        if not self._path or not self._unsaved:
            return
        with self._lock:
            lines, self._unsaved = self._unsaved, []
            self._lines += len(lines)
        try:
            _append(self._path, "".join(lines))
        except OSError:  # a memory that cannot be kept costs time, not correctness
            self._path = None

    def forget_all_but(self, there: Sequence[Entry]) -> None:
        """Keep what is known of ``there``; rewrite a file that has grown long.

        For the run that owns the file: what another process appends in this moment is lost.
        """
        stamps = {stamp_in(entry) for entry in there}
        self._seen = {stamp: life for stamp, life in self._seen.items() if stamp in stamps}
        self.forget_contents_but(there)

    def forget_contents_but(self, there: Sequence[Entry]) -> None:
        """Forget headers and verdicts of all but ``there``; when a file was seen stays: it may come back."""
        stamps = {stamp_in(entry) for entry in there}
        self._headers = {key: facts for key, facts in self._headers.items() if key[2] in stamps}
        self._verdicts = {key: known for key, known in self._verdicts.items() if key[1] in stamps}
        if not self._path or self._lines <= self._room:
            return
        lines = [
            *(_header_line(*key, facts) for key, facts in self._headers.items()),
            *(_verdict_line(*key, *known) for key, known in self._verdicts.items()),
            *(_seen_line(stamp, life) for stamp, life in self._seen.items()),
        ]
        try:
            replace_durably(Path(self._path), "".join(lines).encode())
        except OSError:  # it stays long
            return
        self._lines = len(lines)
        self._room = max(_MOST_LINES, 2 * len(lines))

    def _note(self, line: str) -> None:
        if self._path:
            with self._lock:
                self._unsaved.append(line)

    def _learn(self, said: dict[str, Any]) -> None:
        stamp = Stamp(*(int(number) for number in said["s"]))
        if "h" in said:
            self._headers[said["f"], said["p"], stamp] = said["h"]
        elif "v" in said:
            whole, why, depth, digest, looked = said["v"]
            verdict = Verdict(whole=whole is True, why=str(why), depth=Depth(depth), digest=str(digest))
            self._verdicts[said["f"], stamp] = (verdict, Depth(looked))
        elif "k" in said:
            self._seen[stamp] = int(said["k"])


class LeftAlone:
    """Checkpoints that this run must never resume from, known by what is in them, in the file ``path``.

    Not a cache: the list of strangers that was made when the run began cannot be
    made again later, so who adds to it learns whether it is on the disk. None keeps
    it in this process only. ``digest`` reads a few places of a checkpoint; it is asked where size and
    training point are those of another file and the time is not: a copy, a touched and a restored file.
    """

    def __init__(self, path: str | None, digest: Callable[[Entry], str]) -> None:
        self.reached: int | None = None
        self._path = path
        self._digest = digest
        self._known: _Strangers = {}
        self._for_now: _Strangers = {}
        self._unkept: list[dict[str, Any]] = []
        names = Identity.__dataclass_fields__
        for line in _lines_of(path):
            with suppress(ValueError, TypeError, KeyError):
                said = json.loads(line)
                numbers: dict[str, Any] = {
                    name: None if said[name] is None else int(said[name]) for name in names
                }
                digest_there = str(said.get(_DIGEST, ""))
                self._hear((Identity(**numbers), digest_there), ours=bool(said.get(_OURS)))

    def __bool__(self) -> bool:
        """Whether there is any."""
        return any(self._known.values())

    def holds(self, entry: Entry, *, written: bool = False) -> bool:
        """Whether ``entry`` is one of them, under whatever name, and this run has not written it since.

        A training that is repeated may write the bytes of the one before: what has a new time counts as this
        run's if it was seen to be ``written``, or tells of a point of training that the run has ``reached``,
        or how far it is, is unknown. One that was still being copied begins with what was there.
        """
        if _is_in(self._known, entry) or _is_in(self._for_now, entry) or self._has_grown(entry):
            return True
        step, told = entry.global_step, entry.identity.tells
        may_repeat = told and (step is None or self.reached is None or step <= self.reached)
        return not (written or may_repeat) and self._is_copy(entry)

    def add(self, entries: Iterable[tuple[Entry, str]]) -> None:
        """Remember these with their digests, in this process; ``keep`` makes it last."""
        for entry, digest in entries:
            if not _is_in(self._known, entry):
                self._note(entry.identity, digest, ours=False)

    def meet_again(self, entries: Iterable[Entry]) -> None:
        """Remember the new times of those that were held by their contents: they stay strangers."""
        self.add((one, self._digest(one)) for one in entries if self._is_copy(one))

    def take_back(self, entries: Iterable[Entry]) -> None:
        """They are the run's own after all; ``keep`` makes it last."""
        for entry in entries:
            if _is_in(self._known, entry) or self._is_copy(entry):
                self._note(entry.identity, self._digest(entry), ours=True)

    def pass_over(self, entries: Iterable[Entry]) -> None:
        """Hold these, too, until this is called again; nothing of it is kept."""
        self._for_now = {}
        for entry in entries:
            self._for_now.setdefault(entry.size_bytes, []).append((entry.identity, ""))

    def keep(self) -> None:
        """Return once all that was added is on the disk. OSError when it cannot be; it may be tried again."""
        if self._path is None or not self._unkept:
            return
        # A line that was cut by a full disk or a kill must not swallow the first of these.
        _append(self._path, "\n" + "".join(map(_line, self._unkept)), sync=True)
        self._unkept.clear()

    def _has_grown(self, entry: Entry) -> bool:
        """Whether it is another file, with more behind what was there."""
        began = (
            (one.size_bytes, digest)
            for known in self._known.values()
            for one, digest in known
            if digest and one.inode == entry.inode and 0 < one.size_bytes < entry.size_bytes
        )
        return any(sampled_digest((entry.path,), most) == digest for most, digest in began)

    def _is_copy(self, entry: Entry) -> bool:
        told = entry.identity.told
        alike = [
            digest for one, digest in self._known.get(entry.size_bytes, ()) if one.told == told and digest
        ]
        return bool(alike) and self._digest(entry) in alike

    def _note(self, identity: Identity, digest: str, *, ours: bool) -> None:
        self._hear((identity, digest), ours=ours)
        self._unkept.append({**asdict(identity), _DIGEST: digest, **({_OURS: True} if ours else {})})

    def _hear(self, said: tuple[Identity, str], *, ours: bool) -> None:
        identity, digest = said
        alike = self._known.setdefault(identity.size_bytes, [])
        if ours:
            alike[:] = [
                (one, other)
                for one, other in alike
                if not identity.same_as(one) and not (digest and (one.told, other) == (identity.told, digest))
            ]
        else:
            alike.append(said)


def _is_in(known: _Strangers, entry: Entry) -> bool:
    return any(entry.identity.same_as(one) for one, _ in known.get(entry.size_bytes, ()))


def stamp_in(entry: Entry) -> Stamp:
    """The stamp that ``entry`` was listed with."""
    return Stamp(entry.inode, entry.size_bytes, entry.mtime_ns)


def _header_line(form: str, path: str, stamp: Stamp, facts: list[Any]) -> str:
    return _line({"f": form, "p": path, "s": _numbers(stamp), "h": facts})


def _verdict_line(form: str, stamp: Stamp, verdict: Verdict, depth: Depth) -> str:
    values = [verdict.whole, verdict.why, verdict.depth.value, verdict.digest, depth.value]
    return _line({"f": form, "s": _numbers(stamp), "v": values})


def _seen_line(stamp: Stamp, life: int) -> str:
    return _line({"s": _numbers(stamp), "k": life})


def _numbers(stamp: Stamp) -> list[int]:
    return [stamp.inode, stamp.size_bytes, stamp.mtime_ns]


def _line(said: dict[str, Any]) -> str:
    return _ENCODED(said) + "\n"


def _lines_of(path: str | None) -> Iterator[str]:
    if path:
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
            yield from lines


def _append(path: str, text: str, *, sync: bool = False) -> None:
    """Append in one write; with ``sync``, return once it and the file's name are on the disk. OSError."""
    begins = not os.path.exists(path)  # noqa: PTH110 - a string is all there is
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        data = text.encode()
        while data:
            data = data[os.write(fd, data) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    if sync and begins:
        sync_folder(Path(path).parent)
