"""What the platform's notices ask for, by the protocol of MindCluster's elastic agent (TaskD).

While workers run: a rank at ``unrecovered`` means save, stop, wait until every rank is recovered, start
again; ``RetryTime`` grown means the same without a faulty rank; ``fault`` or ``failed`` means that this node
is of no more use, and ``GracefulExit`` that all shall leave: save and end, so that the job is placed
anew. While none runs the same words keep them from being started.

A run that may shrink (``RunState.shrinks``) goes on without a device that the platform has given up, instead
of leaving. Where whole nodes may be missing (``fewer_nodes``), the node of that device leaves alone. The
platform counts ranks of the whole world, with or without a worker now.

Deviations, because faultrun is outside of all ranks: workers are asked to save before they are stopped, and
``RestartFaultProcess`` is obeyed on the first node too, by restarting all ranks.

Nothing here changes a phase: ``core/phases/decide.py`` does.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from faultrun.errors import assert_never
from faultrun.model.observed.platform_notice import (
    FaultRanks,
    Notice,
    Platform,
    RankStatus,
    ReportedRank,
    ResetNotice,
    RestartKind,
    TableVersion,
    UnreadableNotice,
)
from faultrun.model.run import Phase, RunState

HOLD_S = 900.0
"""How long workers are kept back at most; TaskD's limit for a start."""

RETRY_PAUSE_S = 60.0
"""From a request to restart everything to the new workers: the platform looks at the devices meanwhile."""

