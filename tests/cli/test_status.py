"""The parts of status that need no run: the journal's end, rates, and what of many ranks is shown."""

import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.harness.long_journal import Shape, write_journal
from click.testing import CliRunner

from faultrun.cli.status.command import status
from faultrun.cli.status.gather import gather
from faultrun.cli.status.savings_so_far import SavedSoFar
from faultrun.journal.lines import journal_lines, tail
from faultrun.journal.logdir import read_record
from faultrun.model.events import Event, PlanAdopted, RunFinished, RunStarted
from faultrun.model.observed.hang import Activity, HangDismissed, HangSuspected, Suspicion
from faultrun.model.run import Phase
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.wire import pack_word
from faultrun.observe.status.ranks import Pace
from faultrun.observe.status.snapshot import RunSnapshot
from faultrun.observe.status.status import RankState, Supervised
from faultrun.observe.status.words import chosen
from faultrun.unix_sockets import short
from support.machine.terminal import Terminal
from support.places import DATA
from support.stories import hang_stories
from support.stories.account_stories import written
from support.stories.story import first_plan


def test_the_tail_begins_at_the_last_plan_and_has_one_heartbeat(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal.jsonl", Shape(events=3000, workers=4, incidents=7))
    end = tail(tmp_path / "journal.jsonl")
    names = [line.name for line in end.lines]
    assert names[0] == "PlanAdopted"
    assert names[-1] == "RunFinished"
    assert names.count("Heartbeat") == 1
    plan = end.lines[0].event
    assert isinstance(plan, PlanAdopted)
    assert plan.plan.incarnation == 7
    assert end.first is not None
    assert isinstance(end.first.event, RunStarted)


@pytest.mark.parametrize("content", [b"", b"{", b'{"event":"PlanAdopted"', b"\xff\n\0\n", b"[]\n7\n"])
def test_the_tail_of_a_broken_journal_is_empty(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    assert tail(path).lines == ()
    done = CliRunner().invoke(status, ["--log_dir", str(tmp_path)], standalone_mode=False)
    assert done.exception is None


def test_a_word_of_a_worker_that_looks_like_a_plan_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    plan = {"run_s": 0, "event": "PlanAdopted", "plan": {"incarnation": 3}}
    said = {"run_s": 1, "event": "GaspFailed", "because": '"event":"PlanAdopted"'}
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (plan, said)))
    assert [line.name for line in tail(path).lines] == ["PlanAdopted", "GaspFailed"]


