"""That a run has saved, and what, is known to whoever comes later, also when all who saw it are gone."""

from dataclasses import replace

import pytest

from faultrun.model.actions import Publish
from faultrun.model.events import GoGiven, PlanAdopted, RunFinished
from faultrun.model.exits import Signaled
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import LookAgain
from faultrun.model.observed.dying_gasp import SaveSeen
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.observed.saves import SavesObserved, SavesSeen, SeenSave
from faultrun.model.plan import Plan
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from faultrun.nodes.values.membership import BODIES
from faultrun.nodes.values.roster import PlanHeader, PlanPhase
from support.nodes.etcd_in_memory import TIMES, Group, Member
from support.stories.story import NODE, Story, checkpoint, first_plan

SAVE = "ckpt/step_5.pt"
SEATS = Topology(nodes=(NodeSlots(node=NODE, slots=1), NodeSlots(node=NodeId("other"), slots=1)))
PLAN = first_plan(2, topology=SEATS)


def header_of(run: Group) -> PlanHeader:
    header = run.store.common().header
    assert header is not None
    return header


def comes_again(run: Group, *names: str) -> None:
    """Other supervisors of these nodes on the same machines, with new log_dirs."""
    for node in names:
        run.is_gone(node)
    for node in names:
        run.members.append(again := Member(run, node))
        again.fact = replace(again.fact, boot=BootId(f"{node}2"))
    run.passes(2 * TIMES.hold_s + 1)


def look_again(run: Group) -> None:
    """Everybody does, and who was not there when it was saved leaves it alone."""
    assert header_of(run).phase is PlanPhase.LOOK
    for one in run.members:
        assert one.was_told(LookAgain)
        one.says(NodeStatus.JOINED, look=header_of(run).look)
    run.settles()


def test_a_run_that_has_saved_is_not_begun_anew_by_those_who_were_not_there() -> None:
    run = Group("a", "b", "c").starts()
    before = header_of(run)
    assert before.saved == ""
    run["b"].says(NodeStatus.RUNNING, saved=SAVE)
    run.settles()
    assert replace(header_of(run), run_s=before.run_s) == replace(before, saved=SAVE), "noted, and all go on"
    comes_again(run, "a", "b")
    look_again(run)
    assert header_of(run).phase is PlanPhase.FINISHED
    for one in run.members:
        (end,) = one.was_told(RunFinished)
        assert isinstance(end, RunFinished)
        assert end.exit_code == 65
        assert end.why.startswith(
            f"no checkpoint of this run is known to nodes a b\n  because: it had {SAVE} "
        )
        assert "--resume=always" in end.why


def test_one_that_has_saved_nothing_is() -> None:
    run = Group("a", "b", "c").starts()
    comes_again(run, "a", "b")
    look_again(run)
    assert run.phase == (1, PlanPhase.PREPARE)
    assert run["a"].was_told(PlanAdopted)


def test_what_a_spare_knows_of_an_earlier_run_of_the_same_name_is_no_save_of_this_one() -> None:
    run = Group("a", "b", "c")
    run["c"].hears = False
    run.starts()
    run["c"].says(NodeStatus.JOINED, 3, saved=SAVE)
    run["c"].hears = True
    run.settles()
    assert header_of(run).saved == ""


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_run_that_was_given_up_keeps_it_and_one_that_had_ended_does_not(exit_code: int) -> None:
    run = Group("a", "b").starts()
    run["a"].says(NodeStatus.RUNNING, saved=SAVE)
    run.settles()
    for one in run.members:
        failure = (exit_code, "broken") if exit_code else None
        one.says(NodeStatus.DRAINED if failure else NodeStatus.DONE, saved=SAVE, failure=failure)
    run.settles()
    assert (header_of(run).phase, header_of(run).saved) == (PlanPhase.FINISHED, SAVE)
    comes_again(run, "a", "b")
    ended = header_of(run).phase is PlanPhase.FINISHED
    assert (ended, header_of(run).saved) == ((True, SAVE) if exit_code else (False, ""))
    assert header_of(run).exit_code == (65 if exit_code else 0)


