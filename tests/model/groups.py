"""Process groups of ranks that train on while places are empty: the real supervisor, and modelled ranks.

``decide``, ``decide_standbys`` and ``next_step`` are the product's. A rank is what the SDK promises of one:
it hears at once, and leaves, enters, counts a step and dies whenever it likes. All that can follow is tried.

The laws: no group trains once a newer one has (``two groups``); ranks of one group have counted the same
steps, each in one group that did it (``another count``); a group trains with all that it was made of
(``not all``); the supervisor starts nobody whose rank lives (``twice``), and has nobody begin anew where rank
0 has finished (``anew``). ``away`` names guards that are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from faultrun.core.phases.decide import decide
from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.core.standby.policy import decide_standbys
from faultrun.core.standby.state import StandbyState
from faultrun.model.actions import (
    Action,
    ExamineDeaths,
    FreeSurvivors,
    Kill,
    ParkStandby,
    Publish,
    Spawn,
    StartTimer,
)
from faultrun.model.events import Event, FirstStep, PlanAdopted, Timer, TimerFired, WorkerExit
from faultrun.model.exits import Exited, Signaled
from faultrun.model.observed.rejoin import DeathsExamined, RankCanRejoin, RankRejoined
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.plan import Plan
from faultrun.model.run import Phase, RunState
from support.stories.story import NODE

WORLD = 3
LAST_STEP, LAST_GROUP = 2, 3


class Join(NamedTuple):
    """A group to enter, and who is in it."""

    group: int
    members: frozenset[int]


class Rank(NamedTuple):
    """One process. ``counted``: the group in which each step was counted; None where it has no state yet."""

    alive: bool = True
    group: int | None = 0
    counted: tuple[int, ...] | None = ()
    lost: int = -1
    join: Join | None = None


class Group(NamedTuple):
    """``formed``: all that it is made of are in it. ``steps``: whoever counts is behind so many of all."""

    members: frozenset[int]
    entered: frozenset[int]
    formed: bool
    steps: int = 0
    told: frozenset[int] = frozenset()


@dataclass(frozen=True)
class World:
    """Everything at one moment. ``facts`` have not been heard by the supervisor yet."""

    rules: Rules
    state: RunState
    standbys: StandbyState
    plan: Plan
    ranks: tuple[Rank, ...]
    groups: tuple[tuple[int, Group], ...]
    coming: tuple[tuple[int, bool], ...] = ()
    facts: tuple[Event, ...] = ()
    kills: int = 2
    finishes: bool = False
    away: frozenset[str] = frozenset()
    bad: str = field(default="", compare=False)

    @property
    def key(self) -> object:
        """What tells this moment from others."""
        life, plan = self.state.life, self.plan
        known = (self.state.phase, plan.incarnation, plan.kept, plan.missing, life.alive, life.rejoining)
        told = (life.rejoinable, life.parked, life.regroups, len(life.exits), self.standbys.healing)
        facts = tuple((type(one).__name__, one.incarnation, getattr(one, "rank", -1)) for one in self.facts)
        return known, told, self.ranks, self.groups, self.coming, facts, self.kills

    def group(self, number: int) -> Group:
        """The group of an incarnation."""
        return dict(self.groups)[number]

    def with_group(self, number: int, group: Group) -> "World":
        """The same with another word on one group."""
        return replace(self, groups=tuple(sorted({**dict(self.groups), number: group}.items())))

    def with_rank(self, rank: int, process: Rank) -> "World":
        """The same with another word on one rank."""
        return replace(self, ranks=(*self.ranks[:rank], process, *self.ranks[rank + 1 :]))

    def moves(self) -> Iterator[tuple[str, "World"]]:
        """All that can come next."""
        if self.facts and self.state.phase in (Phase.RUNNING, Phase.REPLACING):
            yield f"the supervisor hears {type(self.facts[0]).__name__}", self.heard()
        for rank, process in enumerate(self.ranks):
            if process.alive:
                yield from self._of_rank(rank, process)
        for rank, parked in self.coming:
            if not parked:
                told = StandbyChanged(at_s=0, incarnation=0, rank=rank, state=StandbyPhase.PARKED)
                others = tuple(one for one in self.coming if one[0] != rank)
                there = replace(self, coming=tuple(sorted((*others, (rank, True)))))
                yield f"the newcomer of rank {rank} waits", replace(there, facts=(*self.facts, told))

    def _of_rank(self, rank: int, process: Rank) -> Iterator[tuple[str, "World"]]:
        if self.kills:
            told = self._exit(rank)
            gone = replace(self.with_rank(rank, process._replace(alive=False)), kills=self.kills - 1)
            yield f"rank {rank} is killed", replace(gone, facts=(*self.facts, told))
        number = process.group
        if number is not None:
            group = self.group(number)
            if process.lost >= number:
                yield f"rank {rank} leaves group {number}", self._left(rank, process)
            if group.formed and len(process.counted or ()) < group.steps:
                yield f"rank {rank} counts", self._counted(rank, process, number)
            if self._may_reduce(number) and rank == min(group.entered):
                yield f"group {number} does a step", self._reduced(number)
            if len(process.counted or ()) == LAST_STEP and self.finishes:
                told = replace(self._exit(rank), status=Exited(code=0))
                gone = self.with_rank(rank, process._replace(alive=False))
                yield f"rank {rank} finishes", replace(gone, facts=(*self.facts, told))
        elif process.join is not None and process.join.group > process.lost:
            yield f"rank {rank} enters group {process.join.group}", self._entered(rank, process)

    def _exit(self, rank: int) -> WorkerExit:
        number = self.plan.incarnation
        return WorkerExit(at_s=0, incarnation=number, node=NODE, rank=rank, pid=1, status=Signaled(signum=9))

    def _left(self, rank: int, process: Rank) -> "World":
        """A step that it has not counted is taken back."""
        counted = process.counted
        if "takes back" in self.away and counted is not None and process.group is not None:
            counted = (*counted, process.group)
        return self.with_rank(rank, process._replace(group=None, counted=counted))

    def _may_reduce(self, number: int) -> bool:
        """A collective needs all that the group is made of, and each at the same step."""
        group = self.group(number)
        inside = [self.ranks[rank] for rank in group.entered if self.ranks[rank].alive]
        here = [one for one in inside if one.group == number]
        if group.steps >= LAST_STEP or not group.formed:
            return False
        if "all" not in self.away and len(here) < len(group.members):
            return False
        return bool(here) and all(len(one.counted or ()) == group.steps for one in here)

    def _reduced(self, number: int) -> "World":
        group = self.group(number)
        newer = [other for other, one in self.groups if other > number and one.formed]
        here = {rank for rank in group.entered if self.ranks[rank].alive and self.ranks[rank].group == number}
        after = self.with_group(number, group._replace(steps=group.steps + 1))
        if newer:
            return replace(after, bad=f"two groups: {number} trains beside {newer[0]}")
        away = group.members - here
        return replace(after, bad=f"not all: rank {min(away)} is not in group {number}") if away else after

    def _counted(self, rank: int, process: Rank, number: int) -> "World":
        group = self.group(number)
        after = self.with_rank(rank, process._replace(counted=(*(process.counted or ()), number)))
        told = group.told | {rank}
        after = after.with_group(number, group._replace(told=told))
        if told == group.members and group.told != told:
            after = replace(
                after, facts=(*self.facts, FirstStep(at_s=0, incarnation=number, step=group.steps))
            )
        return after._checked(number)

    def _checked(self, number: int) -> "World":
        """All have counted each step in the same group, and that has done it."""
        inside = [one.counted or () for one in self.ranks if one.alive and one.group == number]
        done = {other: group.steps for other, group in self.groups}
        for one in inside:
            if any(done[group] <= step for step, group in enumerate(one)):
                return replace(self, bad=f"another count: {one}, and its last step was done by nobody")
        for one in inside:
            for other in inside:
                if any(mine != its for mine, its in zip(one, other, strict=False)):
                    return replace(self, bad=f"another count: {one} and {other} in group {number}")
        return self

    def _entered(self, rank: int, process: Rank) -> "World":
        assert process.join is not None
        number, members = process.join
        known = dict(self.groups).get(number, Group(members, frozenset(), formed=False))
        entered = known.entered | {rank}
        after = self.with_rank(rank, process._replace(group=number, join=None))
        after = after.with_group(number, known._replace(entered=entered))
        return after._formed(number) if entered == members else after

    def _formed(self, number: int) -> "World":
        """All go on after the step of the furthest, with its state; and say so."""
        group = self.group(number)
        here = [rank for rank in sorted(group.entered) if self.ranks[rank].alive]
        if any(self.ranks[rank].lost >= number for rank in here) or len(here) < len(group.entered):
            return self  # a connection breaks, and all that are in it leave
        states = [one.counted for rank in here if (one := self.ranks[rank]).counted is not None]
        furthest = max(states, key=len, default=())
        after = self
        for rank in here:
            process = self.ranks[rank]
            if "common step" not in self.away or process.counted is None:
                after = after.with_rank(rank, process._replace(counted=furthest))
        after = after.with_group(number, group._replace(formed=True, steps=len(furthest)))
        told: list[Event] = [RankRejoined(at_s=0, incarnation=number, rank=rank, step=0) for rank in here]
        told += [RankCanRejoin(at_s=0, incarnation=number, rank=rank, trains_on="") for rank in here]
        return replace(after, facts=(*self.facts, *told))._checked(number)

    def heard(self) -> "World":
        """The supervisor hears the oldest fact, and does what it decides."""
        fact, *facts = self.facts
        standbys, step = decide_standbys(self.standbys, fact, decide(self.state, fact))
        after = replace(self, state=step.state, standbys=standbys, facts=tuple(facts))
        if step.state.phase is Phase.DRAINING and self.finishes and 0 in step.state.life.finished:
            after = replace(after, bad=f"anew: {step.why}")
        for action in step.actions:
            after = after._done(action)
        return after

    def _done(self, action: Action) -> "World":
        match action:
            case FreeSurvivors(incarnation=number, ranks=ranks, at_boundary=True):
                return self._tells(
                    RankCanRejoin(at_s=0, incarnation=number, rank=min(ranks), trains_on="", waits=True)
                )
            case FreeSurvivors(incarnation=number, ranks=ranks) if "frees" not in self.away:
                after = self
                for rank in ranks:
                    process = after.ranks[rank]
                    after = after.with_rank(rank, process._replace(lost=max(process.lost, number)))
                return after
            case ExamineDeaths(incarnation=number, dead=dead):
                return self._tells(DeathsExamined(at_s=0, incarnation=number, dead=dead, notes=()))
            case Publish(fact=fact):
                answer = next_step(self.rules, self.plan, {NODE: fact}, 0.0)
                if isinstance(answer, Waiting):
                    return self
                plan = answer.plan if isinstance(answer, PlanAdopted) else self.plan
                return replace(self._tells(answer), plan=plan)
            case StartTimer(timer=Timer.HEAL, at_s=0, incarnation=number):
                return self._tells(TimerFired(at_s=0, incarnation=number, timer=Timer.HEAL))
            case ParkStandby(rank=rank):
                return replace(self, coming=tuple(sorted((*self.coming, (rank, False)))))
            case Spawn():
                return self._spawned(action)
            case Kill(ranks=ranks):
                after = self
                for rank in ranks:
                    after = after.with_rank(rank, after.ranks[rank]._replace(alive=False))._tells(
                        self._exit(rank)
                    )
                return after
            case _:
                return self

    def _tells(self, fact: Event) -> "World":
        return replace(self, facts=(*self.facts, fact))

    def _spawned(self, order: Spawn) -> "World":
        """Newcomers are started, or were parked, and whoever is in the group hears of it."""
        after, plan = self, order.plan
        for rank in order.ranks:
            if self.ranks[rank].alive:
                return replace(self, bad=f"twice: rank {rank} lives")
            after = after.with_rank(rank, Rank(group=None, counted=None))
        coming = tuple(one for one in self.coming if one[0] not in order.ranks)
        after = replace(after, coming=coming)
        members = frozenset(range(WORLD)) - (frozenset() if "names missing" in self.away else plan.missing)
        for rank in sorted(plan.kept | {*order.ranks}):
            process = after.ranks[rank]
            after = after.with_rank(rank, process._replace(join=Join(plan.incarnation, members)))
        return after


def first_moment(state: RunState, rules: Rules, away: frozenset[str]) -> World:
    """All ranks of ``state`` train in the first group, and could share."""
    assert state.plan is not None
    everybody = frozenset(range(WORLD))
    first = Group(everybody, everybody, formed=True, told=everybody)
    ranks = tuple(Rank() for _ in everybody)
    return World(rules, state, StandbyState(), state.plan, ranks, ((0, first),), away=away)


def explore(first: World, most: int) -> tuple[str, list[str], set[str], bool]:
    """Try all that can follow: what is bad and how it came, what was seen, and whether that was all of it."""
    border: list[tuple[World, tuple[str, ...]]] = [(first, ())]
    known, seen = {first.key}, set[str]()
    while border:
        world, way = border.pop()
        seen |= _seen(world)
        for what, after in world.moves():
            if after.bad:
                return after.bad, [*way, what], seen, True
            if after.plan.incarnation > LAST_GROUP or after.key in known:
                continue
            known.add(after.key)
            border.append((after, (*way, what)))
        if len(known) > most:
            return "", [], seen, False
    return "", [], seen, True


def _seen(world: World) -> set[str]:
    plan, seen = world.plan, set[str]()
    formed = {number for number, group in world.groups if group.formed}
    if plan.incarnation in formed and plan.kept:
        seen |= {"trains on"} if plan.missing else set()
        seen |= {"two missing"} if len(plan.missing) > 1 else set()
        seen |= {"healed"} if plan.heals else set()
    return seen | ({"finished"} if world.state.phase is Phase.SWEEPING else set())