_LISTED = 8
_CAN_GO_ON_WITHOUT = (Phase.RUNNING, Phase.HOLDING)
"""Where a device that is given up has the next incarnation planned at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JustNoted:
    """Nothing is done about it now; it may keep workers from being started."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartAsked:
    """Save, stop, and start again once ``hold`` has nothing against it. ``ranks`` are to blame, if any."""

    ranks: tuple[ReportedRank, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAsked:
    """Save and end the run: the platform places the job anew."""

    ranks: tuple[ReportedRank, ...]
    why: str


PlatformOrder = JustNoted | RestartAsked | LeaveAsked


def judge(state: RunState, notice: Notice, now_s: float) -> tuple[Platform, PlatformOrder]:
    """Return what is remembered from now on, and what must be done about ``notice``. Total."""
    said = state.run.platform
    match notice:
        case UnreadableNotice():
            return said, JustNoted(why=notice.words)
        case TableVersion(version=version):
            return replace(said, version=version), JustNoted(why=f"the rank table is at version {version}")
        case FaultRanks() if notice == said.faulty:
            return said, JustNoted(why="the faulty ranks are known")
        case FaultRanks():
            return _judge_faulty(state, notice)
        case ResetNotice():
            return _judge_reset(state, notice, now_s)
        case _:
            assert_never(notice)


def known_at_start(state: RunState, notices: tuple[Notice, ...]) -> Platform:
    """What the platform had said before this supervisor began. It is what later notices are compared with.

    Old words stop no run: a ``GracefulExit`` that is still there has been obeyed
    by those who came before, and what another machine's files said is not about this one. But a device that
    the run has done without since is not well while ``reset.json`` says otherwise.
    """
    said = replace(state.run.platform, reset=None, faulty=None, version=None, given_up=frozenset())
    for notice in notices:
        said = known(_remembering(state, said), notice)
    return said


def known(state: RunState, notice: Notice) -> Platform:
    """Note one platform notice of before this supervisor began, however late it was read."""
    said = state.run.platform
    if isinstance(notice, ResetNotice):
        said = replace(said, reset=notice, lost=said.lost | _in_trouble(state, notice))
    else:
        said, _ = judge(state, notice, 0.0)
    slots = None if state.plan is None else state.plan.slots
    without = frozenset(one.slot for one in (() if slots is None else slots.aside) if one.named)
    bad = frozenset() if said.reset is None else _bad(said.reset)
    return replace(said, given_up=bad & without)


def hold(state: RunState) -> str:
    """Why no worker may be started now, as far as the platform is concerned; '' when they may."""
    said, notice = state.run.platform, state.run.platform.reset
    if notice is None:
        return ""
    waiting = _of(state, notice, RankStatus.UNRECOVERED)
    bad = () if notice.restart_in_place else _of(state, notice, RankStatus.FAULT)
    bad += _of(state, notice, RankStatus.FAILED)
    if waiting:
        return f"{_ranks(waiting)} not recovered yet"
    if bad:
        return f"{_ranks(bad)} marked as faulty"
    if notice.flushing:
        return "faults are still being collected (FaultFlushing)"
    same_table = said.used_version is not None and (said.version or 0) <= said.used_version
    if said.repairing and notice.kind is RestartKind.POD_RESCHEDULE and same_table:
        return f"the rank table is still at version {said.used_version}"
    return ""


def faulty_slots(state: RunState) -> tuple[int, ...]:
    """The slots of this node whose devices the platform has given up, where the run may do without them."""
    alone = len(state.topology.nodes) == 1
    return tuple(sorted(state.run.platform.given_up)) if state.shrinks and alone else ()


def started(said: Platform) -> Platform:
    """Workers begin a new life: earlier faults are behind them."""
    return replace(said, lost=frozenset(), repairing=False, used_version=said.version, not_before_s=0.0)


def _judge_faulty(state: RunState, notice: FaultRanks) -> tuple[Platform, PlatformOrder]:
    """Ranks of the incarnation before, mostly. Where the run may shrink, what is named goes at once."""
    said = state.run.platform
    before = frozenset() if said.faulty is None else said.faulty.ranks
    lost = _ranks_here(state, notice.ranks)
    news = _ranks_here(state, notice.ranks - said.given_up)
    given_up = (said.given_up - before) | notice.ranks if state.shrinks else said.given_up
    said = replace(said, faulty=notice, lost=said.lost | lost, given_up=given_up)
    if news and state.shrinks and state.phase in _CAN_GO_ON_WITHOUT:
        ranks = tuple(ReportedRank(rank=rank, status=RankStatus.FAULT) for rank in sorted(news))
        return said, RestartAsked(ranks=ranks, why=_described(ranks))
    return said, JustNoted(why=_named(lost) if lost else "no rank of this run is named faulty")


def _judge_reset(state: RunState, notice: ResetNotice, now_s: float) -> tuple[Platform, PlatformOrder]:
    before = state.run.platform.reset or ResetNotice()
    unrecovered = _of(state, notice, RankStatus.UNRECOVERED)
    bad = _of(state, notice, RankStatus.FAULT, RankStatus.FAILED)
    lost = state.run.platform.lost | _in_trouble(state, notice)
    given_up = _given_up(state, before, notice)
    repairing = state.run.platform.repairing or bool(unrecovered)
    said = replace(state.run.platform, reset=notice, lost=lost, given_up=given_up, repairing=repairing)
    if notice.graceful_exit and not before.graceful_exit:
        return said, LeaveAsked(ranks=(), why="the platform asks all to leave (GracefulExit)")
    known = _ranks_here(state, before.having(RankStatus.FAULT, RankStatus.FAILED))
    if before.restart_in_place and not notice.restart_in_place:
        known = frozenset()
    news = [one for one in bad if one.rank not in known]
    here = notice.restart_in_place and all(one.status is RankStatus.FAULT for one in bad)
    if news and not here and state.shrinks:
        can = state.phase in _CAN_GO_ON_WITHOUT
        why = _described(tuple(news)) if can else _heard(state, notice)
        return said, RestartAsked(ranks=tuple(news), why=why) if can else JustNoted(why=why)
    if news and not here:
        why = _described(tuple(news))
        if state.fewer_nodes and not any(one.rank in _own_ranks(state) for one in news):
            return said, JustNoted(why=f"{why}; its node leaves for another place")
        return said, LeaveAsked(ranks=tuple(news), why=f"{why}; leaving for another place")
    if state.phase is not Phase.RUNNING:
        return said, JustNoted(why=_heard(state, notice))
    if unrecovered:
        return said, RestartAsked(ranks=unrecovered, why=_described(unrecovered))
    if bad and (news or notice.update_time > before.update_time):
        return said, RestartAsked(ranks=bad, why=f"{_described(bad)}; its process may be restarted here")
    if notice.retry_time > before.retry_time:
        said = replace(said, not_before_s=now_s + RETRY_PAUSE_S)
        why = f"the platform asks to restart all workers (RetryTime {notice.retry_time})"
        return said, RestartAsked(ranks=(), why=why)
    return said, JustNoted(why=_heard(state, notice))


def _given_up(state: RunState, before: ResetNotice, notice: ResetNotice) -> frozenset[int]:
    """Ranks of the whole world that are lost: those that become so now, and those that were and still are."""
    if not state.shrinks:
        return state.run.platform.given_up
    was, now = (_bad(one) for one in (before, notice))
    well = (was - now) | notice.having(RankStatus.RECOVERED)
    return (state.run.platform.given_up - well) | (now - was)


def _bad(notice: ResetNotice) -> frozenset[int]:
    """Those whose devices do not come back here by themselves."""
    fault = () if notice.restart_in_place else (RankStatus.FAULT,)
    return notice.having(RankStatus.FAILED, *fault)


def _ranks_here(state: RunState, ranks: frozenset[int]) -> frozenset[int]:
    """Which ranks have a worker on the devices of these ``ranks`` of the whole world."""
    return frozenset(here for rank in ranks if (here := _rank_here(state, rank)) is not None)


def _rank_here(state: RunState, rank: int) -> int | None:
    """The rank of now that has the device of this one of the whole world; None: no rank has."""
    first, *others = state.seats.nodes
    if first.places and not others:
        return first.places.index(rank) if rank in first.places else None
    if state.life.topology is not None and state.plan is not None and not state.plan.of_one_node:
        (seat, local), seats = divmod(rank, first.slots), state.plan.seat_numbers
        return seats.index(seat) * first.slots + local if seat in seats else None
    return rank if rank in state.seats.all_ranks - state.barred else None


def _own_ranks(state: RunState) -> Collection[int]:
    """The ranks of this node; none where it has no seat."""
    seats = state.seats
    return seats.ranks_of(state.node) if any(one.node == state.node for one in seats.nodes) else ()


def _remembering(state: RunState, said: Platform) -> RunState:
    return replace(state, run=replace(state.run, platform=said))


def _heard(state: RunState, notice: ResetNotice) -> str:
    against = hold(_remembering(state, replace(state.run.platform, reset=notice)))
    return against or "the platform has nothing against training"


def _in_trouble(state: RunState, notice: ResetNotice) -> frozenset[int]:
    return _ranks_here(state, notice.having(RankStatus.UNRECOVERED, RankStatus.FAULT, RankStatus.FAILED))


def _of(state: RunState, notice: ResetNotice, *statuses: RankStatus) -> tuple[ReportedRank, ...]:
    """Entries of our world only, by its ranks: an old file may speak of a larger one."""
    asked = [(one, _rank_here(state, one.rank)) for one in notice.ranks if one.status in statuses]
    return tuple(replace(one, rank=rank) for one, rank in asked if rank is not None)


def _described(reported: tuple[ReportedRank, ...]) -> str:
    """``rank 3 reported unrecovered by the platform (policy reset, error 20ff02)``."""
    first = reported[0]
    details = [f"policy {first.policy}"] * bool(first.policy) + [f"error {first.error}"] * bool(first.error)
    shown = f" ({', '.join(details)})" if details else ""
    return f"{_ranks(reported)} {first.status.value}, says the platform{shown}"


def _named(lost: frozenset[int]) -> str:
    numbers = " ".join(str(rank) for rank in sorted(lost))
    return f"ranks {numbers} are named faulty: replicas' checkpoints are preferred to theirs"


def _ranks(reported: tuple[ReportedRank, ...]) -> str:
    """``rank 3 is``, ``ranks 1 2 are``; hundreds are counted."""
    numbers = " ".join(str(one.rank) for one in reported[:_LISTED])
    if len(reported) == 1:
        return f"rank {numbers} is"
    more = f" and {len(reported) - _LISTED} more" if len(reported) > _LISTED else ""
    return f"ranks {numbers}{more} are"
