"""What ranks told of themselves, and what the kernel knows of them while they live."""

import bisect
import json
import struct
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.journal import grown
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
    """All lines of all ranks so far, steps found without a look at each; ``read`` takes in what has come."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[Path, int] = {}
        self._firsts: dict[int, dict[int, list[float]]] = {}
        self._ranks: dict[int, list[int]] = {}
        self.lines: list[Told] = []
        self.struck: list[Told] = []

    def read(self) -> "list[Told]":
        """Return what is new."""
        fresh: list[Told] = []
        for path in self._folder.glob("*.notes"):
            whole, self._seen[path] = grown(path, self._seen.get(path, 0))
            fresh += [Told(**json.loads(line)) for line in whole.splitlines()]
        fresh.sort(key=lambda one: one.at_s)
        self.lines += fresh
        for one in fresh:
            if one.what == "step":
                self._firsts.setdefault(one.life, {}).setdefault(one.rank, []).append(one.at_s)
            if one.what == "struck":
                self.struck.append(one)
            if one.what == "begin":
                self._ranks[one.life] = [int(word) for word in one.path.split()]
        return fresh

    @property
    def has_saved(self) -> bool:
        """Whether all ranks train, behind a save of each that makes any."""
        saves = {one.rank: one for one in self.lines if one.what == "saved"}
        return bool(saves) and self.trains_since(max(one.at_s for one in saves.values())) is not None

    def newest_life(self) -> int:
        """The newest incarnation of which a rank has begun; -1: none."""
        return max(self._ranks, default=-1)

    def ranks(self, life: int) -> list[int]:
        """Those that it has; of one that never began, those of the one before."""
        return next((self._ranks[one] for one in range(life, -1, -1) if one in self._ranks), [])

    def world(self, life: int) -> int:
        """How many it has."""
        return len(self.ranks(life))

    def trains_since(self, at_s: float) -> float | None:
        """When every rank of the newest incarnation had done a step after ``at_s``; None: not yet."""
        return self.trained_in(self.newest_life(), at_s)

    def trained_in(self, life: int, at_s: float) -> float | None:
        """The same of any incarnation."""
        own = self._firsts.get(life, {})
        places = {rank: bisect.bisect_right(moments, at_s) for rank, moments in own.items()}
        firsts = [own[rank][place] for rank, place in places.items() if place < len(own[rank])]
        return max(firsts) if firsts and len(firsts) == self.world(life) else None


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

    def __init__(self, folder: Path, ledgers: Ledgers) -> None:
        self.lives: list[Life] = []
        self.together: list[str] = []
        """Each time that processes of two incarnations were there at once."""
        self._folder, self._ledgers = folder, ledgers
        self._over = threading.Event()
        self._known: set[str] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def newest(self) -> list[Life]:
        """The last process that came for each rank of the newest incarnation: survivors go on in theirs."""
        ranks = [one for one in tuple(self.lives) if one.is_rank]
        last = {one.rank: one for one in sorted(ranks, key=lambda one: (one.life, one.born_s))}
        there = self._ledgers.ranks(self._ledgers.newest_life())
        return [one for rank, one in sorted(last.items()) if rank in there or not there]

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
                    born_s, started = struct.unpack(PAGE, data)[0], _state(int(pid))[1]
                    yield Life(int(life), int(rank), int(pid), node, path, born_s, started)


def _together(born: Life, lives: Iterable[Life]) -> list[str]:
    older = [one for one in lives if one.life < born.life and one.lives()]
    return [f"{one.words()} lives although {born.words()} was born" for one in older]


def _state(pid: int) -> tuple[str, str]:
    """State and start time, as the kernel writes them; empty when it is gone."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    return "", ""
