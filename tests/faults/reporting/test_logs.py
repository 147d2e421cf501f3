"""``faultrun logs``: real runs, followed through a restart, read when nobody supervises them."""

import json
import subprocess
from pathlib import Path

from support.machine.processes import PATIENCE_S, wait_until
from support.runs import FAULTRUN, Launcher, Run

TALKS = "say('life', life)\ntrain_in_the_first_life()\nsay('done', rank)"


def shown(run: Run, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [*FAULTRUN, "logs", "--log_dir", str(run.log_dir), *words],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def recovered(launcher: Launcher) -> Run:
    run = launcher.run(TALKS).trains([0, 1])
    run.kill(1)
    assert run.ends() == 0
    return run


def test_all_lives_are_shown_in_order_with_what_ended_each(launcher: Launcher) -> None:
    run = recovered(launcher)
    first, *lines = shown(run).splitlines()
    assert first.startswith("==> incarnation 0, 20")
    assert first.endswith(": 2 workers <==")
    assert lines[:4] == ["[0]: life 0", "[0]: ready", "[1]: life 0", "[1]: ready"]
    assert lines[4].startswith("==> incarnation 1, 20")
    assert "after rank 1 killed by SIGKILL" in lines[4]
    assert lines[5:-1] == ["[0]: life 1", "[0]: done 0", "[1]: life 1", "[1]: done 1"]
    assert lines[-1].startswith("==> ended 20")
    assert lines[-1].endswith(": every rank finished; exit code 0 <==")


def test_one_rank_alone_stands_as_it_was_printed_and_json_names_everything(launcher: Launcher) -> None:
    run = recovered(launcher)
    assert shown(run, "--rank=1", "--incarnation=0").splitlines()[1:] == ["life 0", "ready"]
    tail = [line for line in shown(run, "-n", "3").splitlines() if "==>" not in line]
    assert tail == ["[0]: ready", "[1]: ready", "[0]: life 1", "[0]: done 0", "[1]: life 1", "[1]: done 1"]
    objects = [json.loads(line) for line in shown(run, "--json", "--rank=0").splitlines()]
    assert objects[1] == {
        "incarnation": 0, "rank": 0, "file": "worker_0.log", "at": None, "text": "life 0",
    }  # fmt: skip
    assert [one["incarnation"] for one in objects if "mark" in one] == [0, 1, 1]


def test_who_follows_is_taken_into_the_next_life_and_to_the_end(launcher: Launcher, tmp_path: Path) -> None:
    run = launcher.run(TALKS).trains([0, 1])
    seen = tmp_path / "seen"
    with seen.open("wb") as output:
        words = [*FAULTRUN, "logs", "-f", "--log_dir", str(run.log_dir)]
        follower = subprocess.Popen(words, stdout=output)
    try:
        wait_until(lambda: "[1]: ready" in seen.read_text(), what="the first life's lines")
        run.kill(0)
        assert run.ends() == 0
        assert follower.wait(PATIENCE_S) == 0
    finally:
        follower.kill()
    lines = seen.read_text().splitlines()
    marks = [line for line in lines if line.startswith("==>")]
    # A life whose line is not in the journal yet is told by its number alone.
    told = [mark.removesuffix(" <==").split(",")[0].split(" 20")[0] for mark in marks]
    assert told == ["==> incarnation 0", "==> incarnation 1", "==> ended"]
    assert sorted(line for line in lines if not line.startswith("==>")) == sorted(
        f"[{rank}]: {text}" for rank in (0, 1) for text in ("life 0", "ready", "life 1", f"done {rank}")
    )


def test_who_follows_a_run_that_was_cut_off_is_told_so(launcher: Launcher) -> None:
    run = launcher.run("train()").trains([0, 1])
    run.kill_supervisor()
    lines = shown(run, "-f").splitlines()
    assert lines[1:3] == ["[0]: ready", "[1]: ready"]
    assert lines[-1] == "==> cut off: its supervisor is gone; the same command goes on <=="


def test_what_is_not_there_is_said_with_what_is(launcher: Launcher) -> None:
    run = recovered(launcher)
    assert "because: there are those of ranks 0 1" in shown(run, "--rank=7", code=73)
    assert "because: it has 0, 1" in shown(run, "--incarnation=5", code=73)
    nowhere = Run(0, launcher.folder / "nowhere", run.console)
    assert "no workers were started there" in shown(nowhere, code=73)


def test_words_of_a_worker_do_nothing_to_the_terminal_of_who_reads_them(launcher: Launcher) -> None:
    run = launcher.run(r"say('\x1b]0;owned\x07 \x1b[31mred\n10%\r20%\r30%')", workers=1)
    assert run.ends() == 0
    assert shown(run, "--rank=0").splitlines()[1:-1] == [
        "\\u001b]0;owned\\u0007 \x1b[31mred\x1b[0m", "30%",
    ]  # fmt: skip
