"""A job of several nodes that stands still: who waits asks, who is stuck is named, who works waited for."""

from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.phases.hang_response import ANSWERS_S
from faultrun.model.actions import Inspect, Publish, RequestGasp, TellNodes
from faultrun.model.events import GoGiven, Timer
from faultrun.model.incident import Cause
from faultrun.model.observed.hang import Activity, HangElsewhere, NodeSpoke
from faultrun.model.observed.node_fact import NodeRunning
from faultrun.model.observed.progress import WorkPhase
from faultrun.model.run import Phase
from faultrun.model.topology import NodeId, NodeSlots, Topology
from support.stories.story import NODE, Story, first_plan

OTHER, THIRD = NodeId("other"), NodeId("third")
SEATS = Topology(nodes=tuple(NodeSlots(node=node, slots=2) for node in (NODE, OTHER, THIRD)))


class OneOfThree(Story):
    """The node with ranks 0 and 1 while it trains; the other nodes say what the test says."""

    def __init__(self) -> None:
        super().__init__(2)
        self.agreement_is_silent = True
        self.starts().chose().planned(first_plan(6, topology=SEATS)).prepared()
        self.now(GoGiven, master_addr="a", master_port=1)
        self.actions.clear()

    def all_wait(self) -> "OneOfThree":
        self.is_silent(0, 1).now(
            HangElsewhere,
            rank=0,
            step=41,
            doing=WorkPhase.COLLECTIVE,
            stance=Activity.WAITING,
            silent_s=1.2,
            why="waits in a collective for ranks of other nodes (4)",
        )
        return self

    def hears_of(self, node: NodeId, works: str = "") -> "OneOfThree":
        self.now(NodeSpoke, node=node, works=works)
        return self


def asked_again(story: Story) -> list[Inspect]:
    story.actions.clear()
    story.rang(Timer.ANSWERS, after_s=ANSWERS_S)
    return story.performed(Inspect)


def test_where_all_ranks_wait_the_other_nodes_are_asked_before_anything_is_ended() -> None:
    story = OneOfThree().all_wait()
    assert story.performed(TellNodes) == [TellNodes(incarnation=0)]
    assert (story.phase, story.state.life.incident) == (Phase.RUNNING, None)
    (look,) = asked_again(story)
    assert look.suspicion.asked
    story.hangs(0, stance=Activity.WAITING)
    assert (story.incident.cause, story.phase) == (Cause.HANG, Phase.DRAINING)


def test_a_rank_of_another_node_that_works_is_waited_for() -> None:
    story = OneOfThree().all_wait().hears_of(OTHER, "rank 3 reads or writes (9.0 MB)")
    assert story.whys[-1] == "no hang: node other: rank 3 reads or writes (9.0 MB)"
    assert story.state.life.standstill.suspicion is None
    assert asked_again(story) == []
    assert story.phase is Phase.RUNNING


def test_who_has_just_been_asked_asks_nobody_and_believes_what_was_answered_meanwhile() -> None:
    story = OneOfThree().hears_of(OTHER).all_wait()
    assert story.performed(TellNodes) == []
    assert len(asked_again(story)) == 1
    answered = OneOfThree().hears_of(OTHER).hears_of(THIRD, "rank 5 is at work").all_wait()
    assert answered.whys[-1] == "no hang: node third: rank 5 is at work"
    assert asked_again(answered) == []
    answered.now_s += ANSWERS_S
    assert answered.all_wait().performed(TellNodes) == [TellNodes(incarnation=0)]


def test_who_is_asked_answers_once_with_a_rank_that_works_or_may_hang_and_not_with_one_that_waits() -> None:
    story = OneOfThree().hears_of(OTHER)
    assert story.performed(TellNodes) == []
    story.is_silent(0).works_after_all()
    assert story.performed(TellNodes) == [TellNodes(incarnation=0, works="rank 0 reads")]
    story.is_silent(0).works_after_all()
    assert story.performed(TellNodes) == []
    story.hears_of(OTHER).is_silent(0).is_warned_of(1, Activity.WAITING)
    assert story.performed(TellNodes) == []
    story.is_silent(0).is_warned_of(1)
    (told,) = story.performed(TellNodes)
    assert told.works.startswith("rank 1 sleeps")


def test_a_rank_that_is_stuck_when_another_node_asks_ends_the_incarnation_by_its_name() -> None:
    story = OneOfThree().hears_of(OTHER).is_silent(1).hangs(1, stance=Activity.SLEEPING)
    assert (story.incident.rank, story.incident.node, story.phase) == (1, NODE, Phase.DRAINING)
    assert (
        story.incident.stacks == "rank 1 is at train.py:57 in forward; node_here/incident_1: 2 of the ranks"
    )


def test_what_people_are_warned_of_is_stated_until_the_rank_goes_on() -> None:
    story = OneOfThree().is_silent(1).is_warned_of(1)
    (stated,) = story.performed(Publish)
    assert isinstance(stated.fact.status, NodeRunning)
    assert stated.fact.status.hangs.startswith("rank 1 may hang after step 41: sleeps")
    assert "; at train.py:57 in forward; " in stated.fact.status.hangs
    story.goes_on(1)
    (stated,) = story.performed(Publish)
    assert stated.fact.status == NodeRunning(master_port=stated.fact.master_port)
    assert not Story(2).begins().is_silent(1).is_warned_of(1).performed(Publish), "its journal can be read"


WORDS = st.sampled_from(
    [
        lambda story: story.is_silent(0, 1),
        lambda story: story.all_wait(),
        lambda story: story.works_after_all(),
        lambda story: story.is_warned_of(1),
        lambda story: story.is_warned_of(1, Activity.WAITING),
        lambda story: story.goes_on(1),
        lambda story: story.hears_of(OTHER),
        lambda story: story.hears_of(THIRD, "rank 5 is at work"),
        lambda story: story.rang(Timer.ANSWERS, after_s=1.0),
    ]
)


@given(said=st.lists(WORDS, max_size=20))
def test_no_word_of_another_node_and_no_look_of_our_own_ends_a_rank(said: list) -> None:  # type: ignore[type-arg]
    story = OneOfThree()
    for one in said:
        one(story)
    assert (story.phase, story.state.life.incident) == (Phase.RUNNING, None)
    assert not story.performed(RequestGasp)
