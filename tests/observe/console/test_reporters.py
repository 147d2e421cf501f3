"""What a person reads on stderr and finds in the log_dir."""

import json
import os
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from faultrun.core.plan.joint_incident import answered_by
from faultrun.core.recovery.resume_verdict import check
from faultrun.model.checkpoint import OnNode, RankFile, Refusal
from faultrun.model.events import ConfigRewritten, FirstStep, PlanAdopted, RecoveryPointChosen, Timer
from faultrun.model.exits import Exited
from faultrun.model.incident import Aftermath
from faultrun.model.observed.dying_gasp import GaspRequested
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.mindspore_rendezvous import RankMissed
from faultrun.model.observed.recovery import FirstStepLogged, RecoveryTimed
from faultrun.model.observed.rejoin import RankCanRejoin
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.plan import Reason
from faultrun.model.run import Phase
from faultrun.model.spec.run_spec import Recovery, RunSpec
from faultrun.model.spec.windows import Deadline
from faultrun.model.stop import StopSource
from faultrun.model.topology import NodeId, NodeSlots, Topology
from faultrun.observe.card.card_keeper import CardKeeper
from faultrun.observe.console.reporters import ConsoleReporter
from support.places import GOLDEN
from support.stories.specs import a_spec
from support.stories.story import NODE, POLICY, SIGTERM, STAYING, Story, checkpoint, first_plan, rule
from support.stories.survivors import training

NOW = datetime(2026, 11, 22, 21, 30, 5, 123_000, timezone(timedelta(hours=1)))


def told(story: Story, log_dir: Path, spec: RunSpec | None = None) -> tuple[list[str], ConsoleReporter]:
    """What the reporter says to the whole story."""
    lines: list[str] = []
    reporter = ConsoleReporter(spec or a_spec(workers=3), log_dir, lines.append, lambda: NOW)
    for event, step in story.steps:
        reporter.tell(event, step)
    return [line.replace(str(log_dir), "LOG_DIR") for line in lines], reporter


def recovered() -> Story:
    """Rank 1 is killed at step 1215, ranks 0 and 2 save; training goes on from the periodic checkpoint."""
    story = Story(3).begins().all_run().reported(r0=1214, r1=1215, r2=1215).killed(1, after_s=100)
    story.tell(GaspRequested(at_s=100, incarnation=0, ranks=(0, 2), deadline=Deadline(at_s=130), took_s=0))
    story.saved(0, 1215).read_back(0).killed(0, SIGTERM, after_s=0.4).killed(2, SIGTERM)
    story.drained(DeathNote(rank=1, last_line="loss 0.25"))
    story.tell(
        RecoveryPointChosen(
            at_s=story.now_s,
            incarnation=0,
            point=checkpoint(1200),
            refused=(Refusal(path="x", global_step=1210, why="torn"),),
        )
    )
    story.tell(
        ConfigRewritten(
            at_s=story.now_s, incarnation=1, file="c.yaml", key="pre_trained", before="", after="net.ckpt"
        )
    )
    story.prepared().all_run(after_s=0.5)
    first = FirstStep(at_s=102.1, incarnation=1, step=1201, began=1201)
    story.tell(first).tell(check(first, checkpoint(1200), Recovery(script_asks=True), None))
    return story.tell(RecoveryTimed(at_s=102.1, incarnation=1, total_s=2.1, first_step_s=1.2))


def test_a_recovery_reads_as_agreed(tmp_path: Path) -> None:
    story = recovered()
    for rank in range(3):
        story.returned(rank)
    lines, _ = told(story.drained(), tmp_path)
    assert "".join(f"{line}\n" for line in lines) == (GOLDEN / "narrated_recovery.txt").read_text()


def test_the_card_is_kept_as_text_and_as_json_and_learns_how_long_the_recovery_took(tmp_path: Path) -> None:
    told(recovered(), tmp_path)
    text = (tmp_path / "incident_1.txt").read_text()
    assert text.startswith("incident 1  rank 1 of 3 killed by SIGKILL at step 1215 (epoch 2)")
    assert text.endswith("restart   training again after 2.1 s; 2 of 3 left this hour\n")
    assert "step 1200, lost 15 steps; training again at step 1201, as chosen" in text
    card = json.loads((tmp_path / "incident_1.json").read_text())
    assert (card["incident"]["rank"], card["incident"]["status"]["signum"]) == (1, 9)
    assert (card["trained_after_s"], card["refused"]) == (pytest.approx(2.1), 1)


