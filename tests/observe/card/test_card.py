"""The first-failure card, compared with what a person last agreed to read."""

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faultrun.model.events import Event, PlanAdopted, RunFinished
from faultrun.model.exits import Exited, Signaled
from faultrun.model.incident import Aftermath, Card, Cause, Incident, Save, Unsaved
from faultrun.model.line_tone import Tone
from faultrun.model.observed.agreement import LookAgain, OwnNodeAside
from faultrun.model.observed.elastic import NodeAside, SlotLedger, Vacant
from faultrun.model.observed.evidence import Finding, Raised, Signature
from faultrun.model.observed.recovery import Began, ResumeChecked
from faultrun.model.plan import Reason
from faultrun.model.run import Drain, Phase, Step
from faultrun.model.topology import NodeId, NodeSlots, Replacement, Topology
from faultrun.observe.card.card import duration, in_colours, lost_steps, render
from faultrun.observe.console.reporters import ConsoleReporter
from support.places import DOCS, GOLDEN
from support.stories.specs import a_spec
from support.stories.story import SIGKILL, checkpoint, first_plan, in_phase

KILLED = Incident(
    number=1,
    incarnation=0,
    at_s=100,
    cause=Cause.SIGNAL,
    rank=3,
    status=Signaled(signum=SIGKILL),
    followers=(0, 1, 2),
    step=1215,
    epoch=2,
    explanation="killed by SIGKILL",
    last_line="loss 0.123",
)
CARD = Card(
    incident=KILLED,
    world_size=4,
    saves=tuple(Save(rank=rank, step=1215, path="", took_s=0.4, verified=True) for rank in (2, 0, 1)),
    point=checkpoint(1215, "checkpoints/rank_0/net-2_1215_breakpoint.ckpt"),
    refused=2,
    restart=(1, 3),
    window_s=3600,
    trained_after_s=2.1,
    log_name="worker_3.log",
    at_local="2026-11-22 21:30:05.123+01:00",
    host="node7",
)
FROM_LOG = replace(KILLED, step_from_log=True, epoch=None)


def checked(step: int, began: Began = Began.AS_CHOSEN) -> ResumeChecked:
    why = "training again at step 1216, as chosen"
    if began is Began.ELSEWHERE:
        why = f"the script began at step {step} although step 1215 was handed over: does it act on --resume?"
    return ResumeChecked(at_s=9, incarnation=1, began=began, why=why, step=step, chosen_step=1215)


SLOW = "the save did not finish within the window"
FULL = "[Errno 28] No space left on device\nand a second line"

