"""Which promises a fault broke, and which way back was taken. Pure.

By the ranks' own words beside a training whose every bit is known, by the pages that show when a process ran
last, and by the journals. Nothing here asks faultrun whether it did right.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.campaigns.everything_plan import Kind
from benchmarks.campaigns.ledgers import Life, Told

Line = dict[str, Any]
UNSAID_S = 8.0
"""The lease of a lost node, the two seconds that a wait may last unsaid, and three of a crowded machine."""

_MOST_WORDS = 3
_NEAR = 1e-5
_MORE_MIB = 4.0


@dataclass(frozen=True, slots=True)
class Right:
    """What a rank tells of a step that nobody disturbed. ``samples``: of all ranks together."""

    digest: str
    loss: float
    total: float
    samples: tuple[int, ...]


Law = Callable[[int, int], Right]
"""By step and rank."""


class Steps:
    """Each step once and with its own bits: fed with all lines as they come.

    Ranks that were left out in between round otherwise: from the first smaller incarnation on, sums are held
    to what is right within ``_NEAR``, and the samples and losses of a step to those of all ranks.
    """

    def __init__(self, law: Law, full: int) -> None:
        self._law, self._full = law, full
        self._worlds: dict[int, int] = {}
        self._last: dict[tuple[int, int], int] = {}
        self._seen: dict[tuple[int, int], dict[int, tuple[float, list[int]]]] = {}

    def wrong(self, fresh: Iterable[Told]) -> list[str]:
        """What is not right in ``fresh``; the first few of it."""
        found = [words for one in sorted(fresh, key=lambda one: one.at_s) for words in self._of(one)]
        return found[:_MOST_WORDS]

    def _of(self, one: Told) -> Iterator[str]:
        key = one.life, one.rank
        if one.what == "begin":
            self._worlds[one.life] = len(one.path.split())
            self._last[key] = one.step
        if one.what not in ("step", "taken"):
            return
        last = self._last.get(key)
        if last is not None and one.step != last + 1:
            yield f"{_who(one)}: step {one.step} came after step {last}"
        self._last[key] = one.step
        if one.what == "step":  # else this rank had it from those that have done it
            yield from self._differs(one)

    def _differs(self, one: Told) -> Iterator[str]:
        digest, loss, *more = one.path.split()
        right, world = self._law(one.step, one.rank), self._worlds.get(one.life, self._full)
        ever_less = any(size < self._full for life, size in self._worlds.items() if life <= one.life)
        if not ever_less and digest != right.digest:
            yield f"{_who(one)}: step {one.step} ended with {digest} instead of {right.digest}"
        if world == self._full and not _near(float(loss), right.loss):
            yield f"{_who(one)}: step {one.step} had loss {loss} instead of {right.loss!r}"
        if more and right.total and ever_less and not _near(float(more[0]), right.total):
            yield f"{_who(one)}: step {one.step} ended with weights of {more[0]} instead of {right.total!r}"
        if more and right.samples:
            seen = self._seen.setdefault((one.life, one.step), {})
            seen[one.rank] = float(loss), [int(word) for word in more[1:]]
            if len(seen) == world:
                yield from self._differs_together(one, sorted(right.samples), seen)

    def _differs_together(
        self, one: Told, samples: list[int], seen: Mapping[int, tuple[float, list[int]]]
    ) -> Iterator[str]:
        step = f"step {one.step} of incarnation {one.life}"
        together = sorted(sample for _, own in seen.values() for sample in own)
        if together != samples:
            yield f"{step} read {together}"
        losses = sum(loss for loss, _ in seen.values())
        if not _near(losses, due := sum(self._law(one.step, rank).loss for rank in range(self._full))):
            yield f"{step} had losses of {losses!r} instead of {due!r}"


def out_of_step(told: Sequence[Told], since_life: int) -> Iterator[str]:
    """Incarnations behind ``since_life`` whose ranks did not begin alike, or before the newest whole save."""
    for one in told:
        if one.what == "wrong" and one.life > since_life:
            yield f"{_who(one)} has a wrong weight at step {one.step}"
    for life in sorted({one.life for one in told if one.life > since_life}):
        begins = {one.rank: one.step for one in told if one.life == life and one.what == "begin"}
        there = [one.step for one in told if one.life == life and one.what == "there"]
        if len(set(begins.values())) > 1:
            yield f"incarnation {life} began at steps {sorted(set(begins.values()))}"
        newest = max(max(there, default=0), 0)
        if begins and there and min(begins.values()) < newest and newest not in set_aside(told, life):
            yield f"incarnation {life} began at step {min(begins.values())}, and {newest} was whole"


def set_aside(told: Sequence[Told], life: int) -> set[int]:
    """Saves that two incarnations in a row up to ``life`` did not get past: the one before is tried then."""
    passed = {one.life for one in told if one.what == "step"}
    stuck = {one for one in range(2, life + 1) if not passed & {one - 1, one - 2}}
    return {one.step for one in told if one.what == "there" and one.life in stuck}


def lost_steps(told: Sequence[Told], since_life: int, life: int) -> int:
    """How many steps the incarnation did again that one from ``since_life`` on had done."""
    steps = [one for one in told if one.what == "step"]
    done = max((one.step for one in steps if since_life <= one.life < life), default=0)
    began = [one.step for one in told if one.what == "begin" and one.life == life]
    return max(0, done - min(began)) if began else 0


def kept_by(journal: Iterable[Line]) -> dict[int, frozenset[int]]:
    """By incarnation, the ranks whose processes it has from the one before."""
    plans = [line for line in journal if line["event"] == "PlanAdopted"]
    return {line["plan"]["incarnation"]: frozenset(line["plan"].get("kept", ())) for line in plans}


def perhaps_kept(lives: Sequence[Life], told: Mapping[int, frozenset[int]]) -> dict[int, frozenset[int]]:
    """The same where a journal on a full disk may lack a plan: each rank not started for it may stay."""
    ranks = {one.rank for one in lives}
    of_lives: dict[int, set[int]] = {}
    for one in lives:
        of_lives.setdefault(one.life, set()).add(one.rank)
    return {life: told.get(life, frozenset(ranks - of_lives[life])) for life in of_lives} | dict(told)


def began_anew(journal: Iterable[Line], since_life: int = 0) -> int | None:
    """The first incarnation behind ``since_life`` that has no process of the one before; None: all have."""
    later = (one for one in sorted(kept_by(journal).items()) if one[0] > since_life)
    return next((life for life, ranks in later if not ranks), None)


def deserters(before: Sequence[Life], struck: Collection[int], spared: int) -> Iterator[str]:
    """Survivors whose process is gone although nobody struck it; ``spared`` of them ended themselves."""
    gone = [one for one in before if one.pid not in struck and not one.lives()]
    if len(gone) > spared:
        yield f"{len(gone)} processes ended that nobody had killed: {', '.join(one.words() for one in gone)}"


def recovered_otherwise(journal: Sequence[Line], life: int, newest: int, rank: int) -> Iterator[str]:
    """Whether the death of a rank in ``life`` was answered by one restart, and blamed on that rank."""
    if newest != life + 1:
        yield f"not recovered at the first restart: incarnation {newest} trains after {life}"
    exits = [line for line in journal if line["event"] == "WorkerExit" and line["incarnation"] == life]
    failed = [line for line in exits if line["status"] != {"is": "Exited", "code": 0}]
    first = failed[0] if failed else {"rank": None, "status": None}
    if (first["rank"], first["status"]) != (rank, {"is": "Signaled", "signum": 9}):
        yield f"rank {first['rank']} is blamed ({first['status']}), rank {rank} was killed"


def too_cold(rows: Sequence[Mapping[str, Any]], warm: bool) -> dict[str, list[str]]:
    """By promise: a restart that is not ``warm`` although no standby was killed beside the rank."""
    harmed = any(row["kind"] == Kind.STANDBY.value for row in rows)
    if not warm or harmed or rows[-1]["way"] == "warm restart":
        return {}
    return {"recovery": [f"{rows[-1]['way']}, and no standby was killed"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a supervisor holds at a moment."""

    descriptors: int
    processes: int
    rss_mib: float