def test_a_script_that_begins_elsewhere_is_said_to_on_the_console_and_on_the_card(tmp_path: Path) -> None:
    story = recovered()
    story.steps = story.steps[:-3]
    first = FirstStepLogged(at_s=102.1, incarnation=1, rank=0, step=1)
    story.tell(first).tell(
        check(first, checkpoint(1200), Recovery(resume_args=("--resume={checkpoint}",)), None)
    )
    story.tell(RecoveryTimed(at_s=102.1, incarnation=1, total_s=2.1, first_step_s=1.2))
    lines, _ = told(story, tmp_path)
    why = (
        "the script began at step 1 by its log although step 1200 was handed over: "
        "does it act on --resume={checkpoint}?"
    )
    assert lines[-2:] == [why, "training again 2.1 s after the failure (step 1 by its log)"]
    assert f"resume    {why}; lost 1215 steps" in (tmp_path / "incident_1.txt").read_text()


def test_a_supervisor_that_takes_up_a_stopped_recovery_says_that_training_goes_on(tmp_path: Path) -> None:
    story = Story(2).begins().reported(r0=1215, r1=1215).killed(1).told_to_stop().killed(0, SIGTERM).drained()
    story.steps.clear()
    story.starts().chose(checkpoint(1200)).prepared().all_run()
    first = FirstStep(at_s=story.now_s, incarnation=1, step=1201, began=1201)
    story.tell(first).tell(check(first, checkpoint(1200), Recovery(script_asks=True), None))
    lines, _ = told(story, tmp_path)
    assert lines[-1] == "training again at step 1201, as chosen"


def test_a_second_fault_after_progress_says_that_the_restart_before_was_given_back(tmp_path: Path) -> None:
    story = Story(1).begins().reported(r0=5).killed(0, after_s=5).recovers(checkpoint(4))
    story.reported(r0=9).killed(0, after_s=5).drained().chose(checkpoint(8))
    told(story, tmp_path)
    assert "restart   restarting now; 2 of 3 left this hour" in (tmp_path / "incident_1.txt").read_text()
    again = (tmp_path / "incident_2.txt").read_text()
    assert "restart   restarting now; 2 of 3 left this hour (1 earlier one given back for progress)" in again


def test_a_card_tells_what_the_run_resumes_from_although_this_node_had_seen_nothing(tmp_path: Path) -> None:
    story = Story(1).begins().reported(r0=5).killed(0, after_s=5).drained().chose(None)
    state = next(step.state for _, step in story.steps[::-1] if step.state.phase is Phase.AWAITING_PLAN)
    plan = first_plan(1, incarnation=1, reason=Reason.FAULT, point=checkpoint(4, "/ckpt/of_another-4.ckpt"))
    said: list[str] = []
    CardKeeper(a_spec(workers=1), tmp_path, said.append, lambda: NOW).restarting(state, (), plan, 5.0)
    text = (tmp_path / "incident_1.txt").read_text()
    assert "/ckpt/of_another-4.ckpt" in text
    assert "from the beginning" not in text


def test_whoever_knows_how_an_incident_was_answered_is_not_told_again_and_others_are(tmp_path: Path) -> None:
    story = Story(1).begins().reported(r0=5).killed(0, after_s=5).drained().chose(None)
    state = next(step.state for _, step in story.steps[::-1] if step.state.phase is Phase.AWAITING_PLAN)
    assert state.life.incident is not None
    told_first = Aftermath(incident=state.life.incident)
    first = first_plan(2, incarnation=1, reason=Reason.FAULT, point=checkpoint(4), aftermath=told_first)
    told_again = replace(told_first, answer=answered_by(first))
    later = first_plan(2, incarnation=2, reason=Reason.CONTINUED, point=checkpoint(9), aftermath=told_again)
    texts = []
    for name, plans in (("who was there", (first, later)), ("who came back", (later,))):
        said: list[str] = []
        folder = tmp_path / name
        folder.mkdir()
        keeper = CardKeeper(a_spec(workers=1), folder, said.append, lambda: NOW)
        for plan in plans:
            assert plan.aftermath is not None
            keeper.agreed(plan, plan.aftermath, state, 5.0)
        assert len(said) == 1
        texts.append((folder / "incident_1.txt").read_text())
    assert texts[0] == texts[1]
    assert "step 4" in texts[0]


