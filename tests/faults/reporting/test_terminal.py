"""A run on a terminal, slow, paused or lost, and on a console that is closed, broken or full."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.machine.processes import PATIENCE_S
from support.machine.terminal import Terminal, rows
from support.runs import FAULTRUN, Launcher, Run

CTRL_S, CTRL_Q = b"\x13", b"\x11"
STAMP = re.compile(r"^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d \S+ faultrun: ")


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


def run_on(
    terminal: Terminal, launcher: Launcher, code: str, *options: str, environ: dict[str, str] | None = None
) -> Run:
    mark, _, value = launcher.mark.partition("=")
    words = [*FAULTRUN, "--framework=plain", "--report=False", "--worker_num=2", *options]
    process = terminal.start(
        [*words, *launcher.program(code)], launcher.folder, {mark: value, "NO_COLOR": "1", **(environ or {})}
    )
    run = Run(process.pid, launcher.folder / "faultrun_log", Path(os.devnull), process)
    launcher.started.append(run)
    return run


def test_rank_0_is_seen_behind_its_name_and_our_lines_have_time_and_host(
    terminal: Terminal, launcher: Launcher
) -> None:
    run = run_on(
        terminal, launcher, "say('out of', rank)\nprint('error of', rank, file=sys.stderr, flush=True)"
    )
    seen = rows(terminal.read_to_end())
    assert run.ends() == 0
    assert "[0]: out of 0" in seen
    assert "[0]: error of 0" in seen
    assert not any("of 1" in row for row in seen)
    ours = [row for row in seen if "faultrun: " in row]
    assert all(STAMP.match(row) for row in ours)
    assert re.match(r"\d{4}-\d\d-\d\d ", ours[0])
    assert "showing rank 0 (--tee=3 shows all)" in ours[0]


def test_the_live_line_stands_below_what_is_said_and_never_in_the_same_row(
    terminal: Terminal, launcher: Launcher
) -> None:
    run = run_on(terminal, launcher, "for n in range(400): say('line', n)\ntrain()", "--tee=3")
    terminal.read_until(lambda said: said.count(b": line 399\r\n") == 2 and said.endswith(b" s"))
    run.signal(signal.SIGTERM)
    seen = rows(terminal.read_to_end())
    assert run.ends() == 143
    for rank in (0, 1):
        assert [row for row in seen if row.startswith(f"[{rank}]: line")] == [
            f"[{rank}]: line {n}" for n in range(400)
        ]
    known = re.compile(rf"(\[\d\]: .*|{STAMP.pattern[1:]}.*)?$")
    assert [row for row in seen if not known.match(row)] == []


def test_a_progress_bar_is_in_the_live_line_and_leaves_one(terminal: Terminal, launcher: Launcher) -> None:
    code = """
import pathlib, time
for n in range(100):
    sys.stderr.write(f"\\r{n}%|###  |")
    sys.stderr.flush()
while not pathlib.Path("go").exists():
    time.sleep(0.01)
sys.stderr.write("\\r100%|#####|\\n")
"""
    run = run_on(terminal, launcher, code)
    terminal.read_until(lambda said: b"[0]: 99%|###  |" in said)
    (launcher.folder / "go").touch()
    said = terminal.read_to_end()
    assert run.ends() == 0
    assert [row for row in rows(said) if "%|" in row] == ["[0]: 100%|#####|"]


def test_a_paused_terminal_stops_nobody_and_a_flood_is_cut(terminal: Terminal, launcher: Launcher) -> None:
    code = """
line = "x" * 99 + "\\n"
if rank == 0:
    for n in range(300):
        sys.stdout.write(line * 1000)
    say("the end of it")