def test_one_that_has_resumed_has_saved_also_where_survivors_stay_and_a_plan_names_no_file() -> None:
    run = Group("a", "b")
    for one in run.members:
        one.says(NodeStatus.JOINED, point=checkpoint(5))
    run.starts()
    assert header_of(run).saved == checkpoint(5).path, "by the plan itself: nothing more is written"
    comes_again(run, "a", "b")
    look_again(run)
    assert header_of(run).exit_code == 65
    run = Group("a", "b")
    for one in run.members:
        one.says(NodeStatus.JOINED, point=checkpoint(5))
    run.starts()
    incident = Incident(
        number=1, incarnation=0, at_s=1, cause=Cause.SIGNAL, rank=0, status=Signaled(signum=9), step=6
    )
    for rank, one in enumerate(run.members):
        kept = frozenset({rank} if rank else ())
        one.says(NodeStatus.REPLACING, kept=kept, meeting_port=9, incident=None if rank else incident)
    run.settles()
    assert header_of(run).incarnation == 1
    body = run.store.parts()[f"{BODIES}{header_of(run).body}"]
    assert isinstance(body, Plan)
    assert (body.kept, body.point, header_of(run).saved) == (frozenset({1}), None, checkpoint(5).path)


def test_to_note_a_save_does_not_have_a_wait_begin_anew() -> None:
    run = Group("a", "b").starts()
    run.is_gone("b")
    run.settles()
    run["a"].says(NodeStatus.JOINED, 0, look=0)
    run.settles()
    assert (run["a"].waits, header_of(run).saved) == ("b", "")
    run.passes(40)
    run["a"].says(NodeStatus.JOINED, 0, look=0, saved=SAVE)
    run.passes(21)
    assert header_of(run).saved == SAVE
    (end,) = run["a"].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert end.exit_code == 69


@pytest.mark.parametrize("lost", ["a", "b"])
def test_what_a_lost_node_saw_of_saves_is_in_the_plan_of_all(lost: str) -> None:
    run = Group("a", "b", "c").starts()
    for node, file in (("a", "model.pt"), ("b", "optimizer.pt")):
        run[node].says(NodeStatus.RUNNING, seen=seen(file))
        run.settles()
    assert [key for key in run.store.parts() if key.startswith(BODIES)] == [f"{BODIES}{header_of(run).body}"]
    revision = run.store.revision
    assert run.passes(1).store.revision == revision, "noted once"
    run.is_gone(lost)
    run.passes(2 * TIMES.hold_s + 1)
    for look in (0, 1):
        for one in run.members:
            one.says(NodeStatus.JOINED, look=look, seen=SavesSeen())
        run.settles()
    plan = run["c"].was_told(PlanAdopted)[-1]
    assert isinstance(plan, PlanAdopted)
    assert plan.plan.seen == seen("model.pt", "optimizer.pt")


def seen(*files: str, saves: int = 2) -> SavesSeen:
    return SavesSeen(saves=(SeenSave(files=files),) * saves)


def one_of_two(plan: Plan = PLAN) -> Story:
    """The node with rank 0 trains; the other is elsewhere."""
    story = Story(1)
    story.agreement_is_silent = True
    story.state = replace(story.state, topology=SEATS)
    story.starts().chose().planned(plan).prepared()
    story.now(GoGiven, master_addr="a", master_port=1)
    story.actions.clear()
    return story


def stated(story: Story) -> list[tuple[NodeStatus, str]]:
    return [(one.fact.word, one.fact.saved) for one in story.performed(Publish)]


def test_a_node_of_several_states_the_first_save_once() -> None:
    story = one_of_two()
    story.now(SaveSeen, path=SAVE)
    assert stated(story) == [(NodeStatus.RUNNING, SAVE)]
    story.now(SaveSeen, path="ckpt/step_6.pt").saved(0, 7)
    assert stated(story) == []
    assert stated(one_of_two().saved(0, 7)) == [(NodeStatus.RUNNING, "gasp_0")], "or what a rank says"
    drained = story.killed(0).drained().chose()
    assert stated(drained)[-1] == (NodeStatus.JOINED, "gasp_0")


def test_a_node_of_several_states_what_a_save_is_once_one_is_whole_and_no_plan_knows_it() -> None:
    story = one_of_two()
    for count in (1, 2, 3):
        story.now(SavesObserved, seen=seen("model.pt", saves=count))
    (stated,) = story.performed(Publish)
    assert stated.fact.seen == seen("model.pt")
    story.killed(0).drained().chose()
    assert story.performed(Publish)[-1].fact.seen == seen("model.pt", saves=3)
    known = one_of_two(replace(PLAN, seen=seen("model.pt")))
    assert not known.now(SavesObserved, seen=seen("model.pt")).performed(Publish)


def test_a_node_alone_has_nobody_to_tell() -> None:
    story = Story(1).begins()
    story.actions.clear()
    assert stated(story.now(SaveSeen, path=SAVE).now(SavesObserved, seen=seen("model.pt"))) == []
