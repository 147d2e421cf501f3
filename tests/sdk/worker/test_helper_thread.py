"""The helper thread in a real process: requests, answers, deadlines and exits."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultrun.model.wire import VERDICT_VARIABLE
from sdk.support.fake_supervisor import PATIENCE_S, FakeSupervisor, supervised
from support.places import TESTS

pytestmark = pytest.mark.slow

COUNT = TESTS / "sdk" / "scripts" / "count.py"
_ENDS_BY_ITSELF = frozenset({"raise-own", "raise-peer", "exit-peer"})


@pytest.fixture
def one(tmp_path: Path) -> Iterator[FakeSupervisor]:
    with supervised(tmp_path / "s", 1, grace_s=10.0) as supervisor:
        supervisor.asks_survivors = False
        yield supervisor


def started(
    one: FakeSupervisor, *words: str, steps: int = 100000, at_step: int = 3, verdict_s: float = 600.0
) -> None:
    env = {"CKPT": str(one.directory / "ckpt"), VERDICT_VARIABLE: f"{verdict_s:g}"}
    one.start(0, COUNT, str(steps), "0.002", *words, env=env)
    one.wait_for(lambda: one.step_of(0) >= at_step, f"step {at_step}")
    if not _ENDS_BY_ITSELF & set(words):
        wait_for_hello(one)


def wait_for_hello(one: FakeSupervisor) -> None:
    one.wait_for(lambda: bool(one.heard(0, "hello")), "the connection")


def saved_state(one: FakeSupervisor) -> dict[str, int]:
    (saved,) = one.heard(0, "saved")
    state: dict[str, int] = json.loads(Path(saved["path"]).read_text())
    assert state["count"] == state["half"] == saved["step"]
    return state


def test_a_worker_says_hello_and_its_first_step_at_once(one: FakeSupervisor) -> None:
    started(one)
    one.wait_for(lambda: bool(one.heard(0, "step")), "the first step message")
    (hello,) = one.heard(0, "hello")
    assert (hello["rank"], hello["incarnation"], hello["pid"]) == (0, 0, one.children[0].process.pid)


def test_asked_to_save_it_acknowledges_saves_and_leaves_with_143(one: FakeSupervisor) -> None:
    started(one)
    one.ask(0)
    assert one.wait_ended(0) == [143]
    state = saved_state(one)
    (ack,) = one.heard(0, "ack")
    assert ack["step"] <= state["count"] <= one.step_of(0)
    assert one.step_of(0) - state["count"] == 0


def test_a_signal_alone_is_request_enough(one: FakeSupervisor) -> None:
    started(one)
    os.kill(one.children[0].process.pid, signal.SIGTERM)
    assert one.wait_ended(0) == [143]
    saved_state(one)


def test_asked_for_its_threads_it_writes_them_and_goes_on(one: FakeSupervisor) -> None:
    started(one)
    one.say(0, "threads")
    one.wait_for((one.directory / "threads_0.txt").exists, "the file")
    step = one.step_of(0)
    one.wait_for(lambda: one.step_of(0) > step, "the next step")


def test_a_line_on_the_socket_alone_is_request_enough(one: FakeSupervisor) -> None:
    started(one)
    one.say(0, "gasp", deadline_s=5.0, reason="peer")
    assert one.wait_ended(0) == [143]
    saved_state(one)


def test_a_main_thread_that_is_stuck_is_saved_at_its_last_step(one: FakeSupervisor) -> None:
    started(one, "stuck", at_step=5)
    one.ask(0)
    assert one.wait_ended(0) == [143]
    assert saved_state(one)["count"] == 5


def test_without_marked_updates_the_save_waits_for_the_end_of_a_step(one: FakeSupervisor) -> None:
    started(one, "unmarked")
    one.ask(0)
    assert one.wait_ended(0) == [143]
    saved_state(one)


def test_a_loop_that_updates_at_once_after_each_step_lets_the_save_between(one: FakeSupervisor) -> None:
    started(one, "works-late")
    one.ask(0)
    assert one.wait_ended(0) == [143]
    (ack,) = one.heard(0, "ack")
    assert saved_state(one)["count"] <= ack["step"] + 10


def test_without_marked_updates_a_stuck_main_thread_cannot_be_saved(one: FakeSupervisor) -> None:
    started(one, "unmarked", "stuck", at_step=5)
    one.ask(0, window_s=1.5, kill_after_s=PATIENCE_S)
    assert one.wait_ended(0) == [143]
    failed = one.heard(0, "failed")  # the watch over the window may have spoken first
    assert "inside an update" in failed[-1]["why"]


def test_a_rank_that_lost_a_peer_before_its_first_step_leaves_long_before_the_window_is_over(
    one: FakeSupervisor,
) -> None:
    one.start(0, COUNT, "9", "0.002", "stuck-first", env={"CKPT": str(one.directory / "ckpt")})
    one.wait_for(lambda: "stuck-first" in (one.directory / "worker_0.log").read_text(), "the end of start()")
    wait_for_hello(one)
    one.ask(0, window_s=60.0)
    assert one.wait_ended(0) == [143]
    (failed,) = one.heard(0, "failed")
    assert failed["why"] == "no step is finished: there is nothing to save"


def test_a_second_request_during_a_save_changes_nothing(one: FakeSupervisor) -> None:
    started(one, "slow-save")
    one.ask(0, window_s=1.5)
    one.wait_for(lambda: bool(one.heard(0, "ack")), "the acknowledgement")
    one.ask(0, window_s=1.5)
    os.kill(one.children[0].process.pid, signal.SIGTERM)
    assert one.wait_ended(0) == [-signal.SIGKILL]
    assert len(one.heard(0, "ack")) == 1


def test_a_save_that_outlives_the_window_is_reported_and_leaves_nothing(one: FakeSupervisor) -> None:
    started(one, "slow-save")
    one.ask(0, window_s=1.0, kill_after_s=PATIENCE_S)
    one.wait_for(lambda: bool(one.heard(0, "failed")), "the report")
    one.kill(0)
    assert one.wait_ended(0) == [-signal.SIGKILL]
    (failed,) = one.heard(0, "failed")
    assert "did not finish" in failed["why"]
    assert one.heard(0, "saved") == []
    assert list((one.directory / "ckpt").rglob("count-*")) == []


@pytest.mark.parametrize(("word", "why"), [("raising-save", "no such luck"), ("full-disk", "File too large")])
def test_a_failed_save_is_reported_and_the_worker_leaves(one: FakeSupervisor, word: str, why: str) -> None:
    started(one, word)
    one.ask(0)
    assert one.wait_ended(0) == [143]
    (failed,) = one.heard(0, "failed")
    assert why in failed["why"]
    assert list((one.directory / "ckpt").rglob("*count-*")) == []


def test_asked_to_save_and_go_on_it_goes_on(one: FakeSupervisor) -> None:
    started(one)
    one.say(0, "save", deadline_s=5.0)
    one.wait_for(lambda: bool(one.heard(0, "saved")), "the save")
    step = saved_state(one)["count"]
    one.wait_for(lambda: one.step_of(0) > step + 20, "more steps")
    assert one.children[0].exit_code is None


def test_asked_for_a_step_to_come_it_saves_exactly_that_step(one: FakeSupervisor) -> None:
    started(one)
    worker = one.children[0].process
    worker.send_signal(signal.SIGSTOP)  # it reads the request before it is far beyond the step we know of
    one.wait_for(lambda: one.is_frozen(0), "its standstill")
    wanted = one.step_of(0) + 200
    one.say(0, "save", deadline_s=60.0, step=wanted)
    worker.send_signal(signal.SIGCONT)
    one.wait_for(lambda: bool(one.heard(0, "saved")), "the save")
    assert saved_state(one)["count"] == wanted


def test_asked_for_a_step_that_is_past_it_says_so(one: FakeSupervisor) -> None:
    started(one, at_step=10)
    one.say(0, "save", deadline_s=5.0, step=2)
    one.wait_for(lambda: bool(one.heard(0, "failed")), "the answer")
    assert "step 2 is gone" in one.heard(0, "failed")[0]["why"]


def test_an_exception_after_a_lost_peer_becomes_the_gasp(one: FakeSupervisor) -> None:
    started(one, "raise-peer", at_step=5)
    one.wait_for(lambda: "closed by peer" in one.logs(), "the traceback")
    one.ask(0)
    assert one.wait_ended(0) == [143]
    assert saved_state(one)["count"] == 5
    assert "Traceback" in one.logs()


def test_a_script_that_ends_while_others_wait_for_it_in_the_next_group_says_so_and_is_saved(
    one: FakeSupervisor,
) -> None:
    started(one, "raise-peer", "stays", at_step=5)
    one.wait_for(lambda: "closed by peer" in one.logs(), "the traceback")
    one.say(0, "peer_lost", incarnation=0, timeout_s=PATIENCE_S)
    one.wait_for(lambda: bool(one.heard(0, "cannot_rejoin")), "the word that it never comes")
    one.ask(0)
    assert one.wait_ended(0) == [143]
    assert saved_state(one)["count"] == 5


def test_an_exception_after_a_lost_peer_that_nobody_asks_for_ends_as_without_us(one: FakeSupervisor) -> None:
    started(one, "raise-peer", at_step=5, verdict_s=0.3)
    assert one.wait_ended(0) == [1]
    note = json.loads((one.directory / "error_0.json").read_text())
    assert "closed by peer" in note["message"]["message"]


def test_a_mistake_of_the_script_ends_it_at_once_and_leaves_a_note(one: FakeSupervisor) -> None:
    started(one, "raise-own", at_step=5)
    assert one.wait_ended(0) == [1], "without the time that a lost peer is worth"
    note = json.loads((one.directory / "error_0.json").read_text())["message"]
    assert note["message"] == "ValueError: a mistake of the script"
    assert note["extraInfo"]["timestamp"].isdecimal()
    assert "raise ValueError" in note["extraInfo"]["py_callstack"]


def test_a_script_that_ends_by_itself_ends_with_its_own_code(one: FakeSupervisor) -> None:
    started(one, "exit-peer", at_step=5)
    assert one.wait_ended(0) == [3]
    assert one.step_of(0) == 5


def test_a_loop_that_asks_may_stop_by_itself_and_still_counts_as_stopped(one: FakeSupervisor) -> None:
    started(one, "polite", "no-save")
    one.ask(0)
    assert one.wait_ended(0) == [143]
    assert "stopped at" in one.logs()


def test_a_loop_that_asks_is_saved_after_it_stopped(one: FakeSupervisor) -> None:
    started(one, "polite")
    one.ask(0)
    assert one.wait_ended(0) == [143]
    assert f"stopped at {saved_state(one)['count']}" in one.logs()


def test_without_anything_to_save_sigterm_ends_the_worker_as_ever(one: FakeSupervisor) -> None:
    started(one, "no-save")
    one.ask(0)
    assert one.wait_ended(0) == [-signal.SIGTERM]


def test_a_worker_that_lost_the_supervisor_still_saves(one: FakeSupervisor) -> None:
    one.start(
        0, COUNT, "100000", "0.002", env={"CKPT": str(one.directory / "c"), "FAULTRUN_SOCKET": "/nowhere"}
    )
    one.wait_for(lambda: one.step_of(0) >= 3, "step 3")
    os.kill(one.children[0].process.pid, signal.SIGTERM)
    assert one.wait_ended(0) == [143]
    (manifest,) = (one.directory / "c").rglob("*.manifest.json")
    assert json.loads(manifest.read_text())["step"] == one.step_of(0)


def test_the_saved_state_is_resumed_at_the_next_step(one: FakeSupervisor) -> None:
    started(one)
    one.ask(0)
    one.wait_ended(0)
    (saved,) = one.heard(0, "saved")
    last = saved["step"] + 3
    one.start(
        0,
        COUNT,
        str(last),
        "0.002",
        env={"FAULTRUN_RESUME_FROM": saved["path"], "CKPT": str(one.directory / "ckpt")},
    )
    assert one.wait_ended(0) == [0]
    assert one.step_of(0) == last


def test_processes_that_the_script_forks_and_ends_are_none_of_our_business(one: FakeSupervisor) -> None:
    """A pool ends its children by SIGTERM; they must neither ring in the parent nor save anything."""
    started(one, "pool", at_step=30)
    assert one.heard(0, "ack") == []
    assert len(one.heard(0, "hello")) == 1
    one.ask(0)
    assert one.wait_ended(0) == [143]
    saved_state(one)


def test_without_faultrun_everything_is_a_no_op(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FAULTRUN_")}
    done = subprocess.run(
        [sys.executable, str(COUNT), "20", "0.001", "polite"],
        env={**environ, "PYTHONPATH": os.pathsep.join(sys.path), "CKPT": str(tmp_path / "ckpt")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end of script\n", "")
    assert list(tmp_path.iterdir()) == []


def test_two_ranks_that_are_asked_stop_at_the_same_step(tmp_path: Path) -> None:
    """They meet at every step, as ranks do in a collective; one is asked later than the other."""
    with supervised(tmp_path / "s", 2) as both:
        both.asks_survivors = False
        for rank in range(2):
            both.start(rank, COUNT, "100000", "0.002", "polite", "no-save", "meet")
        both.wait_for(lambda: both.step_of(1) >= 10, "step 10")
        both.ask(1)
        both.wait_for(lambda: bool(both.heard(1, "ack")), "the first acknowledgement")
        both.ask(0)
        assert both.wait_ended() == [143, 143]
        stops = [line for line in both.logs().splitlines() if line.startswith("stopped at")]
    assert len(stops) == 2
    assert len(set(stops)) == 1


def ends_well(one: FakeSupervisor, script: Path, *lines: str) -> None:
    script.write_text("\n".join(("from faultrun.sdk.worker.worker import worker", *lines)))
    one.start(0, script)
    assert one.wait_ended(0) == [0]


def test_what_is_said_before_the_end_is_heard(one: FakeSupervisor, tmp_path: Path) -> None:
    says = "worker().say('rejoined', incarnation=0, step=7, times={})"
    ends_well(
        one, tmp_path / "ends.py", says, "from faultrun import sdk; sdk.done()", "import os; os._exit(0)"
    )
    assert [said["step"] for said in one.heard(0, "rejoined")] == [7]


def test_a_helper_thread_that_ends_is_named(one: FakeSupervisor, tmp_path: Path) -> None:
    fails = "worker()._helper.memory = lambda: 1 / 0"
    ends_well(
        one, tmp_path / "ends.py", "worker().tells_memory(lambda: None)", fails, "worker()._helper.join(20)"
    )
    assert "rank 0: its helper thread has ended: ZeroDivisionError" in one.logs()
