"""What a node does when it hears of the others: that its incarnation is over, that it is alone, nothing."""

from dataclasses import replace

import pytest

from faultrun.model.actions import FindRecoveryPoint, Kill, Prepare, Publish, RaiseAlarm, RequestGasp, Spawn
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import FaultNotice, GoGiven, RecoveryPointChosen, RunFinished, Timer
from faultrun.model.exits import Exited, Signaled
from faultrun.model.incident import Cause
from faultrun.model.observed.agreement import AgreementSilent, IncarnationOver, LookAgain, MembershipLost
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.observed.platform_notice import ResetNotice
from faultrun.model.observed.saves import CheckpointsOpened
from faultrun.model.plan import Attempt, Ledger, Plan, Reason
from faultrun.model.run import Phase
from faultrun.model.spec.windows import Deadline, Windows
from faultrun.model.stop import Stop, StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from support.stories.story import NODE, SIGKILL, STAYING, WINDOWS, Story, checkpoint, first_plan, topology

OTHER = NodeId("other")
TWO_NODES = Topology(nodes=(NodeSlots(node=NODE, slots=2), NodeSlots(node=OTHER, slots=2)))


def plan(incarnation: int, seats: Topology = TWO_NODES, *, start_at_s: float = 0.0) -> Plan:
    return first_plan(4, incarnation=incarnation, topology=seats, reason=Reason.FAULT, start_at_s=start_at_s)


def of_several(ranks: int = 2, *, has: RecoveryPoint | None = None, windows: Windows = WINDOWS) -> Story:
    """A node that has looked at its checkpoints and awaits what all agree on."""
    story = Story(ranks, windows=windows)
    story.agreement_is_silent = True
    return story.starts().chose(has)


def begun(story: Story, planned: Plan) -> Story:
    """All nodes were ready for ``planned``, and have begun."""
    story.planned(planned).prepared()
    return story.now(GoGiven, master_addr="10.0.0.1", master_port=1)


def over(story: Story) -> Story:
    life = story.state.incarnation
    return story.tell(IncarnationOver(at_s=story.now_s, incarnation=life, why="rank 3 fell", node=OTHER))


def alone(story: Story) -> Story:
    return story.tell(MembershipLost(at_s=story.now_s, incarnation=-1, why="the lease is over"))


def test_a_fault_on_another_node_opens_the_same_window_here_and_raises_no_second_alarm() -> None:
    story = over(Story(2).begins().reported(r0=7))
    (request,) = story.performed(RequestGasp)
    assert (request.ranks, request.deadline.at_s, request.peers_lost) == (frozenset({0, 1}), 30, True)
    assert not story.performed(RaiseAlarm)
    story.returned(0, 143).returned(1, 143).drained().chose()
    told = next(action.fact for action in story.actions if isinstance(action, Publish))
    assert told.word is NodeStatus.JOINED
    incident = told.left.incident
    assert incident is not None
    assert (incident.cause, incident.step, incident.followers) == (Cause.ELSEWHERE, 7, (0, 1))


@pytest.mark.parametrize(
    ("opened", "told", "left_out"),
    [
        (None, None, True),
        (("/ck/a.pt",), ("/ck/a.pt",), False),
        (("/ck/a.pt", "/ck/5/x.pt", "/ck/5/y.pt"), ("/ck/5/x.pt", "/ck/a.pt"), True),
        (tuple(f"/ck/{n}.pt" for n in range(9)), tuple(f"/ck/{n}.pt" for n in range(4)), False),
    ],
)
def test_a_node_leaves_out_what_was_opened_here_and_tells_the_others_of_a_few_files(
    opened: tuple[str, ...] | None, told: tuple[str, ...] | None, left_out: bool
) -> None:
    """What others may have opened is for all to judge: with what each of them saw."""
    once, point = Attempt(path="/ck/5", failures=1), replace(checkpoint(5, "/ck/5"), files=())
    story = Story(2).begins()
    planned = replace(plan(0), point=point, ledger=Ledger(attempts=(once,)))
    life = replace(story.state.life, topology=TWO_NODES, point=point)
    story.state = replace(story.state, life=life, run=replace(story.state.run, plan=planned))
    if opened is not None:
        story.now(CheckpointsOpened, paths=opened)
    story.killed(0).returned(1, 143).drained()
    assert bool(story.performed(FindRecoveryPoint)[-1].quarantine) == left_out
    assert story.incident.opened == told


