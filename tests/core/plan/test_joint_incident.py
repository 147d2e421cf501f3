"""What several nodes tell together: of the incident that their next plan answers, of saves and of loads."""

import json
from dataclasses import replace

import pytest

from faultrun.core.diagnosis.diagnose import hang_incident
from faultrun.core.humanize import rank_names
from faultrun.core.plan.joint_incident import answered_by
from faultrun.core.plan.joint_saves import as_told, joint_saves
from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.journal.codec import decode, encode
from faultrun.model.events import PlanAdopted
from faultrun.model.exits import Exited, Signaled
from faultrun.model.incident import Aftermath, Cause, Incident, Save, Unsaved
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.evidence import FaultClass
from faultrun.model.observed.hang import Activity, HangDetected
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.observed.progress import WorkPhase
from faultrun.model.observed.saves import SavesSeen, SeenSave
from faultrun.model.plan import Plan, Reason
from faultrun.model.run import Phase
from faultrun.model.spec.run_settings import RunSettings
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Replacement, Topology
from faultrun.observe.card.card import agreed_card
from support.nodes.node_facts import fact_with, node_fact
from support.stories.story import POLICY, checkpoint, first_plan, in_phase

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
SEATS = Topology(nodes=(NodeSlots(node=A, slots=2), NodeSlots(node=B, slots=2)))
RULES = Rules(topology=SEATS, policy=POLICY, lease_ttl_s=10)
BEFORE = first_plan(4, topology=SEATS)

KILLED = Incident(
    number=1, incarnation=0, at_s=5, cause=Cause.SIGNAL, rank=1, status=Signaled(signum=9),
    followers=(0,), explanation="killed by SIGKILL", node=A,
)  # fmt: skip
HEARD_OF = replace(
    KILLED, cause=Cause.ELSEWHERE, rank=None, status=None, followers=(2, 3),
    explanation="node b was lost: it ended, or etcd heard nothing of it for 10 s; ranks 2 3", node=NodeId(""),
)  # fmt: skip


def fact(node: NodeId, incident: Incident | None = None, incarnation: int = 0) -> NodeFact:
    return node_fact(
        node=node, boot=BootId("1"), at_s=0, incarnation=incarnation, status=NodeStatus.JOINED,
        incident=incident,
    )  # fmt: skip


def answered(*facts: NodeFact, after: Plan = BEFORE) -> Plan:
    found = next_step(RULES, after, {one.node: one for one in facts}, 10)
    assert isinstance(found, PlanAdopted), found
    return found.plan


def test_the_plan_tells_every_node_what_each_of_them_knows() -> None:
    save, not_saved = Save(rank=2, step=7, path="x", took_s=0.1), Unsaved(rank=0, why="in a collective")
    found = answered(
        fact_with(fact(A, KILLED), alarm=1, unsaved=(not_saved,)), fact_with(fact(B, HEARD_OF), saves=(save,))
    )
    assert found.aftermath is not None
    assert found.aftermath.incident == replace(KILLED, followers=(0, 2, 3))
    assert (found.aftermath.saves, found.aftermath.unsaved) == ((save,), (not_saved,))


@pytest.mark.parametrize(
    ("seen", "before_that"),
    [
        (replace(HEARD_OF, followers=(0, 1)), ""),
        (
            replace(KILLED, fault_class=FaultClass.CONSEQUENCE, explanation="lost its peer"),
            "; before that: lost its peer",
        ),
    ],
    ids=["told by the alarm", "a survivor fell over it"],
)
def test_a_lost_node_is_the_incident_and_is_charged_to_nobody(seen: Incident, before_that: str) -> None:
    found = answered(fact(A, seen), fact(C, incarnation=-1))
    assert found.replaced == (Replacement(node=B, by=C, ranks=(2, 3)),)
    assert found.aftermath is not None
    incident = found.aftermath.incident
    assert (incident.cause, incident.rank, incident.node, incident.together) == (Cause.NODE, None, B, (2, 3))
    assert incident.explanation == f"{HEARD_OF.explanation}{before_that}"
    assert (found.ledger.restarts, found.ledger.incidents) == ((), 1)


