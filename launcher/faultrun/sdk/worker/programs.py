"""The programs below a rank: the recovery point is of one of them, and which one is seen, not asked.

A wrapper may train, fine-tune and evaluate, one after the other or at once, and each process has all that the
rank was given. So a save names the program that made it, and every process that asks for the point is noted
beside the progress page, where the next lives find it.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from faultrun.model.wire import PROGRAMS_FILE
from faultrun.sdk.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgram:
    """A file that is executed, how it was called, and where it saves.

    ``call`` is a digest, because arguments may hold secrets; ``folder`` is "" until the program names it.
    """

    name: str
    call: str
    folder: str = ""

    def is_one_with(self, other: "RankProgram") -> bool | None:
        """Whether both are one training. None: unknown.

        Arguments and folders may bear a time, and a wrapper may go on with another file.
        """
        if not (self.folder and other.folder):
            return self.call == other.call or None
        alike = (self.name == other.name, self.folder == other.folder)
        return True if all(alike) else None if any(alike) else False

    @property
    def words(self) -> str:
        """Name it to a person."""
        return f"{self.name}, which saves in {self.folder}" if self.folder else self.name


def this_program(folder: str | os.PathLike[str] = "") -> RankProgram:
    """What this process executes, with its arguments as they were when first asked for."""
    name, call = _called()
    return RankProgram(name=name, call=call, folder=os.path.realpath(folder) if folder else "")


@cache
def _called() -> tuple[str, str]:
    path, here = Path(sys.argv[0] if sys.argv else ""), ""
    with contextlib.suppress(OSError):  # it may be gone
        here = os.path.realpath(".")
    words = (here, str(Path(here, path)), *(sys.orig_argv if path.name == "-c" else sys.argv[1:]))
    digest = blake2b("\0".join(words).encode(errors="surrogateescape"), digest_size=8).hexdigest()
    return path.parent.name if path.name == "__main__.py" else path.name, digest


@dataclass(slots=True, kw_only=True)
class _Process:
    """What one process has noted of itself: ``took`` is the point that it was given, "" for none."""

    pid: int
    programs: list[RankProgram] = field(default_factory=list)
    took: str = ""
    has_stepped: bool = False
    has_ended: bool = False

    def is_one_with(self, other: RankProgram) -> bool | None:
        told = [one.is_one_with(other) for one in self.programs]
        return True if True in told else None if None in told else False

    def hears(self, note: dict[str, Any]) -> None:
        if "name" in note:
            program = RankProgram(**{key: str(note[key]) for key in ("name", "call", "folder")})
            self.programs = [one for one in self.programs if one.folder] if program.folder else self.programs
            self.programs.append(program)
            self.took = str(note["took"])
        self.has_stepped |= "stepped" in note
        self.has_ended |= "ended" in note


class RankPrograms:
    """What was seen below this rank, and this process among it. Main thread only.

    Nothing is noted where there is no page, or no room beside it.
    """

    def __init__(self, session: Session, pid: int) -> None:
        page = session.progress.rpartition(":")[0]
        self._file = Path(page).with_name(PROGRAMS_FILE.format(rank=session.rank)) if page else None
        self._point = session.point.path if session.point is not None else ""
        self._pid, self._why = pid, ""
        self._has_asked = False
        self._noted: set[str] = set()
        self.is_beside = False
        """Whether the point is of a process that lives, as this rank's steps then are."""

    def why_not(self, own: RankProgram, maker: RankProgram | None) -> str:
        """Why the point, which ``maker`` saved, is of another program than this one; "" if it may be ours.

        Judged once: a later call notes where else this process saves.
        """
        if self._point and not self._has_asked:
            self._why = self._judged(own, maker)
        self._has_asked = True
        self._note(**asdict(own), took="" if self._why else self._point, refused=self._why)
        return self._why

    def stepped(self) -> None:
        """Note that this process trains."""
        self._note(stepped=True)

    def ended(self) -> None:
        """Note that this process ends well."""
        self._note(ended=True)

    def _judged(self, own: RankProgram, maker: RankProgram | None) -> str:
        lives, now = self._seen()
        before = [one for life in lives for one in life]
        if not own.folder:  # where it saves is told later, and was told in an earlier life
            called = (two for one in before for two in one.programs if two.folder and two.call == own.call)
            own = next(called, own)
        is_maker = None if maker is None else own.is_one_with(maker)
        if maker is not None and not is_maker:
            are_two = any(
                any(own in one.programs for one in life) and any(one.is_one_with(maker) for one in life)
                for life in lives
            )
            if are_two or is_maker is False:
                return f"it was saved by {maker.words}"
        for taker in (one for one in now if one.took):
            if _has_gone_with(taker, own, before) and (not is_maker or taker.is_one_with(own)):
                self.is_beside = not taker.has_ended and Path(f"/proc/{taker.pid}").exists()
                return f"{taker.programs[-1].name}, process {taker.pid}, went on from it"
        return ""

    def _seen(self) -> tuple[list[list[_Process]], list[_Process]]:
        """The processes of each earlier life, the last one first, and the others of this one."""
        if self._file is None:
            return [], []
        files = self._file.parent.parent.glob(f"incarnation_*/{self._file.name}")
        newest_first = sorted(files, key=lambda one: (len(one.parent.name), one.parent.name), reverse=True)
        lives = [_processes(path) for path in newest_first if path != self._file]
        return lives, [one for one in _processes(self._file) if one.pid != self._pid]

    def _note(self, **what: Any) -> None:
        line = json.dumps({"pid": self._pid, **what})
        if line in self._noted or self._file is None:
            return
        self._noted.add(line)
        with contextlib.suppress(OSError), self._file.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _has_gone_with(taker: _Process, own: RankProgram, before: Iterable[_Process]) -> bool:
    """Whether ``taker`` used the point up, or has it still, so that it is not for ``own``.

    Not if it only looked, beside a program that was seen to train; nor where it failed, and is called again.
    """
    if taker.is_one_with(own):
        return taker.has_ended and taker.has_stepped
    trained = [one for one in before if one.has_stepped]
    own_trains = any(one.is_one_with(own) for one in trained)
    taker_trains = taker.has_stepped or any(one.is_one_with(two) for one in trained for two in taker.programs)
    if own_trains and not taker_trains:
        return False
    return taker.has_ended or own.call not in {one.call for one in taker.programs}


def _processes(path: Path) -> list[_Process]:
    """What was noted in this file; as much as can be read."""
    found: dict[int, _Process] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        for line in path.read_text(encoding="utf-8").splitlines():
            note = json.loads(line)
            found.setdefault(int(note["pid"]), _Process(pid=int(note["pid"]))).hears(note)
    return [one for one in found.values() if one.programs]
