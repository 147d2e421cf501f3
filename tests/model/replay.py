"""The journals of a real run, held to the laws that the explored protocol is held to.

``broken_laws`` takes the log folders of all nodes and names each law that the run broke: those of
``model.laws``, over states made of the journals, and what a real run has besides: one plan for all nodes,
ranks where it puts them, an end that is true. As a program: ``python -m model.replay FOLDER...``.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from faultrun.core.recovery.common_point import on_own_disks
from faultrun.model.events import (
    GoGiven,
    PlanAdopted,
    RecoveryPointChosen,
    RunFinished,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import LookAgain, OwnNodeAside
from faultrun.model.observed.dying_gasp import GaspSaved, GaspVerified
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.topology import BootId, NodeId
from faultrun.nodes.values.roster import PlanHeader, PlanPhase, Roster, RosterEntry
from model import values
from model.cluster import ALL_FAULTS, Etcd, Node, Setting, State
from model.journals import Life, Told, lives, silences, told, without_clock
from model.laws import broken


def broken_laws(folders: Collection[Path], *, only_etcd: bool = False, slack_s: float = 0.0) -> list[str]:
    """Every law that the run broke, in words that name node and line; none if it kept them all.

    ``folders`` are the nodes' own (``<log_dir>/node_<name>``), each with its journal. ``only_etcd``: whoever
    ran it took nothing away but etcd, and ranks; no journal can tell that a machine stood still or was cut
    off. ``slack_s``: how far the clocks of the machines may be apart.
    """
    story = told(folders, slack_s)
    parts = lives(folders, story)
    return [
        *_told_alike(story),
        *_placed(story),
        *_ended_well(story),
        *_Replay(story, parts, only_etcd=only_etcd).found(),
    ]


class _Change(NamedTuple):
    at: float
    begins: bool
    where: str
    apply: Callable[[State], State]
    kinds: frozenset[str]


@dataclass(slots=True)
class _Saves:
    """What may not be lost: the newest statements, and saves that were read back."""

    world: int = 0
    stated: dict[str, NodeFact] = field(default_factory=dict)
    steps: dict[tuple[str, int], int] = field(default_factory=dict)
    covered: dict[int, set[int]] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)
    considered: bool = True

    def hear(self, line: Told) -> None:
        for fact in line.facts:
            self.stated[line.node] = fact
        match line.event:
            case GaspSaved(path=path, rank=rank, step=step, replica_group=group):
                self.steps[path, rank] = step
                self.covered.setdefault(step, set())
                if not group:
                    self.steps[path, -1] = step
            case GaspVerified(path=path, rank=rank, whole=True) if (path, rank) in self.steps:
                step = self.steps[path, rank]
                self.covered[step].add(rank)
                if (path, -1) in self.steps or len(self.covered[step]) == self.world:
                    self.whole.add(step)
            case RecoveryPointChosen(refused=refused, left_alone=left_alone):
                self.considered = self.considered and not left_alone
                self.whole -= {one.global_step for one in refused if one.global_step is not None}

    def newest(self, plan: Plan) -> int | None:
        """The step that this plan may not begin behind; None where nobody can tell."""
        seats = [seat.node for seat in plan.topology.nodes]
        facts = [self.stated[node] for node in seats if node in self.stated]
        begins = None if plan.point is None else plan.point.global_step
        told_by_step = plan.point is None or begins is not None
        if not self.considered or plan.ledger.attempts or not told_by_step or len(facts) < len(seats):
            return None
        if on_own_disks(facts):
            common = set.intersection(
                *({point.global_step for point in fact.resume.points} for fact in facts)
            )
            return max((step for step in common if step is not None), default=None)
        points = [fact.resume.point for fact in facts if fact.resume.point is not None]
        seen = {point.global_step for point in points if not point.part_of}  # the rest of it may be lost
        return max((step for step in (*seen, *self.whole) if step is not None), default=None)


class _Replay:
    """The states of the run as the model has them: one node for each part in an incarnation, and the plan."""

    def __init__(self, story: Sequence[Told], parts: Sequence[Life], *, only_etcd: bool) -> None:
        self._story, self._parts, self._only_etcd = story, parts, only_etcd
        self._silent = silences(story)
        self._members: dict[int, set[str]] = {}
        self._header: PlanHeader | None = None
        self._plans: dict[int, Plan] = {}

    def found(self) -> Iterator[str]:
        begins = values.plan_of(values.first_plan(1)).body
        nothing = values.plan_number(_written(replace(begins, incarnation=-1), PlanPhase.PREPARE, 0))
        idle = tuple(Node(incarnation=life.incarnation) for life in self._parts)
        state, bad = State(idle, Etcd(plan=nothing), 0), ""
        for change in sorted(self._changes(), key=lambda one: (one.at, one.begins)):
            after = change.apply(state)
            setting = Setting(len(self._parts), 0, 1, change.kinds, saves=after.disk >= 0, least=1)
            bad, before = broken(setting, state, after), bad
            if bad and bad != before:
                yield f"{bad} ({change.where})"
            state = after._replace(disk=0)

    def _changes(self) -> Iterator[_Change]:
        yield from self._of_plans()
        for at, life in enumerate(self._parts):
            yield _Change(life.began, True, life.where, _put(at, "join"), ALL_FAULTS)
            if life.trains is not None:
                yield _Change(life.trains, True, life.where, _put(at, "run"), ALL_FAULTS)
            if life.freed is not None:
                yield _Change(life.freed, False, life.where, _put(at, "stay"), ALL_FAULTS)
            kinds = frozenset({"away"}) if self._only_etcd_was_away(life) else ALL_FAULTS
            yield _Change(life.ended, False, life.where, _put(at, "idle"), kinds)

    def _of_plans(self) -> Iterator[_Change]:
        saves, faults, place = _Saves(), set[int](), (-1, 0, 0)
        for line in self._story:
            saves.hear(line)
            faults |= {fact.incarnation for fact in line.facts if _charged(fact.left.incident)}
            match line.event:
                case PlanAdopted(plan=plan):
                    faults |= self._known_by_word(plan)
                    self._plans.setdefault(plan.incarnation, plan)
                    self._members[plan.incarnation] = {seat.node for seat in plan.topology.nodes}
                    now, phase, look = (plan.incarnation, 0, place[2]), PlanPhase.PREPARE, place[2]
                case GoGiven(incarnation=number):
                    now, phase, look = (number, 1, place[2]), PlanPhase.GO, place[2]
                case LookAgain(number=look) if look > place[2]:
                    now, phase = (place[0], 2, look), PlanPhase.LOOK
                case _:
                    continue
            if now <= place or now[0] not in self._plans:
                continue
            first = now[0] > place[0]
            place, plan = now, self._plans[now[0]]
            disk = saves.newest(plan) if first and now[0] > min(self._plans) else None
            saves.world = plan.topology.world_size
            charges = len(self._plans[min(self._plans)].ledger.restarts) + len(faults)
            number = values.plan_number(_written(plan, phase, look))
            apply = _plan(number, -1 if disk is None else disk, charges)
            yield _Change(line.at, True, line.where, apply, ALL_FAULTS)

    def _known_by_word(self, plan: Plan) -> set[int]:
        """The fault that ``plan`` answers, if the disk of its node was full before that could be written."""
        told = None if plan.aftermath is None else plan.aftermath.incident
        if told is None or not _charged(told):
            return set()
        here = [line.event for line in self._story if line.node == told.node]
        goes_on = bool(here) and (
            here[-1].incarnation > told.incarnation or isinstance(here[-1], RunFinished)
        )
        return set() if goes_on else {told.incarnation}

    def _only_etcd_was_away(self, life: Life) -> bool:
        """Whether it was fenced, and first of all, while no member of its incarnation heard the store."""
        members = self._members.get(life.incarnation, set())
        others = [one for one in self._parts if one.incarnation == life.incarnation and one is not life]
        return (
            self._only_etcd
            and life.fenced
            and len(members) > 1
            and all((node, life.incarnation) in self._silent for node in members)
            and all(one.told and (one.fenced or one.ended > life.ended) for one in others)
        )


def _charged(incident: Incident | None) -> bool:
    uncharged = (Cause.ELSEWHERE, Cause.NODE, Cause.FENCE)
    return incident is not None and incident.cause not in uncharged


def _put(at: int, phase: str) -> Callable[[State], State]:
    def applied(state: State) -> State:
        node = state.nodes[at]._replace(phase=phase)
        return state._replace(nodes=(*state.nodes[:at], node, *state.nodes[at + 1 :]))

    return applied


def _plan(number: int, disk: int, charges: int) -> Callable[[State], State]:
    def applied(state: State) -> State:
        return state._replace(etcd=state.etcd._replace(plan=number), disk=disk, charges=charges)

    return applied


def _written(plan: Plan, phase: PlanPhase, look: int) -> values.Written:
    header = PlanHeader(
        incarnation=plan.incarnation, phase=phase, roster="real", body="real", run_s=0.0, look=look
    )
    boots = plan.boots or (BootId(""),) * len(plan.topology.nodes)
    entries = tuple(
        RosterEntry(node=seat.node, slots=seat.slots, boot=boot)
        for seat, boot in zip(plan.topology.nodes, boots, strict=True)
    )
    return values.Written(header, Roster(entries=entries), plan)


def _told_alike(story: Sequence[Told]) -> Iterator[str]:
    """One plan and one address for each incarnation; numbers that only rise on every node."""
    first: dict[tuple[type, int], Told] = {}
    newest: dict[str, Told] = {}
    for line in story:
        if not isinstance(line.event, PlanAdopted | GoGiven):
            continue
        before = first.setdefault((type(line.event), line.event.incarnation), line)
        if without_clock(before) != without_clock(line):
            what = "plan" if isinstance(line.event, PlanAdopted) else "address"
            yield f"{what} of {line.event.incarnation} is not the same for all ({before.where}; {line.where})"
        if not isinstance(line.event, PlanAdopted):
            continue
        if not line.event.plan.is_for(NodeId(line.node), BootId(line.boot)):
            yield f"a plan of {line.event.incarnation} is followed that is for others ({line.where})"
        last = newest.get(line.node)
        if last is not None and last.event.incarnation >= line.event.incarnation:
            yield f"{line.event.incarnation} is planned after {last.event.incarnation} ({line.where})"
        newest[line.node] = line


def _placed(story: Sequence[Told]) -> Iterator[str]:
    """Every rank runs where the plan puts it."""
    plans: dict[tuple[str, int], Plan] = {}
    for line in story:
        match line.event:
            case PlanAdopted(plan=plan):
                plans[line.node, plan.incarnation] = plan
            case WorkerStarted(incarnation=number, rank=rank):
                own = plans.get((line.node, number))
                seats = () if own is None else own.topology.ranks_of(NodeId(line.node))
                if rank not in seats:
                    yield f"rank {rank} of {number} runs where no plan puts it ({line.where})"


def _ended_well(story: Sequence[Told]) -> Iterator[str]:
    """Who says that the run ended with 0 is right: every rank of the last plan has.

    Of a node that was set aside that is one which it took no part in.
    """
    plans = {
        line.event.plan.incarnation: line.event.plan for line in story if isinstance(line.event, PlanAdopted)
    }
    here = {line.node for line in story}
    aside = {(line.node, line.event.incarnation) for line in story if isinstance(line.event, OwnNodeAside)}
    clean = {
        (line.event.incarnation, line.event.rank)
        for line in story
        if isinstance(line.event, WorkerExit) and line.event.clean
    }
    for line in story:
        if not isinstance(line.event, RunFinished) or line.event.exit_code or line.event.stopped:
            continue
        life = line.event.incarnation
        plan = plans.get(max(plans) if (line.node, life) in aside else life)
        seats = () if plan is None else [seat.node for seat in plan.topology.nodes if seat.node in here]
        for node in seats:
            assert plan is not None
            missing = [rank for rank in plan.topology.ranks_of(node) if (plan.incarnation, rank) not in clean]
            if missing:
                life = plan.incarnation
                yield f"the run ended with 0 although ranks {missing} of {life} did not ({line.where})"


if __name__ == "__main__":
    laws = broken_laws([Path(word) for word in sys.argv[1:]])
    sys.stdout.write("".join(f"{law}\n" for law in laws))
    sys.exit(bool(laws))