@pytest.mark.parametrize(
    "seen", [HEARD_OF, replace(KILLED, fault_class=FaultClass.CONSEQUENCE, explanation="broken pipe")]
)
def test_a_lost_node_that_is_back_before_the_plan_is_the_incident_all_the_same(seen: Incident) -> None:
    plan = replace(BEFORE, boots=(BootId("1"), BootId("1")))
    facts = {A: fact(A, seen), B: replace(fact(B), boot=BootId("2"))}
    found = next_step(RULES, plan, facts, 10)
    assert isinstance(found, PlanAdopted)
    assert found.plan.aftermath is not None
    incident = found.plan.aftermath.incident
    assert (incident.cause, incident.node, incident.together) == (Cause.NODE, B, (2, 3))
    assert found.plan.ledger.restarts == ()


def test_a_fence_goes_before_what_followed_from_it_and_is_charged_to_nobody() -> None:
    fenced = replace(KILLED, cause=Cause.FENCE, rank=None, status=None, explanation="etcd has not answered")
    followed = replace(KILLED, fault_class=FaultClass.CONSEQUENCE, explanation="lost its peer", node=B)
    found = answered(fact(A, fenced), fact(B, followed))
    assert found.aftermath is not None
    assert (found.aftermath.incident.cause, found.ledger.restarts) == (Cause.FENCE, ())


def test_a_death_that_nobody_fakes_goes_before_a_silent_exit_whoever_raised_the_alarm() -> None:
    """Of the node that was killed, the supervisor may stand still while its peer's rank ends."""
    silent = replace(
        KILLED, cause=Cause.EXIT, rank=2, status=Exited(code=1), explanation="exited with code 1", node=B
    )
    found = answered(replace(fact(B, silent), alarm=1), replace(fact(A, KILLED), alarm=0))
    assert found.aftermath is not None
    assert found.aftermath.incident.node == A
    asked = replace(KILLED, cause=Cause.GROWTH, status=None, rank=None)
    found = answered(replace(fact(B, silent), alarm=1), replace(fact(A, asked), alarm=0))
    assert found.aftermath is not None
    assert (found.aftermath.incident.node, len(found.ledger.restarts)) == (B, 1), "nobody was killed"
    spoke = replace(silent, fault_class=FaultClass.RESOURCE)
    found = answered(replace(fact(B, spoke), alarm=1), replace(fact(A, KILLED), alarm=0))
    assert found.aftermath is not None
    assert found.aftermath.incident.node == B


def test_a_rank_that_fell_by_itself_stays_the_incident_although_a_node_is_lost_since() -> None:
    found = answered(fact(A, KILLED), fact(C, incarnation=-1))
    assert found.aftermath is not None
    assert found.aftermath.incident.cause is Cause.SIGNAL
    assert len(found.ledger.restarts) == 1


def test_an_incident_that_a_plan_has_answered_is_told_again_as_it_was_and_charged_once() -> None:
    """Who made that plan is lost, and the other supervisor has another name: it never heard of the answer."""
    first = answered(fact(A, KILLED), fact(B, HEARD_OF))
    told, boots = first.aftermath, (BootId("1"), BootId("1"))
    fenced = replace(fact(B, replace(HEARD_OF, cause=Cause.FENCE, explanation="cut off")), boot=BootId("2"))
    found = next_step(RULES, replace(first, boots=boots), {B: fenced, C: fact(C, incarnation=-1)}, 20)
    assert isinstance(found, PlanAdopted), found
    assert told is not None
    assert (found.plan.incarnation, found.plan.aftermath) == (
        first.incarnation + 1,
        replace(told, answer=answered_by(first)),
    )
    assert found.plan.ledger == first.ledger
    following = replace(KILLED, number=2, incarnation=found.plan.incarnation, node=B)
    later = replace(fact(B, following, found.plan.incarnation), boot=BootId("2"))
    again = next_step(RULES, found.plan, {B: later, C: fact(C, incarnation=found.plan.incarnation)}, 30)
    assert isinstance(again, PlanAdopted)
    assert again.plan.aftermath is not None
    assert (again.plan.aftermath.incident.number, again.plan.ledger.incidents) == (2, 2)