def grows(costs: Sequence[Cost]) -> Iterator[str]:
    """What it holds more of, behind the first restarts, as restart follows restart."""
    settled = costs[len(costs) // 4 :]
    for name, most in (("descriptors", 0), ("processes", 0), ("rss_mib", _MORE_MIB)):
        held = [getattr(cost, name) for cost in settled]
        if held and held[-1] - held[0] > most:
            yield f"{name} of the supervisor grew from {held[0]:g} to {held[-1]:g}"


def ran_on(lives: Sequence[Life], kept: Mapping[int, frozenset[int]]) -> Iterator[str]:
    """Processes that ran after somebody of an incarnation was born that does not have them."""
    born: dict[int, float] = {}
    for one in lives:
        if one.is_rank:
            born[one.life] = min(one.born_s, born.get(one.life, one.born_s))
    for one in lives:
        without = [life for life in born if life > one.life and one.rank not in kept.get(life, frozenset())]
        first = min((born[life] for life in without), default=None)
        if one.is_rank and first is not None and one.beat_s() > first:
            yield f"{one.words()} ran for {one.beat_s() - first:.3f} s beside a newer one"


def saved_twice(told: Iterable[Told], journal: Iterable[Line]) -> Iterator[str]:
    """Saves of one step by one rank in one incarnation, more than one of a kind."""
    seen: set[tuple[object, ...]] = set()
    periodic = [("save", one.life, one.rank, one.step) for one in told if one.what == "saved"]
    saved = (line for line in journal if line["event"] == "GaspSaved")
    gasps = [("gasp", line["incarnation"], line["rank"], line.get("path")) for line in saved]
    for key in (*periodic, *gasps):
        if key in seen:
            yield f"{key[0]} of rank {key[2]} in incarnation {key[1]} came twice"
        seen.add(key)


def unsaid(
    moments: Sequence[tuple[float, bool]], said: Sequence[tuple[float, str]], since_s: float, more_s: float
) -> Iterator[str]:
    """Times behind a step, longer than ``UNSAID_S`` and ``more_s``, in which no supervisor said a word.

    ``moments``: of steps (True), and of births; a process that was born is on its way.
    """
    marks = sorted(one for one in moments if one[0] >= since_s - 1)
    for (earlier, trained), (later, _) in pairwise(marks):
        lines = [at_s for at_s, _ in said if earlier <= at_s <= earlier + UNSAID_S + more_s]
        if trained and later - earlier > UNSAID_S + more_s and not lines:
            yield f"for {later - earlier:.1f} s nobody said why nothing goes on"


def way_back(journal: Sequence[Line], since_life: int, life: int, worlds: Mapping[int, int]) -> str:
    """By which way training came back, as the journals have it of the newest incarnation."""
    if life <= since_life:
        return "went on by itself"
    before, now = worlds.get(since_life, 0), worlds.get(life, 0)
    smaller = [one for one, size in worlds.items() if since_life < one <= life and size < before]
    if any(map(kept_by(journal).get, smaller)):
        return "trained on" if now < before else "trained on and healed"
    if smaller:
        return "shrunk" if now < before else "shrunk and grown"
    if now > before:
        return "grown"
    if kept_by(journal).get(life):
        return "survivors stayed"
    started = [line for line in journal if line["event"] == "WorkerStarted" and line["incarnation"] == life]
    warm = sum(bool(line.get("standby")) for line in started)
    return "cold restart" if not warm else "warm restart" if warm == len(started) else "partly warm restart"


def _who(one: Told) -> str:
    return f"rank {one.rank} of incarnation {one.life}"


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _NEAR * max(1.0, abs(one), abs(other))