CARDS = {
    "killed": CARD,
    "two_at_once": replace(
        CARD, incident=replace(KILLED, rank=1, together=(2,), followers=(0, 3)), trained_after_s=None
    ),
    "hung": replace(
        CARD,
        incident=replace(
            KILLED, cause=Cause.HANG, status=None, explanation="sleeps (state S)", own_step=1186, epoch=None
        ),
    ),
    "returned": replace(
        CARD,
        incident=replace(
            FROM_LOG,
            cause=Cause.EXIT,
            status=Exited(code=137),
            explanation="exited with code 137",
            followers=(),
        ),
        saves=(),
        point=checkpoint(1200),
        refused=0,
        trained_after_s=None,
        backoff_s=2.5,
    ),
    "from_nothing": replace(
        CARD, incident=replace(KILLED, number=12), saves=(), point=None, refused=0, trained_after_s=None,
        restarted_after_s=0.081, looked_in=("ckpt", "/nfs/ckpt"),
    ),
    "given_up": replace(
        CARD, restart=None, point=None, refused=0, why="3 of 3 restarts within 1 h are used up"
    ),
    "scheduler": replace(
        CARD,
        incident=replace(
            KILLED,
            cause=Cause.SCHEDULER,
            rank=None,
            explanation="scheduler (pid 99) killed by SIGKILL while it was needed",
            last_line="",
        ),
    ),
    "node_lost": replace(
        CARD,
        incident=replace(
            KILLED, cause=Cause.NODE, rank=None, status=None, node=NodeId("na"), epoch=None, last_line="",
            explanation="node na was lost: it ended, or etcd heard nothing of it for 10 s; ranks 0 1",
            together=(0, 1), followers=(2, 3), finding=None, raised=None,
        ),
        saves=CARD.saves[:1],
        refused=0,
        host="na", at_local="2026-11-22 20:30:05.123+00:00", trained_after_s=None,
        replaced=(Replacement(node=NodeId("na"), by=NodeId("nc"), ranks=(0, 1)),),
    ),
    "scheduler_of_a_node": replace(
        CARD,
        incident=replace(
            KILLED, cause=Cause.SCHEDULER, rank=None, status=Signaled(signum=9), node=NodeId("na"),
            last_line="", explanation="scheduler of node na (pid 7) killed by SIGKILL while it was needed",
            followers=(0, 1, 2, 3), finding=None, raised=None, at_utc="2026-11-22 20:30:05.123+00:00",
        ),
        host="na", at_local="2026-11-22 20:30:05.123+00:00", trained_after_s=None, refused=0,
    ),
    "never_started": replace(
        CARD,
        incident=replace(
            KILLED, cause=Cause.SPAWN, status=None, step=None, epoch=None, followers=(),
            explanation="could not start train: No such file or directory", last_line="",
        ),
        saves=(), point=None, refused=0, restart=None, why="could not start train: No such file or directory",
    ),
    "not_saved": replace(
        CARD, saves=(), point=checkpoint(1200), refused=0,
        unsaved=tuple(Unsaved(rank=rank, why=why) for rank, why in ((0, SLOW), (1, FULL), (2, SLOW))),
    ),
    "shards_lost": replace(
        CARD, saves=tuple(replace(save, group=(save.rank,)) for save in CARD.saves), point=checkpoint(1200),
    ),
    "not_all_saved": replace(CARD, saves=CARD.saves[:1], unsaved=(Unsaved(rank=1, why=FULL),)),
    "many_ranks": replace(
        CARD, incident=replace(KILLED, rank=18, followers=(*range(18), *range(19, 512))), world_size=512,
        saves=(),
    ),
    "proved": replace(CARD, checked=checked(1216), refunded=2),
    "began_elsewhere": replace(CARD, checked=checked(1, Began.ELSEWHERE)),
    "nobody_told": replace(CARD, handed_over=False, trained_after_s=None),
    "by_itself": replace(CARD, handed_over=False, checked=checked(1216)),
    "own_snapshot": replace(
        CARD,
        point=None,
        incident=replace(KILLED, step=None, epoch=3, in_epoch=7, step_from_log=True),
        checked=ResumeChecked(
            at_s=9, incarnation=1, began=Began.ELSEWHERE, epoch=3, by_log=True,
            why="training from epoch 3 by its log; the script resumed by itself",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CARDS)
def test_the_card_is_the_agreed_one(name: str) -> None:
    assert render(CARDS[name]) + "\n" == (GOLDEN / f"card_{name}.txt").read_text()


@pytest.mark.parametrize("name", CARDS)
def test_a_card_fits_on_a_screen_and_every_row_has_its_name(name: str) -> None:
    first, *rows = render(CARDS[name]).splitlines()
    assert first.startswith("incident ")
    assert len(rows) <= 6
    known = ("when", "cause", "last log", "saved", "place", "resume", "restart")
    assert all(row.startswith("  ") and row[2:11].strip() in known for row in rows)


def test_the_colours_of_a_card_tell_what_failed_what_goes_on_and_what_is_lost() -> None:
    tones = {line.split()[0]: tone for line, tone in zip(*said("killed"), strict=True)}
    assert tones == {
        "incident": Tone.FAILED, "when": Tone.QUIET, "cause": Tone.PLAIN, "last": Tone.QUIET,
        "saved": Tone.PLAIN, "resume": Tone.GOOD, "restart": Tone.GOOD,
    }  # fmt: skip
    assert said("given_up")[1][-1] is Tone.FAILED
    lines, lost = said("from_nothing")
    assert [line.split()[0] for line, tone in zip(lines, lost, strict=True) if tone is Tone.WARNING] == [
        "resume"
    ]


def said(name: str) -> tuple[list[str], tuple[Tone, ...]]:
    card = in_colours(render(CARDS[name]))
    return card.splitlines(), card.tones


def test_lost_steps_are_counted_only_when_both_ends_are_known() -> None:
    assert lost_steps(CARD) == 0
    assert lost_steps(replace(CARD, point=checkpoint(1200))) == 15
    assert lost_steps(replace(CARD, point=None)) == 1215
    assert lost_steps(replace(CARD, point=checkpoint(1216))) == 0
    by_log = replace(CARD, incident=replace(KILLED, step_from_log=True))
    assert lost_steps(replace(by_log, point=checkpoint(1216))) is None
    assert lost_steps(replace(by_log, point=checkpoint(1200))) is None
    again = replace(by_log, point=checkpoint(1200), checked=replace(checked(1200), by_log=True, epoch=2))
    assert lost_steps(again) == 16
    assert lost_steps(replace(again, incident=replace(again.incident, step_every=10))) is None
    assert lost_steps(replace(CARD, point=replace(checkpoint(1), global_step=None))) is None
    assert lost_steps(replace(CARD, incident=replace(KILLED, step=None))) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3600, "1h"), (5400, "90m"), (90, "90s"), (0.25, "250ms"), (1.5, "1.5s"), (0, "0ms")],
)
def test_durations_are_written_as_the_options_accept_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_recovery_point_that_nobody_could_verify_is_called_so() -> None:
    trusted = replace(CARD, point=replace(checkpoint(1200), unverified=True))
    assert "step 1200, lost 15 steps, unverified (--trust)" in render(trusted)