def test_who_comes_back_hears_how_the_others_went_on_then_and_not_how_they_do_now() -> None:
    """Its card of the incident is theirs, although another plan is the first that it hears of."""
    lost = replace(HEARD_OF, cause=Cause.NODE, node=B)
    first = answered(fact(A, lost), fact(C, incarnation=-1))
    assert first.replaced == (Replacement(node=B, by=C, ranks=(2, 3)),)
    back = replace(fact(B, replace(lost, cause=Cause.FENCE)), boot=BootId("2"))
    stopped = fact_with(fact(C, incarnation=1), status=NodeStatus.DRAINED, stop=StopSource.SIGTERM)
    facts = {A: fact(A, incarnation=1), B: back, C: stopped}
    found = next_step(RULES, replace(first, boots=(BootId("1"), BootId("1"))), facts, 90)
    assert isinstance(found, PlanAdopted), found
    assert found.plan.replaced == (Replacement(node=C, by=B, ranks=(2, 3)),)
    assert found.plan.aftermath is not None
    settings = RunSettings(policy=POLICY)
    cards = [
        agreed_card(plan, plan.aftermath, settings, 4)
        for plan in (first, found.plan)
        if plan.aftermath is not None
    ]
    assert cards[0] == cards[1]
    assert decode(encode(found.plan.aftermath), Aftermath) == found.plan.aftermath


def test_an_older_incident_than_the_last_is_not_told_again() -> None:
    first = answered(fact(A, KILLED), fact(B, HEARD_OF))
    later = replace(first, incarnation=5, ledger=replace(first.ledger, incidents=4), aftermath=None)
    stopped = fact_with(fact(A, incarnation=5), status=NodeStatus.DRAINED, stop=StopSource.SIGTERM)
    facts = {A: stopped, B: fact(B, incarnation=5), C: fact(C, KILLED)}
    found = next_step(RULES, later, facts, 90)
    assert isinstance(found, PlanAdopted)
    assert (found.plan.aftermath, found.plan.ledger) == (None, later.ledger)


@pytest.mark.parametrize("followed", [None, HEARD_OF, replace(KILLED, fault_class=FaultClass.CONSEQUENCE)])
def test_a_node_that_was_told_to_stop_is_no_incident_and_costs_no_budget(followed: Incident | None) -> None:
    stopped = fact_with(fact(B), status=NodeStatus.DRAINED, stop=StopSource.SIGTERM)
    found = answered(fact(A, followed), stopped, fact(C, incarnation=-1))
    assert (found.reason, found.aftermath, found.ledger) == (Reason.CONTINUED, None, BEFORE.ledger)
    assert found.replaced == (Replacement(node=B, by=C, ranks=(2, 3)),)


def test_whoever_has_not_heard_yet_that_a_node_was_told_to_stop_hears_that_it_is_a_stop() -> None:
    running = fact_with(fact(A), status=NodeStatus.RUNNING)
    over = next_step(RULES, BEFORE, {A: running, B: replace(fact(B), stop=StopSource.SIGINT)}, 10)
    assert isinstance(over, IncarnationOver)
    assert (over.why, over.stop) == ("node b was told to stop", StopSource.SIGINT)


def test_a_plan_of_an_older_journal_has_neither_and_is_read() -> None:
    written = encode(answered(fact(A, KILLED), fact(B, HEARD_OF)))
    assert decode(written, Plan).aftermath is not None
    for word in ("aftermath", "replaced"):
        del written[word]
    assert (decode(written, Plan).aftermath, decode(written, Plan).replaced) == (None, ())


def test_of_two_hangs_the_one_that_was_found_stuck_is_told_and_not_the_one_that_waited_for_it() -> None:
    waits = replace(
        KILLED, cause=Cause.HANG, status=None, fault_class=FaultClass.CONSEQUENCE, explanation="waits"
    )
    stuck = replace(waits, rank=2, node=B, fault_class=FaultClass.TRANSIENT, explanation="is stuck")
    told = answered(replace(fact(A, waits), alarm=1), fact(B, stuck)).aftermath
    assert told is not None
    assert (told.incident.rank, told.incident.node) == (2, B)