def test_the_card_of_a_run_that_had_ended_stays_as_it_was_however_the_next_start_ends(tmp_path: Path) -> None:
    story = Story(1).begins().reported(r0=5).killed(0, after_s=5).drained().chose(None)
    state = next(step.state for _, step in story.steps[::-1] if step.state.phase is Phase.AWAITING_PLAN)
    assert state.life.incident is not None
    ended = Aftermath(incident=state.life.incident)
    texts = []
    for why in ("the same failure 3 times", "stopped by SIGTERM"):
        said: list[str] = []
        CardKeeper(a_spec(workers=1), tmp_path, said.append, lambda: NOW).agreed_end(ended, state, why)
        texts.append((tmp_path / "incident_1.txt").read_text())
    assert said == []
    assert texts[0] == texts[1]
    assert "none: the same failure 3 times" in texts[0]


@pytest.mark.parametrize("how", ["back", "given up", "told by the next supervisor"])
def test_every_card_that_says_who_is_missing_says_how_that_ended(how: str, tmp_path: Path) -> None:
    story = Story(4, POLICY, replace(STAYING, trains_from=2)).begins(checkpoint(30)).all_run()
    story.reported(r0=41, r1=41, r2=41, r3=41)
    living = [0, 1, 2, 3]
    for dead in (1, 3):
        for rank in living:
            story.now(RankCanRejoin, rank=rank, trains_on="")
        living.remove(dead)
        story.killed(dead, after_s=5).examined().all_run().rejoined(*living).now(FirstStep, step=45 + dead)
    for rank in living:
        story.now(RankCanRejoin, rank=rank, trains_on="")
    if how == "back":
        for rank in (1, 3):
            story.now(StandbyChanged, rank=rank, state=StandbyPhase.PARKED)
        story.rang(Timer.HEAL).now(RankCanRejoin, after_s=5, rank=0, trains_on="", waits=True)
        story.all_run().rejoined(0, 1, 2, 3)
    elif how == "given up":
        story.killed(0, after_s=5).killed(2).drained().chose(checkpoint(30))
    told(story, tmp_path)
    if how == "told by the next supervisor":
        assert "rank 1 is missing" in (tmp_path / "incident_1.txt").read_text()
        told(Story(4).begins(checkpoint(30)), tmp_path)
    cards = [(tmp_path / f"incident_{number}.txt").read_text() for number in (1, 2)]
    ends = ("rank 1 for 10 s, in which", "ranks 1 3 for 5 s, in which") if how == "back" else ()
    for card, end in zip(cards, ends or ("rank 1, which did not", "ranks 1 3, which did not"), strict=True):
        assert end in card


def test_who_reads_a_card_while_it_is_written_anew_reads_a_whole_one(tmp_path: Path) -> None:
    told(recovered(), tmp_path)
    with (tmp_path / "incident_1.json").open() as earlier:
        told(recovered(), tmp_path)
        assert json.load(earlier)["incident"]["rank"] == 1
        assert os.fstat(earlier.fileno()).st_nlink == 0


def test_a_run_that_goes_well_is_told_in_three_lines(tmp_path: Path) -> None:
    story = Story(3).begins().all_run()
    for rank in range(3):
        story.returned(rank)
    lines, reporter = told(story.drained(), tmp_path)
    assert lines == [
        "run calm-heron-3f7a: 3 workers of train.py; logs in LOG_DIR (--tee=3 shows them here)",
        "incarnation 0: 3 workers running, port 29500",
        "every rank finished; exit code 0, 0 restarts",
    ]
    assert reporter.outcome is not None
    assert (reporter.outcome.line, reporter.outcome.exit_code) == (lines[-1], 0)


def test_giving_up_shows_the_card_with_the_reason(tmp_path: Path) -> None:
    story = Story(3, rule(max_restarts=0)).begins().returned(2, 7).killed(0, SIGTERM).killed(1, SIGTERM)
    lines, _ = told(story.drained().chose(), tmp_path)
    card = (tmp_path / "incident_1.txt").read_text()
    assert card.startswith(
        "incident 1  rank 2 of 3 exited with code 7   failed first; ranks 0 1 stopped because of it"
    )
    assert "restart   none: restarts are turned off (--max_restarts=0)" in card
    assert lines[-1] == "restarts are turned off (--max_restarts=0); exit code 7, 0 restarts"