"""
    run = run_on(terminal, launcher, code)  # nobody reads: the terminal is full after some kilobytes
    run.event("WorkerExit", rank=0)
    assert (run.log_dir / "worker_0.log").stat().st_size == 30_000_000 + len("the end of it\n")
    run.event("RunFinished")
    seen = rows(terminal.read_to_end())
    assert run.ends() == 0
    told = re.compile(r"\[0\]: \.\.\. ([\d,]+) bytes are not shown here: worker_0.log has all")
    left_out = sum(int(found[1].replace(",", "")) for row in seen if (found := told.fullmatch(row)))
    shown = sum(len(row.removeprefix("[0]: ")) + 1 for row in seen if row.endswith("xxx"))
    assert left_out > 20_000_000
    # On a terminal that takes no more a line may be half written when the live one is drawn over it.
    assert 0 <= 30_000_000 - left_out - shown <= 1000
    assert "[0]: the end of it" in seen
    assert any("every rank finished" in row for row in seen)


def test_a_lost_terminal_ends_no_run_that_nohup_protects(terminal: Terminal, launcher: Launcher) -> None:
    code = """
say("first")
if life == 0 and rank == 1:
    train()
for n in range(1000):
    say("line", n)
train_in_the_first_life()
"""
    words = ["env", "--ignore-signal=HUP", *FAULTRUN, "--framework=plain", "--report=False", "--worker_num=2"]
    process = terminal.start([*words, *launcher.program(code)], launcher.folder)
    run = Run(process.pid, launcher.folder / "faultrun_log", Path(os.devnull), process)
    launcher.started.append(run)
    terminal.read_until(lambda said: b"[0]: first" in said)
    run.trains([1])
    terminal.hang_up()
    run.kill(1)
    assert run.ends() == 0
    assert run.log(0, incarnation=1).endswith("line 999\n")
    assert "rank 1 of 2 killed by SIGKILL" in run.card(1)


def test_what_is_paused_with_ctrl_s_goes_on_with_ctrl_q(terminal: Terminal, launcher: Launcher) -> None:
    waits = "while not pathlib.Path('go').exists(): time.sleep(0.01)"
    code = f"import pathlib, time\nsay('before')\n{waits}\nsay('after')\ntrain()"
    run = run_on(terminal, launcher, code)
    terminal.read_until(lambda said: b"[0]: before" in said)
    terminal.type(CTRL_S)
    (launcher.folder / "go").touch()
    run.said(0, "after")
    run.kill(1)
    run.event("IncarnationStarted", incarnation=1)
    terminal.type(CTRL_Q)
    terminal.read_until(lambda said: said.count(b"[0]: after") == 2)
    run.signal(signal.SIGTERM)
    seen = rows(terminal.read_to_end())
    assert run.ends() == 143
    assert any("incident 1  rank 1 of 2 killed by SIGKILL" in row for row in seen)


def test_a_stderr_whose_reader_is_gone(launcher: Launcher) -> None:
    words = ("--worker_num=2", *launcher.program("if life == 0: sys.exit(1)"))
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = launcher.start(words, {}, subprocess.DEVNULL, write_end)
    os.close(write_end)
    assert process.wait(PATIENCE_S) == 0
    assert (launcher.folder / "faultrun_log" / "incident_1.txt").exists()


@pytest.mark.parametrize("closed", ["2", "1", "0 1 2"])
def test_the_number_of_a_closed_stream_is_no_file_of_the_run(launcher: Launcher, closed: str) -> None:
    """What is written there would stand in our lock, our journal or a worker's log."""
    body = 'say([os.readlink(f"/proc/{os.getppid()}/fd/{fd}") for fd in sys.argv[1].split()])'
    words = [*FAULTRUN, "--framework=plain", "--tee=3", *launcher.program(body), closed]
    shut = " ".join(f"{fd}>&-" for fd in closed.split())
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {shut}', "sh", *words], cwd=launcher.folder, timeout=60, check=False
    )
    assert ended.returncode == 0
    told = (launcher.folder / "faultrun_log" / "worker_0.log").read_text()
    assert told == f"{['/dev/null'] * len(closed.split())}\n"


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(launcher: Launcher, closed: str) -> None:
    program = launcher.program("say('output')\nprint('error', file=sys.stderr)\nif life == 0: sys.exit(1)")
    words = [*FAULTRUN, "--framework=plain", "--worker_num=2", *program]
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *words], cwd=launcher.folder, timeout=60, check=False
    )
    assert ended.returncode == 0
    log_dir = launcher.folder / "faultrun_log"
    assert (log_dir / "worker_1.log").read_text() == "output\nerror\n"
    for line in (log_dir / "journal.jsonl").read_text().splitlines():
        assert line.startswith('{"seq":')