def test_a_node_whose_ranks_all_wait_tells_of_a_consequence() -> None:
    hang = HangDetected(
        at_s=9, incarnation=0, rank=0, step=None, doing=WorkPhase.UNKNOWN, stance=Activity.WAITING,
        silent_s=9, why="waits", where="", folder="", stacks=(), limit_s=5,
    )  # fmt: skip
    alone = in_phase(Phase.RUNNING, 4)
    assert hang_incident(alone, hang).fault_class is FaultClass.TRANSIENT
    of_several = replace(alone, life=replace(alone.life, topology=SEATS))
    assert hang_incident(of_several, hang).fault_class is FaultClass.CONSEQUENCE
    stuck = replace(hang, stance=Activity.UNINTERRUPTIBLE)
    assert hang_incident(of_several, stuck).fault_class is FaultClass.TRANSIENT


def test_ranks_of_a_node_are_named_by_the_first_and_the_last_however_many_they_are() -> None:
    assert rank_names(range(4)) == "ranks 0 1 2 3"
    assert rank_names(range(8, 5_859_498_047)) == "ranks 8-5859498046"
    assert rank_names((*range(18), *range(19, 30))) == "ranks 0-17 19-29"


INSIDE, OTHER = "/ck/5/model.pt", "/ck/best.pt"


def save(*files: str, number: int | None = None) -> SeenSave:
    return SeenSave(files=files, number=number)


def seen(*saves: SeenSave) -> SavesSeen:
    return SavesSeen(saves=saves)


@pytest.mark.parametrize(
    ("before", "one", "other", "together"),
    [
        (
            seen(),
            seen(save("m-10", number=10), save("m-20", number=20)),
            seen(save("o-10", number=10)),  # it is a save behind
            seen(save("m-10", "o-10", number=10), save("m-20", number=20)),
        ),
        (seen(), seen(save("m")), seen(save("o"), save("o")), seen(save("o"), save("m", "o"))),
        (  # who wrote the rest was lost
            seen(save("m-20", "o-20", number=20)),
            seen(save("m-20", number=20), save("m-30", number=30)),
            seen(),
            seen(save("m-20", "o-20", number=20), save("m-30", number=30)),
        ),
        (seen(save("m", "o")), seen(save("m")), seen(), seen(save("m", "o"))),
        (seen(save("m-10", number=10)), seen(), seen(), seen(save("m-10", number=10))),
    ],
)  # fmt: skip
def test_files_of_one_save_are_together_whichever_node_wrote_them(
    before: SavesSeen, one: SavesSeen, other: SavesSeen, together: SavesSeen
) -> None:
    facts = [fact_with(fact(A), seen=one), fact_with(fact(B), seen=other)]
    assert joint_saves(before, facts) == together
    plan = answered(*facts, after=replace(BEFORE, seen=before))
    assert plan.seen == together
    assert decode(encode(plan), Plan) == plan


@pytest.mark.parametrize("name", ["x" * 200, '"' * 200, "训练" * 100, "\udc80" * 200, "x" * 5000])
def test_of_long_names_the_oldest_saves_go_first_and_then_files(name: str) -> None:
    def long(step: int) -> SeenSave:
        return save(*(f"/ck/{at:02}_{step}_{name}.pt" for at in range(24)), number=step)

    told = as_told(seen(*map(long, (10, 20, 30, 40))))
    assert len(json.dumps(encode(told))) <= 4096
    assert [one.number for one in told.saves] == ([] if len(name) > 1000 else [30, 40])
    assert joint_saves(told, []) == told
    short = seen(save("a", number=1), save("a", number=2), save("a", number=3))
    assert as_told(short) == short


@pytest.mark.parametrize(
    ("on_a", "on_b", "accused"),
    [
        ((), (INSIDE,), True),
        ((INSIDE,), None, True),
        ((OTHER,), (), False),
        ((), (), False),
        ((OTHER,), None, True),  # perhaps b has
        (None, (), True),
    ],
)
def test_a_checkpoint_is_charged_unless_no_node_has_opened_it(
    on_a: tuple[str, ...] | None, on_b: tuple[str, ...] | None, accused: bool
) -> None:
    killed, heard = replace(KILLED, opened=on_a), replace(HEARD_OF, opened=on_b)
    after = replace(BEFORE, point=replace(checkpoint(5, "/ck/5"), files=()))
    plan = answered(fact(A, killed), fact(B, heard), after=after)
    assert bool(plan.ledger.attempts) == accused
    assert plan.aftermath is not None
    told = plan.aftermath.incident.opened
    assert (told is None) == (None in (on_a, on_b) and INSIDE not in (*(on_a or ()), *(on_b or ())))