def test_whoever_was_struck_too_says_so_although_the_alarm_came_first() -> None:
    story = over(Story(2).begins()).killed(1, SIGKILL, after_s=0.1).returned(0, 143).drained()
    incident = story.incident
    assert (incident.cause, incident.rank, incident.status) == (Cause.SIGNAL, 1, Signaled(signum=SIGKILL))


@pytest.mark.parametrize("phase", [Phase.BACKING_OFF, Phase.PREPARING, Phase.AWAITING_GO])
def test_without_workers_a_node_takes_a_newer_plan_and_gives_up_one_that_is_over(phase: Phase) -> None:
    story = waiting_in(phase)
    given_up = over(waiting_in(phase))
    assert given_up.phase is Phase.AWAITING_PLAN
    (told,) = given_up.performed(Publish)
    assert (told.fact.word, told.fact.incarnation) == (NodeStatus.JOINED, 1)

    story.planned(plan(2))
    assert (story.phase, story.state.incarnation) == (Phase.PREPARING, 2)
    assert story.performed(Prepare)[-1].plan.incarnation == 2


def test_who_gives_up_a_plan_tells_what_this_node_has_and_not_what_the_plan_resumed_from() -> None:
    story = of_several(has=checkpoint(5)).planned(replace(plan(1, start_at_s=5), point=checkpoint(9)))
    story.planned(replace(plan(2), point=checkpoint(8)))
    told = over(story).performed(Publish)[-1].fact
    assert (told.resume.point, told.resume.more_points) == (checkpoint(5), ())


def waiting_in(phase: Phase) -> Story:
    story = of_several().planned(plan(1, start_at_s=5 if phase is Phase.BACKING_OFF else 0))
    if phase is Phase.AWAITING_GO:
        story.prepared()
    assert story.phase is phase
    story.actions.clear()
    return story


def test_a_plan_for_another_supervisor_of_this_node_is_not_taken() -> None:
    story = of_several().planned(replace(plan(1, topology(2)), boots=(BootId("before"),)))
    assert story.phase is Phase.AWAITING_PLAN


def test_a_node_that_may_be_taken_for_lost_kills_its_workers_and_waits_for_nobody() -> None:
    story = alone(Story(2).begins())
    assert (story.phase, story.performed(Kill)) == (Phase.KILLING, [Kill(ranks=frozenset({0, 1}))])
    story.killed(0).killed(1).drained().chose()
    assert story.state.incarnation == 1, "where it is the only one it goes on by itself"
    assert story.plan.ledger.restarts == ()


def test_a_node_that_was_taken_for_lost_goes_on_under_another_boot() -> None:
    story = begun(of_several(), plan(0))
    lost = MembershipLost(at_s=story.now_s, incarnation=0, why="the lease is over", boot=BootId("second"))
    story.tell(lost).killed(0).killed(1).drained().chose()
    told = story.performed(Publish)[-1].fact
    assert (told.boot, told.word, told.incarnation) == ("second", NodeStatus.JOINED, 0)

    story.tell(replace(lost, boot=BootId("third")))
    assert story.performed(Publish)[-1].fact.boot == "third", "who has drained already says so again"


@pytest.mark.parametrize("seen_first", ["the fence", "the deadline", "a rank's end", "the end of both"])
def test_ranks_that_a_fence_killed_were_not_killed_from_outside(seen_first: str) -> None:
    story = of_two_nodes().reported(r0=7)
    story.now_s = 50.0
    lost = MembershipLost(
        at_s=50, incarnation=0, why="etcd has not answered this node for 9 s", boot=BootId("2"), since_s=49.5
    )
    if seen_first == "the fence":
        story.tell(lost).killed(0).killed(1)
    elif seen_first == "a rank's end":
        story.killed(0).tell(lost).killed(1)
    elif seen_first == "the deadline":
        story.tell(MembershipLost(at_s=50, incarnation=0, why="overdue")).killed(0).tell(lost).killed(1)
    else:
        story.killed(0).killed(1).tell(lost)
    incident = story.drained().incident
    assert (incident.cause, incident.rank, incident.number) == (Cause.FENCE, None, 1)
    assert (incident.explanation, incident.followers) == (lost.why, (0, 1))
    assert story.chose().performed(Publish)[-1].fact.boot == "2"