def test_a_stop_says_whether_anything_was_saved(tmp_path: Path) -> None:
    unsaved = Story(2).begins().told_to_stop(StopSource.SIGINT).killed(0, SIGTERM).killed(1, SIGTERM)
    lines, _ = told(unsaved.drained(), tmp_path)
    assert lines[-2:] == [
        "told to stop by SIGINT",
        "stopped by SIGINT; no save was reported; exit code 130, 0 restarts",
    ]
    resumed = (
        Story(2).begins(checkpoint(7)).reported(r0=7).told_to_stop().killed(0, SIGTERM).killed(1, SIGTERM)
    )
    lines, _ = told(resumed.drained(), tmp_path)
    assert lines[-1] == (
        "stopped by SIGTERM; nothing new to save; the same command continues from step 7; "
        "exit code 143, 0 restarts"
    )
    saved = Story(2).begins().told_to_stop().saved(0, 7).returned(0, 143).returned(1, 143)
    lines, _ = told(saved.read_back(0).drained(), tmp_path)
    assert lines[-1] == "stopped by SIGTERM; saved step 7; exit code 143, 0 restarts"
    slow = Story(2).begins().told_to_stop().saved(0, 7).returned(0, 143).returned(1, 143)
    lines, _ = told(slow.drained().rang(Timer.GRACE), tmp_path)
    assert lines[-1] == "stopped by SIGTERM; saved step 7, not read back; exit code 143, 0 restarts"


def test_an_incident_is_not_forgotten_because_a_stop_came_while_it_was_handled(tmp_path: Path) -> None:
    story = Story(3).begins().killed(1).told_to_stop().killed(0, SIGTERM).killed(2, SIGTERM).drained()
    told(story, tmp_path)
    card = (tmp_path / "incident_1.txt").read_text()
    assert card.startswith("incident 1  rank 1 of 3 killed by SIGKILL")
    assert "restart   none: stopped by SIGTERM" in card


def test_a_supervisor_that_takes_over_in_the_middle_of_an_incident_shows_its_card(tmp_path: Path) -> None:
    story = Story(3).begins().killed(1)
    before = len(story.steps)
    story.starts().chose().prepared().all_run()
    taken_over = Story(3)
    taken_over.steps = story.steps[before:]
    told(taken_over, tmp_path)
    assert (tmp_path / "incident_1.txt").read_text().startswith("incident 1  rank 1 of 3 killed by SIGKILL")


def test_checkpoints_that_were_left_alone_are_mentioned(tmp_path: Path) -> None:
    story = Story(2).starts()
    story.tell(RecoveryPointChosen(at_s=0, incarnation=-1, point=None, refused=(), left_alone=4))
    lines, _ = told(story, tmp_path)
    assert lines[1].startswith("starting from the beginning; 4 checkpoints found and left alone")
    seats = Topology(nodes=(NodeSlots(node=NodeId("a"), slots=1), NodeSlots(node=NodeId("b"), slots=1)))
    lines, _ = told(story, tmp_path, replace(a_spec(workers=1), topology=seats))
    assert lines[1].startswith("4 checkpoints found"), "where others train already it begins where they are"


def test_what_lies_there_in_no_known_format_is_said_once(tmp_path: Path) -> None:
    story = Story(2).starts()
    for _ in range(2):
        story.tell(
            RecoveryPointChosen(
                at_s=0, incarnation=-1, point=None, refused=(), unknown_files="a file, x.bin, lies"
            )
        )
    lines, _ = told(story, tmp_path)
    assert [line for line in lines if "x.bin" in line] == ["no checkpoint found; a file, x.bin, lies"]


def test_resuming_says_from_where(tmp_path: Path) -> None:
    lines, _ = told(Story(2).starts().chose(checkpoint(7)), tmp_path)
    assert lines[1] == "resuming from ckpt/net-7.ckpt (step 7)"


def test_resuming_says_why_it_is_not_from_a_newer_file(tmp_path: Path) -> None:
    torn = tuple(Refusal(path=f"ckpt/{step}", global_step=step, why="is empty") for step in (6, 8, 9))
    story = Story(2).starts()
    story.tell(RecoveryPointChosen(at_s=0, incarnation=-1, point=checkpoint(7), refused=torn))
    lines, _ = told(story, tmp_path)
    newest = "resuming from ckpt/net-7.ckpt (step 7), not from ckpt/9: is empty"
    assert lines[1] == f"{newest}; 2 newer are refused (faultrun ckpt list --why)"