def test_a_timer_of_an_earlier_life_that_rings_late_changes_no_number(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_journal(path, Shape(events=3000, workers=2, incidents=3))
    lines = path.read_text().splitlines(keepends=True)[:-1]
    late = {**json.loads(lines[-1]), "event": "TimerFired", "timer": "grace", "incarnation": 2}
    path.write_text("".join([*lines, json.dumps(late) + "\n"]))
    assert gather(tmp_path, Pace()).incarnation == 3


def test_status_and_metrics_count_the_restarts_that_are_left_alike(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_journal(path, Shape(events=3000, workers=2, incidents=3))
    lines = [json.loads(line) for line in path.read_text().splitlines()[:-4]]
    (plan,) = (line["plan"] for line in lines if line["event"] == "PlanAdopted" and line["incarnation"] == 3)
    plan["ledger"] |= {"restarts": [{"at_s": lines[-1]["run_s"], "step": 9}], "high_step": 9}
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    (tmp_path / "incarnation_3").mkdir()
    word = pack_word(step=1000, epoch=0, phase=1, at_monotonic_s=1.0, count=1)
    (tmp_path / "incarnation_3" / "progress").write_bytes(word.ljust(64, b"\0") * 2)
    moment = RunSnapshot(tmp_path, RestartPolicy())
    for line in journal_lines(path):
        moment.take(line)
    left = moment.moment().restarts_left
    assert left == gather(tmp_path, Pace()).spent.left == 3, "progress has refunded the one that was spent"


def test_of_many_ranks_those_that_failed_and_those_behind_are_shown() -> None:
    ranks = [RankState(rank=n, pid=n, state="training", step=1000 - n % 7) for n in range(1000)]
    ranks[500] = RankState(rank=500, pid=1, state="failed", what="killed by SIGKILL")
    shown, left_out = chosen(ranks, 10)
    assert len(shown) == 10
    assert 500 in [rank.rank for rank in shown]
    assert {rank.step for rank in shown if rank.rank != 500} == {994}
    assert left_out.startswith("990 more: training, steps 994 to 1,000")


def test_a_rate_is_of_the_last_seconds() -> None:
    pace = Pace()
    assert pace.rate((0, 0), 100.0, 10) is None
    assert pace.rate((0, 0), 110.0, 20) == pytest.approx(1.0)
    for second in range(111, 160):
        pace.rate((0, 0), float(second), 20 + 5 * (second - 110))
    assert pace.rate((0, 0), 160.0, 270) == pytest.approx(5.0)


def test_watching_without_rich_says_how_to_get_it(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal.jsonl", Shape(events=50, workers=1, incidents=0))
    code = "import sys; sys.modules['rich'] = None; from faultrun.__main__ import main; sys.exit(main())"
    terminal = Terminal()
    process = terminal.start([sys.executable, "-c", code, "status", "--log_dir=.", "--watch"], tmp_path)
    said = terminal.read_to_end()
    assert process.wait() != 0
    assert b"needs rich" in said
    assert b"pip install 'faultrun[watch]'" in said


def suspected_after(folder: Path, *told: tuple[Event, str]) -> str:
    """What status suspects once a run of two ranks has told these events, for these reasons."""
    path = folder / "journal.jsonl"
    write_journal(path, Shape(events=60, workers=2, incidents=0))
    lines = path.read_text().splitlines(keepends=True)[:8]
    now_s = json.loads(lines[-1])["run_s"]
    events = [written(replace(event, at_s=now_s), Phase.RUNNING, why) for event, why in told]
    path.write_text("".join([*lines, *(json.dumps(event) + "\n" for event in events)]))
    return gather(folder, Pace()).suspected


def test_nobody_heals_where_the_supervisor_is_gone_or_the_run_is_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_journal(path, Shape(events=60, workers=3, incidents=0))
    lines = path.read_text().splitlines(keepends=True)[:8]
    empty = first_plan(3, incarnation=1, kept=frozenset({0, 2}), missing=frozenset({1}))
    told: tuple[Event, ...] = (
        PlanAdopted(at_s=9.0, incarnation=1, plan=empty),
        RunFinished(at_s=10.0, incarnation=1, exit_code=0, why="every rank that was left finished"),
    )
    (tmp_path / "run.json").write_text(json.dumps({"pid": 1 << 22, "host": socket.gethostname()}))
    moment = RunSnapshot(tmp_path, RestartPolicy())
    for event, missing in zip(told, (1, 0), strict=True):
        lines.append(json.dumps(written(event, Phase.RUNNING, "")) + "\n")
        path.write_text("".join(lines))
        found = gather(tmp_path, Pace())
        assert (found.supervisor is Supervised.GONE, found.missing) == (bool(missing), "")
        assert [(one.state, one.what) for one in found.ranks if one.rank == 1] == [("missing", "")]
        moment.take([*journal_lines(path)][-1])
        assert moment.moment().missing == missing


@pytest.mark.parametrize("beside", [True, False])
def test_where_the_supervisor_has_a_number_of_another_container_ranks_are_as_the_journal_says(
    tmp_path: Path, beside: bool
) -> None:
    write_journal(tmp_path / "journal.jsonl", Shape(events=60, workers=2, incidents=0))
    kept = (tmp_path / "journal.jsonl").read_text().splitlines(keepends=True)[:8]
    pid = os.getpid() if beside else os.getppid()
    (tmp_path / "run.json").write_text(json.dumps({"pid": pid, "host": socket.gethostname(), "run_id": "j1"}))
    with (tmp_path / "journal.jsonl").open("w") as journal, socket.socket(socket.AF_UNIX) as listens:
        journal.writelines(kept)
        journal.flush()
        with short(str(tmp_path / "control.sock")) as address:
            listens.bind(address)
        listens.listen()
        found = gather(tmp_path, Pace())
    assert found.supervisor is Supervised.RUNNING
    assert {one.state for one in found.ranks} == ({"gone"} if beside else {"running"})


def test_a_hang_that_is_looked_into_is_shown_until_it_is_dismissed(tmp_path: Path) -> None:
    suspicion = Suspicion(front=(1,), behind=(1,), silent_s=40.0, limit_s=30.0)
    suspected = (HangSuspected(at_s=0, incarnation=0, suspicion=suspicion), "rank 1 silent for 40.0 s")
    dismissed = (HangDismissed(at_s=0, incarnation=0, why="rank 1 works"), "")
    assert suspected_after(tmp_path, suspected) == "rank 1 silent for 40.0 s"
    assert suspected_after(tmp_path, suspected, dismissed) == ""


def test_a_rank_that_was_warned_of_is_shown_until_it_goes_on(tmp_path: Path) -> None:
    warning = (hang_stories.warned(0, 0, 1, Activity.SLEEPING), "")
    over = (hang_stories.over(0, 0, 1, paused_s=4.0, warned=True), "")
    assert suspected_after(tmp_path, warning).startswith("rank 1 sleeps (state S)")
    assert suspected_after(tmp_path, warning, over) == ""


def test_a_rank_that_left_because_it_was_asked_has_not_failed(tmp_path: Path) -> None:
    kept = DATA / "journals" / "a_fault_then_two_preemptions.jsonl"
    lines = kept.read_text().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines, start=1) if '"event":"RunFinished"' in line]
    (tmp_path / "journal.jsonl").write_text("".join(lines[: ends[1]]))
    left = [(one.state, one.what) for one in gather(tmp_path, Pace()).ranks]
    assert left == [("ended", "asked to leave: exited with code 143")] * 2

    fault = next(number for number, line in enumerate(lines) if '"event":"Drained"' in line)
    (tmp_path / "journal.jsonl").write_text("".join(lines[: fault + 1]))
    left = [(one.state, one.what) for one in gather(tmp_path, Pace()).ranks]
    assert left == [
        ("ended", "asked to leave: exited with code 143"), ("failed", "killed by SIGKILL"),
    ]  # fmt: skip


def test_status_says_what_the_faults_so_far_would_have_cost_elsewhere(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal.jsonl", Shape(events=400, workers=4, incidents=5))

    def shown(*words: str) -> str:
        done = CliRunner().invoke(status, ["--log_dir", str(tmp_path), *words], standalone_mode=False)
        assert done.exception is None, done.exception
        return done.output

    (row,) = [line for line in shown().splitlines() if line.startswith("  saved ")]
    assert "against a restart by hand" in row
    told = json.loads(shown("--json", "--assume=notice=1h"))["savings"]
    assert told["faults"] + sum(told["left_out"].values()) == 5
    assert told["assumptions"]["notice_s"] == 3600
    quick = json.loads(shown("--json", "--assume=notice=0,restart=0"))["savings"]
    assert told["by_hand"]["waiting_s"] - quick["by_hand"]["waiting_s"] == pytest.approx(
        told["interruptions"] * 4200, abs=1
    )


def test_what_was_saved_is_followed_from_look_to_look_and_anew_for_another_run(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_journal(path, Shape(events=400, workers=4, incidents=5))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    saved = SavedSoFar(tmp_path)
    record = read_record(tmp_path)
    first = saved.look(record)
    with path.open("ab") as file:
        file.write(whole[len(whole) // 2 :])
    second = saved.look(record)
    assert first is not None
    assert second is not None
    assert first["faults"] < second["faults"]
    assert second == SavedSoFar(tmp_path).look(record)
    path.rename(tmp_path / "before.jsonl")
    assert saved.look(record) is None
    write_journal(path, Shape(events=200, workers=2, incidents=0))
    third = saved.look(record)
    assert third is not None
    assert (third["faults"], third["text"]) == (0, "")
    with path.open("ab") as file:
        file.truncate(9_000_000)
    assert SavedSoFar(tmp_path).look(record) is None, "a very long one is for the report"
