"""What ranks told of themselves, and what the kernel knows of them while they live."""

import json
import struct
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jobs.everything_notes import PAGE

_LOOK_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One line of a rank, on CLOCK_BOOTTIME."""

    at_s: float
    life: int
    rank: int
    node: str
    pid: int
    what: str
    step: int
    path: str = ""


class Ledgers:
    """All lines of all ranks so far; ``read`` takes in what has come since."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[Path, int] = {}
        self.lines: list[Told] = []

    def read(self) -> "list[Told]":
        """Return what is new."""
        fresh: list[Told] = []
        for path in self._folder.glob("*.notes"):
            with path.open("rb") as file:
                file.seek(self._seen.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._seen[path] = self._seen.get(path, 0) + len(whole)
            fresh += [Told(**json.loads(line)) for line in whole.splitlines()]
        self.lines += sorted(fresh, key=lambda one: one.at_s)
        return fresh

    def newest_life(self) -> int:
        """The newest incarnation of which a rank has begun; -1: none."""
        return max((one.life for one in self.lines if one.what == "begin"), default=-1)

    def trains_since(self, at_s: float, ranks: int) -> float | None:
        """When every rank of the newest incarnation had done a step after ``at_s``; None: not yet."""
        life = self.newest_life()
        firsts: dict[int, float] = {}
        for one in self.lines:
            if one.life == life and one.what == "step" and one.at_s > at_s:
                firsts.setdefault(one.rank, one.at_s)
        return max(firsts.values()) if len(firsts) == ranks else None


@dataclass(slots=True)
class Life:
    """A process of an incarnation: a rank, or the child of one. ``page`` shows when it ran last."""

    life: int
    rank: int
    pid: int
    node: str
    page: Path
    born_s: float
    started: str

    @property
    def is_rank(self) -> bool:
        """Whether it is a rank and not what a rank has started."""
        return self.page.suffix == ".rank"

    def beat_s(self) -> float:
        """When it ran last, by its own hand."""
        return float(struct.unpack(PAGE, self.page.read_bytes())[1])

    def lives(self) -> bool:
        """Whether the kernel still has it, and it is not only waiting to be reaped."""
        state, started = _state(self.pid)
        return state not in ("", "Z", "X") and started == self.started

    def words(self) -> str:
        """For a verdict."""
        return f"{'rank' if self.is_rank else 'child of rank'} {self.rank} of incarnation {self.life}"


class Census:
    """A thread that asks, as soon as a rank is born, whether one of an older incarnation still lives."""

    def __init__(self, folder: Path) -> None:
        self.lives: list[Life] = []
        self.together: list[str] = []
        """Each time that processes of two incarnations were there at once."""
        self._folder = folder
        self._over = threading.Event()
        self._known: set[str] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def newest(self) -> list[Life]:
        """The ranks of the newest incarnation, as far as they were born."""
        ranks = [one for one in tuple(self.lives) if one.is_rank]
        newest = max((one.life for one in ranks), default=-1)
        return [one for one in ranks if one.life == newest]

    def older_than(self, life: int) -> list[Life]:
        """What still lives of the incarnations before."""
        return [one for one in tuple(self.lives) if one.life < life and one.lives()]

    def overlaps(self) -> list[str]:
        """By their own beats: ranks that ran after one of a newer incarnation was born."""
        ranks = [one for one in self.lives if one.is_rank]
        born = {
            life: min(one.born_s for one in ranks if one.life == life) for life in {o.life for o in ranks}
        }
        found = []
        for one in ranks:
            newer = min((at_s for life, at_s in born.items() if life > one.life), default=None)
            if newer is not None and one.beat_s() > newer:
                found.append(f"{one.words()} beat {one.beat_s() - newer:.3f} s after a newer one was born")
        return found

    def _run(self) -> None:
        while not self._over.is_set():
            for life in self._born():
                self.lives.append(life)
                if life.is_rank:
                    self.together += _together(life, self.lives)
            time.sleep(_LOOK_S)

    def _born(self) -> Iterable[Life]:
        for path in self._folder.iterdir():
            if path.suffix in (".rank", ".child") and path.name not in self._known:
                data = path.read_bytes()
                if len(data) == struct.calcsize(PAGE):
                    self._known.add(path.name)
                    life, rank, pid, node = path.stem.split("_")
                    number = int(pid)
                    yield Life(
                        int(life),
                        int(rank),
                        number,
                        node,
                        path,
                        struct.unpack(PAGE, data)[0],
                        _state(number)[1],
                    )


def _together(born: Life, lives: Iterable[Life]) -> list[str]:
    older = [one for one in lives if one.life < born.life and one.lives()]
    return [f"{one.words()} lives although {born.words()} was born" for one in older]


def _state(pid: int) -> tuple[str, str]:
    """State and start time, as the kernel writes them; empty when it is gone."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    return "", ""