def test_resuming_names_the_file_on_the_disk_of_this_node(tmp_path: Path) -> None:
    seats = Topology(nodes=(NodeSlots(node=NODE, slots=1), NodeSlots(node=NodeId("b"), slots=1)))
    files = (RankFile(rank=0, path=f"/{NODE}/net-7.ckpt"), RankFile(rank=1, path="/b/net-7.ckpt"))
    point = replace(checkpoint(7), path=f"/{NODE}/net-7.ckpt", files=files, source=OnNode(node=NODE))
    plan = replace(first_plan(2, topology=seats), point=point)
    story = Story(2).starts()
    story.answers_wait = True
    story.chose(point).tell(PlanAdopted(at_s=0, incarnation=0, plan=plan))
    for node in seats.nodes:
        lines, _ = told(story, tmp_path, replace(a_spec(workers=1), node=node.node))
        assert f"resuming from /{node.node}/net-7.ckpt (step 7)" in lines


def test_only_the_first_of_many_deaths_gets_a_line_of_its_own(tmp_path: Path) -> None:
    story = Story(3).begins().killed(1).killed(0, SIGTERM).returned(2, 143)
    lines, _ = told(story, tmp_path)
    assert lines[1:] == ["rank 1 (pid 101) killed by SIGKILL"]


def test_who_left_before_the_others_met_it_is_said_before_they_are_asked_to_leave(tmp_path: Path) -> None:
    story = Story(3).begins().returned(0, 0)
    story.tell(RankMissed(at_s=story.now_s, incarnation=0, rank=0))
    lines, _ = told(story, tmp_path)
    assert lines[-1] == "rank 0 left with exit code 0 while the others waited to meet it"


def test_the_scheduler_and_an_unborn_rank_are_named(tmp_path: Path) -> None:
    lines, _ = told(Story(2).begins().scheduler_ended(Exited(code=2)), tmp_path)
    assert lines[-1] == "scheduler (pid 99) exited with code 2"
    lines, _ = told(Story(2).begins().never_started(0, 2, "could not start it: no such file"), tmp_path)
    assert lines[-1] == "rank 0: could not start it: no such file"


def test_a_name_that_is_no_utf8_and_a_disk_that_is_full_do_not_reach_the_loop(tmp_path: Path) -> None:
    story = Story(1).begins().killed(0)
    story.drained(DeathNote(rank=0, last_line="lone \udc80 byte")).chose(checkpoint(5, "ck\udcff/5.pt"))
    told(story, tmp_path)
    assert "ck\\udcff/5.pt" in (tmp_path / "incident_1.txt").read_text()
    told(story, tmp_path / "no" / "such" / "folder")


@pytest.mark.parametrize("planned", [False, True])
def test_a_card_names_no_survivor_that_died_before_it_could_stay(tmp_path: Path, planned: bool) -> None:
    story = training().killed(1)
    story.answers_wait = not planned
    story.examined().killed(0).killed(2)
    story.answers_wait = False
    story.hears()
    if planned:
        story.killed(1, SIGTERM)
    lines, _ = told(story.drained().chose(None), tmp_path, a_spec(workers=3))
    first, last = ((tmp_path / f"incident_{1 + at}.txt").read_text() for at in (0, planned))
    assert "which stayed" not in first + last + ("" if planned else "".join(lines))
    assert "resume    from the beginning" in first and "resume    from the beginning" in last
    assert "stayed    nobody: " in first


def test_a_card_tells_where_training_went_on_and_not_where_a_newcomer_came_in_later(tmp_path: Path) -> None:
    story = Story(3, POLICY, replace(STAYING, trains_from=2)).begins(checkpoint(30)).all_run()
    for rank in (0, 1, 2):
        story.now(RankCanRejoin, rank=rank, trains_on="")
    story.reported(r0=41, r1=41, r2=41).killed(1).examined().all_run().rejoined(0, 2, step=41)
    story.now(RankCanRejoin, rank=0, trains_on="").now(RankCanRejoin, rank=2, trains_on="")
    story.now(FirstStep, step=42).now(StandbyChanged, rank=1, state=StandbyPhase.PARKED).rang(Timer.HEAL)
    story.now(RankCanRejoin, rank=0, trains_on="", waits=True).all_run().rejoined(0, 1, 2, step=63)
    told(story, tmp_path, a_spec(workers=3))
    card = (tmp_path / "incident_1.txt").read_text()
    assert "resume    step 41 in the memory of ranks 0 2, which stayed, lost 0 steps" in card
    assert "rank 1 for " in card