def test_a_rank_that_fell_before_its_node_was_fenced_stays_the_first_to_fail() -> None:
    story = of_two_nodes()
    story.now_s = 20.0
    story.killed(1)
    story.now_s = 30.0
    story.tell(MembershipLost(at_s=30, incarnation=0, why="etcd has not answered", since_s=30))
    incident = story.killed(0).drained().incident
    assert (incident.cause, incident.rank, incident.followers) == (Cause.SIGNAL, 1, (0,))


def test_a_node_without_workers_looks_again_for_what_a_lost_one_saved() -> None:
    story = drained_beside_a_lost_node().chose(checkpoint(5))
    told = story.performed(Publish)[-1].fact
    assert (told.resume.point, told.resume.look) == (checkpoint(5), 0)

    look(story, 1).chose(checkpoint(6))
    told = story.performed(Publish)[-1].fact
    assert (told.word, told.resume.point, told.resume.look) == (NodeStatus.JOINED, checkpoint(6), 1)


def test_a_request_that_comes_during_a_look_is_answered_by_another_one() -> None:
    story = look(drained_beside_a_lost_node(), 2)
    assert len(story.performed(FindRecoveryPoint)) == 1
    story.chose(checkpoint(5))
    assert not [told for told in story.performed(Publish) if told.fact.word is NodeStatus.JOINED]
    story.chose(checkpoint(6))
    assert story.performed(Publish)[-1].fact.resume.look == 2


def test_what_was_found_before_an_incarnation_is_no_answer_after_it() -> None:
    story = over(waiting_in(Phase.AWAITING_GO))
    assert story.performed(Publish)[-1].fact.resume.look == -1
    look(story, 1).chose()
    assert story.performed(Publish)[-1].fact.resume.look == 1


def test_what_was_torn_when_a_node_looked_may_be_whole_at_the_next_look() -> None:
    story = drained_beside_a_lost_node().chose(checkpoint(5))
    look(story, 1).found_nothing_whole()
    told = story.performed(Publish)[-1].fact
    assert (told.resume.lacks, told.resume.look) == ("3 found, none whole", 1)
    assert (told.resume.point, told.failure) == (None, None)
    look(story, 2)
    look(story, 3).found_nothing_whole()
    assert len(story.performed(FindRecoveryPoint)) == 2, "the third was asked for during the second"
    story.chose(checkpoint(6))
    told = story.performed(Publish)[-1].fact
    assert (told.resume.lacks, told.resume.point, told.resume.look) == ("", checkpoint(6), 3)


def test_where_the_next_ranks_could_meet_is_told_unless_the_platform_keeps_them_back() -> None:
    story = drained_beside_a_lost_node()
    story.now(RecoveryPointChosen, point=None, refused=(), open_port=7)
    assert story.performed(Publish)[-1].fact.open_port == 7
    story = drained_beside_a_lost_node()
    story.now(FaultNotice, notice=ResetNotice(flushing=True))
    story.now(RecoveryPointChosen, point=None, refused=(), open_port=7)
    assert story.performed(Publish)[-1].fact.open_port == 0


def test_who_has_finished_has_so_too_after_it_has_looked_again() -> None:
    story = begun(of_several(), plan(0))
    story.returned(0, 0).returned(1, 0).drained()
    look(story, 1).chose(checkpoint(6))
    told = story.performed(Publish)[-1].fact
    assert (told.word, told.resume.point, told.resume.look) == (NodeStatus.DONE, checkpoint(6), 1)


def test_whoever_is_about_to_end_looks_for_nothing() -> None:
    story = of_several().told_to_stop()
    story.actions.clear()
    assert not look(story, 1).performed(FindRecoveryPoint)


def drained_beside_a_lost_node() -> Story:
    story = begun(of_several(), plan(0))
    over(story).returned(0, 143).returned(1, 143)
    story.actions.clear()
    return story.drained()


def look(story: Story, number: int) -> Story:
    return story.tell(LookAgain(at_s=story.now_s, incarnation=story.state.incarnation, number=number))


def test_a_window_is_cut_when_the_node_may_be_taken_for_lost() -> None:
    story = Story(2).begins().returned(0, 3)
    story.actions.clear()
    assert alone(story).performed(Kill) == [Kill(ranks=frozenset({1}))]
    story.killed(1).rang(Timer.REAP).drained()
    assert story.incident.cause is Cause.EXIT


