"""Who failed first: what cannot be faked, then the ranks' own accounts, then the kernel's order."""

from faultrun.core.diagnosis.diagnose import first_to_fail
from faultrun.model.actions import RequestGasp
from faultrun.model.events import WorkerExit
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.incident import Cause
from faultrun.model.observed.dying_gasp import SaveAwaited
from faultrun.model.observed.evidence import DeathNote, FaultClass, Finding, Raised
from support.stories.story import NODE, Story

NEVER = 1e9
FAILED = Exited(code=1)
TERMINATED = Signaled(signum=15)
LOST_PEER = Finding(name="gloo", fault_class=FaultClass.CONSEQUENCE, says="a collective broke")


def exit_of(rank: int, at_s: float, status: ExitStatus = FAILED) -> WorkerExit:
    return WorkerExit(at_s=at_s, incarnation=0, node=NODE, rank=rank, pid=rank, status=status)


def raised(rank: int, at_s: float | None, finding: Finding | None = None) -> DeathNote:
    return DeathNote(rank=rank, raised=Raised(kind="ValueError", at_s=at_s), finding=finding)


def blamed(*exits: WorkerExit, notes: tuple[DeathNote, ...] = ()) -> tuple[int, str]:
    first, why = first_to_fail(exits, notes, NEVER)
    return first.rank, why


def test_a_rank_that_raised_and_was_slow_to_end_is_blamed_and_not_the_peer_that_it_broke() -> None:
    exits = (exit_of(0, 5.0), exit_of(2, 7.0))
    notes = (raised(0, 4.9, LOST_PEER), raised(2, 4.8))
    assert blamed(*exits, notes=notes) == (2, "it recorded its error before the first exit")


def test_of_several_that_raised_the_earliest_is_blamed() -> None:
    exits = (exit_of(0, 5.0), exit_of(1, 5.1), exit_of(2, 5.2))
    notes = (raised(0, 4.9), raised(1, 4.7), raised(2, 4.8))
    assert blamed(*exits, notes=notes)[0] == 1


def test_what_a_survivor_raised_later_while_it_saved_is_not_the_cause() -> None:
    exits = (exit_of(0, 5.0), exit_of(1, 6.0))
    assert blamed(*exits, notes=(raised(0, 4.9), raised(1, 5.5))) == (0, "the kernel ended it first")


def test_without_times_the_rank_that_does_not_tell_of_a_lost_peer_is_blamed() -> None:
    exits = (exit_of(0, 5.0), exit_of(1, 5.0, TERMINATED), exit_of(2, 5.2))
    notes = (raised(0, None, LOST_PEER), DeathNote(rank=1), raised(2, None))
    assert blamed(*exits, notes=notes) == (2, "rank 0 ended first but tells of a lost peer")


def test_a_killed_rank_that_took_seconds_to_be_torn_down_is_blamed_and_not_the_peer_that_lost_it() -> None:
    exits = (exit_of(1, 5.0), exit_of(0, 8.0, Signaled(signum=9)))
    why = "rank 1 ended first but tells of a lost peer"
    assert blamed(*exits, notes=(raised(1, 4.9, LOST_PEER),)) == (0, why)
    assert blamed(*exits, notes=(raised(1, 4.9),))[0] == 1, "it failed by itself"
    sooner = exit_of(2, 5.1, Signaled(signum=6))
    assert blamed(*exits[:1], sooner, exits[1], notes=(raised(1, 4.9, LOST_PEER), raised(2, None)))[0] == 2
    first, _ = first_to_fail(exits, (raised(1, 4.9, LOST_PEER),), ours_from_s=7.9)
    assert first.rank == 1, "we killed the other"


def test_a_rank_that_left_with_zero_while_the_others_still_needed_it_is_blamed() -> None:
    exits = (exit_of(1, 3.0, Exited(code=0)), exit_of(0, 5.0), exit_of(2, 5.1))
    notes = (raised(0, 4.9, LOST_PEER), raised(2, 5.0, LOST_PEER))
    rank, why = blamed(*exits, notes=notes)
    assert (rank, why) == (1, "rank 0 lost a peer, and only this rank had left")


def test_a_rank_that_had_finished_is_not_blamed_for_a_failure_of_another_kind() -> None:
    exits = (exit_of(1, 3.0, Exited(code=0)), exit_of(0, 5.0))
    assert blamed(*exits, notes=(raised(0, 4.9),))[0] == 0


def test_where_all_tell_of_a_lost_peer_the_first_is_named_with_that_doubt() -> None:
    exits = (exit_of(1, 5.0), exit_of(0, 5.1))
    notes = (raised(1, 4.9, LOST_PEER), raised(0, 4.8, LOST_PEER))
    assert blamed(*exits, notes=notes) == (1, "the kernel ended it first; its own words tell of a lost peer")


def test_a_sigkill_needs_no_words() -> None:
    exits = (exit_of(0, 5.0), exit_of(3, 5.1, Signaled(signum=9)))
    assert blamed(*exits, notes=(raised(0, 4.0),)) == (3, "no rank ends like this only because a peer died")


def test_who_waits_to_be_asked_has_all_save_and_the_rank_that_left_with_0_is_blamed() -> None:
    story = Story(3).begins().returned(0, 0)
    story.now(SaveAwaited, rank=1)
    assert [request.ranks for request in story.performed(RequestGasp)] == [frozenset({1, 2})]
    story.killed(1, after_s=40).returned(2, 1).drained()
    incident = story.incident
    assert (incident.cause, incident.rank, incident.followers) == (Cause.EXIT, 0, (1, 2))
    assert incident.explanation == "left with exit code 0 while the others trained on"


def test_who_waits_for_a_rank_that_is_killed_only_later_follows_that() -> None:
    story = Story(3).begins().returned(0, 0)
    story.now(SaveAwaited, rank=1).killed(2).returned(1, 1).drained()
    assert (story.incident.cause, story.incident.rank) == (Cause.SIGNAL, 2)


def test_a_broken_connection_without_a_death_is_said_to_be_one() -> None:
    story = Story(2).begins().reported(r0=7, r1=7)
    story.now(SaveAwaited, rank=1).killed(0, after_s=40).killed(1).drained()
    assert (story.incident.cause, story.incident.rank, story.incident.followers) == (Cause.EXIT, 1, (0,))
    assert story.incident.explanation == "lost a peer, and no rank of this node had failed"