B, WHY = NodeId("b"), "its ranks failed 2 times in a row while others worked"
FELL = Incident(
    number=2,
    incarnation=1,
    at_s=5.0,
    cause=Cause.EXIT,
    rank=1,
    status=Exited(code=3),
    node=B,
    at_utc="2026-11-23 21:00:00+00:00",
)
PLAN = first_plan(
    1,
    incarnation=2,
    topology=Topology(nodes=(NodeSlots(node=NodeId("a"), slots=1),)),
    reason=Reason.FAULT,
    aftermath=Aftermath(incident=FELL, world_size=2),
    slots=SlotLedger(
        vacant=(Vacant(seat=1, node=B, incarnation=2, why=WHY),),
        nodes=(NodeAside(node=B, incarnation=2, why=WHY),),
    ),
)


def card(folder: Path, *events: Event) -> str:
    """What a reporter leaves in the folder of a node that hears this in a row."""
    folder.mkdir()
    reporter = ConsoleReporter(a_spec(workers=1), folder, lambda _: None)
    state = in_phase(Phase.AWAITING_PLAN, 1)
    state = replace(state, life=replace(state.life, drain=Drain(incident=FELL)))
    for event in (LookAgain(at_s=5, incarnation=1, number=1), *events):
        run = replace(state.run, plan=PLAN) if isinstance(event, PlanAdopted) else state.run
        reporter.tell(event, Step(state=replace(state, run=run), why=""))
    return (folder / "incident_2.txt").read_text()


def test_it_is_the_text_that_the_others_have_and_says_why_and_what_is_waited_for(tmp_path: Path) -> None:
    own = OwnNodeAside(at_s=6, incarnation=1, why=WHY, plan=PLAN)
    others = card(tmp_path / "a", PlanAdopted(at_s=6, incarnation=2, plan=PLAN))
    assert card(tmp_path / "b", own) == others
    until = "it gets no rank until its --health_check passes"
    assert f"\n  workers   1 of 2 nodes, without node b: {WHY}; {until}\n" in others
    end = RunFinished(at_s=9, incarnation=1, exit_code=143, why="stopped by SIGTERM", stopped=True)
    assert card(tmp_path / "late", own, end) == others, "how the run ended is no word on this incident"


PAGE = (DOCS / "when-a-run-fails.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [Card, Incident, Save, Unsaved, Finding, Raised, Signature])
def test_every_key_is_documented(value: Any) -> None:
    missing = [field.name for field in dataclasses.fields(value) if f"`{field.name}`" not in PAGE]
    assert missing == []


def test_every_cause_of_today_is_documented() -> None:
    assert [cause.value for cause in Cause if f"`{cause.value}`" not in PAGE] == []