@pytest.mark.parametrize("source", [StopSource.SIGINT, StopSource.CONTROL])
def test_a_person_who_stops_another_node_stops_this_one_with_the_window_of_a_stop(source: StopSource) -> None:
    story = of_two_nodes()
    story.tell(stopped_elsewhere(story, source))
    assert story.performed(RequestGasp)[0].deadline.at_s == WINDOWS.stop_grace_s
    story.returned(0, 143).returned(1, 143).drained()
    told = story.performed(Publish)[-1].fact
    assert (told.word, told.stop, told.left.incident) == (NodeStatus.DRAINED, source, None)
    end = RunFinished(at_s=9, incarnation=0, exit_code=0, why="stopped", stopped=True, stop=source)
    state = story.tell(end).state
    assert state.stop is not None
    assert not state.trained, "a stop with --exit_code_on_stop=0 is no end of the training"


def test_a_stop_that_is_about_another_node_is_no_fault_here_and_no_end() -> None:
    story = of_two_nodes()
    story.tell(stopped_elsewhere(story, StopSource.SIGTERM))
    assert not story.performed(RaiseAlarm)
    story.returned(0).returned(1, 143).drained().chose(checkpoint(5))
    told = story.performed(Publish)[-1].fact
    assert (told.word, told.stop, told.left.incident) == (NodeStatus.JOINED, None, None)
    assert told.resume.point == checkpoint(5)


@pytest.mark.parametrize("before", [True, False])
def test_it_is_about_this_node_too_where_a_rank_left_of_it_before_it_was_asked(*, before: bool) -> None:
    story, gone = of_two_nodes(), DeathNote(rank=0, told=(10, 0.5), trained_on=False)
    if before:
        story.returned(0)
    story.tell(stopped_elsewhere(story, StopSource.SIGUSR1))
    if not before:
        story.ended(0, Exited(code=0), after_s=0.1)
    story.returned(1, 143).drained(gone)
    assert story.state.stop == (Stop(source=StopSource.SIGUSR1) if before else None)
    assert story.phase is (Phase.AWAITING_PLAN if before else Phase.SURVEYING)


def test_the_same_stop_that_reaches_this_node_later_ends_it_without_an_incident() -> None:
    story = of_two_nodes()
    story.tell(stopped_elsewhere(story, StopSource.SIGTERM)).told_to_stop(after_s=1)
    story.returned(0, 143).returned(1, 143).drained()
    told = story.performed(Publish)[-1].fact
    assert (told.word, told.stop, told.left.incident) == (NodeStatus.DRAINED, StopSource.SIGTERM, None)


def test_a_node_that_only_hears_of_the_end_of_a_stop_was_stopped_and_not_given_up() -> None:
    end = RunFinished(at_s=1, incarnation=-1, exit_code=130, why="told", stopped=True, stop=StopSource.SIGINT)
    story = of_several().tell(end)
    assert (story.state.exit_code, story.state.given_up) == (130, False)


def test_where_a_script_lets_nobody_stay_the_only_rank_of_a_node_dies_for_all() -> None:
    seats = Topology(nodes=(NodeSlots(node=NODE, slots=1), NodeSlots(node=OTHER, slots=1)))
    story = begun(of_several(1, windows=STAYING), first_plan(2, topology=seats)).killed(0, SIGKILL)
    assert story.phase is not Phase.REPLACING


def of_two_nodes() -> Story:
    story = begun(of_several(), plan(0))
    story.actions.clear()
    return story


def stopped_elsewhere(story: Story, source: StopSource) -> IncarnationOver:
    life = story.state.incarnation
    return IncarnationOver(
        at_s=story.now_s, incarnation=life, why=f"told to stop by {source.value}", node=OTHER, stop=source
    )


def test_a_silent_agreement_stops_nobody() -> None:
    story = Story(2).begins()
    before = story.state
    story.tell(AgreementSilent(at_s=9, incarnation=-1, why="no answer for 3 s"))
    assert story.state == before
    assert story.whys[-1] == "no answer for 3 s; what was agreed on goes on"


def test_the_window_ends_when_our_ranks_have_saved_whoever_else_there_is() -> None:
    story = begun(of_several(), plan(0))
    assert [action.ranks for action in story.performed(Spawn)] == [(0, 1)]
    over(story.reported(r0=5, r1=5))
    story.saved(0, 5, group=(0, 2)).saved(1, 5, group=(1, 3)).read_back(0)
    assert not story.performed(Kill)
    (kill,) = story.read_back(1).performed(Kill)
    assert (kill.ranks, kill.writers_until) == (frozenset({0, 1}), Deadline(at_s=30))
