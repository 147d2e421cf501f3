"""The line at the bottom of a terminal, and what keeps other lines out of its row."""

import os
import pty
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.harness.long_journal import Shape, write_journal

from faultrun.journal.lines import JournalFollower, JournalLine
from faultrun.model.events import Event, PlanAdopted, RunStarted, Timer, TimerFired, WorkerStarted
from faultrun.model.plan import Ledger
from faultrun.model.run import Phase
from faultrun.model.topology import BootId
from faultrun.model.wire import pack_word
from faultrun.observe.console.live_line import METER, LiveLine, VerificationMeter
from faultrun.observe.outlets.sidecar import Sidecar
from faultrun.terminal import CLEAR, BottomRow
from support.checkpoints.entries import entry_of
from support.stories.story import NODE, first_plan

STARTED = RunStarted(at_s=0.0, incarnation=-1, node=NODE, boot=BootId("b"), pid=1)


def told(event: Event, phase: Phase) -> JournalLine:
    return JournalLine(name=type(event).__name__, run_s=event.at_s, event=event, phase=phase)


def page(folder: Path, *steps: int) -> None:
    """The progress page of incarnation 0."""
    slots = (pack_word(step, epoch=0, phase=1, at_monotonic_s=1.0, count=1) for step in steps)
    (folder / "incarnation_0").mkdir(exist_ok=True)
    (folder / "incarnation_0" / "progress").write_bytes(b"".join(one.ljust(64, b"\0") for one in slots))


def test_it_says_ranks_step_rate_time_and_restarts(tmp_path: Path) -> None:
    now_s = [100.0]
    line = LiveLine(BottomRow(2), tmp_path, 3, now=lambda: now_s[0])
    line.take(told(STARTED, Phase.SURVEYING))
    now_s[0] += 7
    assert line.text() == "0/3 ranks  looking for a checkpoint 7 s  7 s"
    plan = first_plan(3, ledger=Ledger(total_restarts=2))
    line.take(told(PlanAdopted(at_s=7.0, incarnation=0, plan=plan), Phase.RUNNING))
    started = [WorkerStarted(at_s=7.0, incarnation=0, node=NODE, rank=rank, pid=9) for rank in range(3)]
    line.take(told(started[0], Phase.RUNNING))
    assert line.text() == "1/3 ranks  starting [########................]  7 s  2 restarts"
    for event in started[1:]:
        line.take(told(event, Phase.RUNNING))
    page(tmp_path, 1000, 1002, 1001)
    assert line.text() == "3/3 ranks  step 1,000  7 s  2 restarts"
    now_s[0] += 10
    page(tmp_path, 1025, 1026, 1025)
    assert line.text() == "3/3 ranks  step 1,025  2.5 steps/s  17 s  2 restarts"
    line.take(told(TimerFired(at_s=20.0, incarnation=-1, timer=Timer.GRACE), Phase.RUNNING))
    page(tmp_path, 1027, 1028, 1027)
    assert "step 1,027" in line.text(), "a timer of an earlier life says nothing about this one"


def test_where_ranks_do_not_report_the_step_is_the_last_of_the_slowest_log(tmp_path: Path) -> None:
    now_s = [100.0]
    line = LiveLine(BottomRow(2), tmp_path, 2, now=lambda: now_s[0])
    line.take(told(PlanAdopted(at_s=7.0, incarnation=0, plan=first_plan(2)), Phase.RUNNING))
    for rank in range(2):
        line.take(told(WorkerStarted(at_s=7.0, incarnation=0, node=NODE, rank=rank, pid=9), Phase.RUNNING))
    folder = tmp_path / "incarnation_0"
    folder.mkdir()
    for rank, step in enumerate((12, 11)):
        (folder / f"worker_{rank}.log").write_text(f"max step: 900\nstep {step} loss 0.5\n")
    assert line.text() == "2/2 ranks  step 11  0 s"
    now_s[0] += 5
    for rank in range(2):
        (folder / f"worker_{rank}.log").write_text("step 21 loss 0.4\n")
    assert line.text() == "2/2 ranks  step 21  2 steps/s  5 s"


def test_a_long_verification_has_a_bar(tmp_path: Path) -> None:
    meter = VerificationMeter(tmp_path / METER)
    path = tmp_path / "net-1_5.ckpt"
    path.write_bytes(b"x")
    meter.begins([replace(entry_of(path), size_bytes=4 << 30)])
    meter.reads(1 << 30)
    line = LiveLine(BottomRow(2), tmp_path, 3)
    line.take(told(STARTED, Phase.SURVEYING))
    assert "verifying [######..................] 1.0 of 4.0 GiB" in line.text()
    meter.over()
    assert "verifying" not in line.text()


def test_what_goes_wrong_in_a_sidecar_is_kept(tmp_path: Path) -> None:
    class Broken(LiveLine):
        def end(self) -> None:
            raise ZeroDivisionError

    Sidecar(lambda _: Broken(BottomRow(2), tmp_path, 1), tmp_path / "journal.jsonl", patience_s=60.0).close()
    assert "ZeroDivisionError" in (tmp_path / "sidecar_traceback.txt").read_text()


def test_a_sidecar_reads_all_of_the_journal_and_leaves_an_empty_row(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal.jsonl", Shape(events=300, workers=2, incidents=1))
    pid, terminal = pty.fork()
    if pid == 0:
        journal = tmp_path / "journal.jsonl"
        row = BottomRow(2)
        sidecar = Sidecar(lambda _: LiveLine(row, tmp_path, 2), journal, keep=(2,), patience_s=60.0)
        sidecar.close()
        os._exit(0)
    said = b""
    with suppress(OSError):  # how a terminal says that nobody has it open any more
        while chunk := os.read(terminal, 4096):
            said += chunk
    os.waitpid(pid, 0)
    os.close(terminal)
    assert said.startswith(CLEAR)
    assert said.endswith(CLEAR)
    assert b"\n" not in said
    assert b"0/2 ranks" in said


def test_half_a_line_waits_for_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    follower = JournalFollower(path)
    assert list(follower.new_lines()) == []
    path.write_bytes(b'{"event":"A","run_s":0}\n{"event":"B","ru')
    assert [line.name for line in follower.new_lines()] == ["A"]
    with path.open("ab") as file:
        file.write(b'n_s":1}\nnonsense\n{"event":"C","run_s":2}\n')
    assert [line.name for line in follower.new_lines()] == ["B", "C"]
    assert list(follower.new_lines()) == []
