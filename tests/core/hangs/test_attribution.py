"""Whom a job that stands still waits for, told from what its processes were found doing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.hangs.attribution import Blamed, Working, acts, explain, judge, judged, proved
from faultrun.core.hangs.process_activity import Frame, ProcessSample, activity_of, has_left, main_thread
from faultrun.model.observed.hang import Activity, HangDetected, HangElsewhere, HangWarned, Suspicion
from faultrun.model.observed.progress import WorkPhase

BACKWARD = Frame(file="/x/site-packages/torch/autograd/graph.py", line=829, function="_engine_run_backward")
OWN = Frame(file="/home/me/train.py", line=57, function="forward")


def suspicion(
    *behind: int, front: tuple[int, ...] = (), final: bool = False, acts: bool = True, woken: int = 0
) -> Suspicion:
    return Suspicion(
        front=front or behind,
        behind=behind,
        silent_s=1.2,
        limit_s=1.0,
        usual_s=0.05,
        needed_s=1.0,
        final=final,
        acts=acts,
        woken=woken,
    )


def look(rank: int, state: str = "S", *frames: Frame, **more: object) -> ProcessSample:
    return ProcessSample(rank=rank, state=state, frames=frames, **more)  # type: ignore[arg-type]


def blamed(verdict: Working | Blamed) -> tuple[int, Activity]:
    assert isinstance(verdict, Blamed)
    return verdict.rank, verdict.stance


@pytest.mark.parametrize(("wakes", "stance"), [(2.0, Activity.SLEEPING), (3.0, Activity.POLLING)])
def test_who_was_woken_twice_in_the_moment_of_a_look_does_not_poll(wakes: float, stance: Activity) -> None:
    assert activity_of(look(0, "S", OWN, syscall="clock_nanosleep", wakes_per_s=wakes)) is stance


@pytest.mark.parametrize(
    ("culprit", "found"),
    [
        (look(1, "T"), Activity.STOPPED),
        (look(1, "t"), Activity.TRACED),
        (look(1, "D", wchan="nfs_wait_bit_killable"), Activity.UNINTERRUPTIBLE),
        (look(1, "R", OWN, main_share=0.99), Activity.SPINNING),
        (look(1, "S", OWN, syscall="clock_nanosleep"), Activity.SLEEPING),
        (look(1, "S", OWN, syscall="recvfrom"), Activity.BLOCKED),
    ],
)
def test_whoever_waits_in_a_collective_is_not_to_blame(culprit: ProcessSample, found: Activity) -> None:
    waiting = [look(rank, "S", BACKWARD, OWN, syscall="futex") for rank in (0, 2)]
    verdict = judge(suspicion(0, 1, 2), (waiting[0], culprit, waiting[1]))
    assert blamed(verdict) == (1, found)


def test_a_peer_that_burns_a_processor_in_a_collective_waits() -> None:
    assert activity_of(look(0, "R", BACKWARD, main_share=1.0)) is Activity.WAITING


def test_whoever_looks_again_and_again_waits_for_the_one_that_does_not() -> None:
    pollers = [look(rank, "S", OWN, syscall="clock_nanosleep", wakes_per_s=90.0) for rank in (0, 2)]
    for culprit in (
        look(1, "S", OWN, syscall="recvfrom"),
        look(1, "S", OWN),
        look(1, "R", OWN, main_share=1.0),
    ):
        assert blamed(judge(suspicion(0, 1, 2), (pollers[0], culprit, pollers[1])))[0] == 1
    waiting = look(1, "S", BACKWARD)
    verdict = judge(suspicion(0, 1), (pollers[0], waiting))
    assert blamed(verdict) == (0, Activity.POLLING)
    assert isinstance(verdict, Blamed)
    assert verdict.why == "polls (state S in clock_nanosleep; woke up 90 times a second)"


def test_of_several_that_do_the_same_it_is_not_said_that_the_first_began() -> None:
    verdict = judge(suspicion(0, 1, 2), tuple(look(rank, "S", OWN) for rank in (0, 1, 2)))
    assert isinstance(verdict, Blamed)
    assert verdict.why.endswith("; ranks 1 2 as well: who began is unknown")


def test_a_stopped_rank_outweighs_the_order_of_phases() -> None:
    verdict = judge(suspicion(0, front=(0, 1)), (look(0, "S", OWN), look(1, "T")))
    assert blamed(verdict) == (1, Activity.STOPPED)


@pytest.mark.parametrize(
    ("busy", "word"),
    [
        (look(0, "R", OWN, main_share=0.9, moved=True), "stack moves"),
        (look(0, "S", OWN, main_share=0.7), "stack moves"),
        (look(0, "S", OWN, io_bytes=1 << 20), "reads or writes"),
        (look(0, "D", OWN, io_bytes=1 << 20), "reads or writes"),
        (look(0, "S", OWN, children_share=1.5), "children"),
    ],
)
def test_while_somebody_works_it_is_no_hang_until_patience_ends(busy: ProcessSample, word: str) -> None:
    sleeper = look(1, "S", OWN)
    verdict = judge(suspicion(0, 1), (busy, sleeper))
    assert isinstance(verdict, Working)
    assert word in verdict.why
    assert blamed(judge(suspicion(0, 1, final=True), (busy, sleeper))) == (1, Activity.SLEEPING)


@pytest.mark.parametrize("leaves", [look(0, "S", leaving=True, syscall="futex"), look(0, "Z")])
def test_an_interpreter_that_began_to_leave_does_not_hang_whatever_the_limit(leaves: ProcessSample) -> None:
    assert isinstance(judge(suspicion(0, 1, final=True), (leaves, look(1, "S", BACKWARD))), Working)


def test_a_stopped_rank_is_replaced_only_once_it_was_woken() -> None:
    stopped = Blamed(rank=1, stance=Activity.STOPPED, why="is stopped")
    assert not acts(stopped, suspicion(1, acts=True, woken=0))
    assert acts(stopped, suspicion(1, acts=True, woken=1))
    assert not acts(stopped, suspicion(1, acts=False, woken=2))
    assert acts(stopped, suspicion(1, acts=False, woken=3))


def test_silence_is_no_proof_and_waking_in_vain_or_a_long_state_d_is() -> None:
    for found in Activity:
        one = Blamed(rank=1, stance=found, why="", look=look(1, "S"))
        assert not proved(one, suspicion(1))
    assert proved(Blamed(rank=1, stance=Activity.STOPPED, why=""), suspicion(1, woken=3))
    held = Blamed(rank=1, stance=Activity.UNINTERRUPTIBLE, why="", look=look(1, "D", held_s=200.0))
    assert proved(held, replace(suspicion(1), limit_s=300.0))
    assert not proved(held, replace(suspicion(1), limit_s=600.0)), "nobody knows of the first half"
    brief = Blamed(rank=1, stance=Activity.UNINTERRUPTIBLE, why="", look=look(1, "D", held_s=3.0))
    assert not proved(brief, replace(suspicion(1), limit_s=3.0)), "a limit of seconds proves nothing"


def test_a_starved_rank_is_excused_only_until_it_has_had_its_time() -> None:
    spinner = look(0, "R", OWN, starved_share=0.75, starved_s=0.6, main_share=0.25)
    for final in (False, True):  # the user's limit does not mean a machine that is too busy
        assert judge(suspicion(0, final=final), (spinner,)) == Working(
            why="rank 0 waits for a processor (75% of the time)", excused_s=0.6
        )
    later = Suspicion(front=(0,), behind=(0,), silent_s=1.7, limit_s=1.0, needed_s=1.0)
    assert blamed(judge(later, (spinner,))) == (0, Activity.SPINNING)


def test_when_all_wait_the_one_that_left_is_to_blame() -> None:
    waiting = tuple(look(rank, "S", BACKWARD) for rank in (1, 2))
    verdict = judge(suspicion(1, 2), waiting, finished=((0, 41),))
    assert blamed(verdict) == (0, Activity.ENDED)
    assert isinstance(verdict, Blamed)
    assert verdict.why == "finished after step 41, and ranks 1 2 still wait in a collective"


def test_when_nobody_left_the_explanation_asks_for_a_mismatch() -> None:
    verdict = judge(suspicion(0, 1), (look(0, "S", BACKWARD), look(1, "S", BACKWARD)))
    assert isinstance(verdict, Blamed)
    assert "did every rank call the same one?" in verdict.why


def test_a_process_that_nobody_could_look_at_is_blamed_without_a_reason() -> None:
    assert blamed(judge(suspicion(3, 2), ())) == (2, Activity.UNKNOWN)


def test_the_cause_says_what_how_long_and_by_which_measure() -> None:
    verdict = judge(suspicion(1), (look(1, "T"),))
    assert isinstance(verdict, Blamed)
    assert explain(verdict, suspicion(1), WorkPhase.COMPUTING) == (
        "is stopped (state T: SIGSTOP); nothing heard for 1.2 s while computing, the limit is 1 s "
        "(a step usually takes 50 ms)"
    )


LOOKS = st.builds(
    ProcessSample,
    rank=st.integers(0, 3),
    state=st.sampled_from(["R", "S", "D", "T", "t", "Z", ""]),
    main_share=st.floats(0, 1),
    starved_share=st.floats(0, 1),
    children_share=st.floats(0, 2),
    io_bytes=st.integers(0, 1 << 20),
    frames=st.sampled_from([(), (OWN,), (BACKWARD, OWN)]),
    moved=st.booleans(),
)


@given(looks=st.lists(LOOKS, max_size=4, unique_by=lambda one: one.rank), data=st.data())
def test_the_blamed_rank_is_always_one_behind(looks: list[ProcessSample], data: st.DataObject) -> None:
    front = data.draw(st.lists(st.integers(0, 3), min_size=1, unique=True))
    behind = data.draw(st.lists(st.sampled_from(front), min_size=1, unique=True))
    verdict = judge(suspicion(*behind, front=tuple(front), final=data.draw(st.booleans())), tuple(looks))
    if isinstance(verdict, Blamed):
        assert verdict.rank in front
        assert verdict.rank in behind or verdict.stance in (Activity.STOPPED, Activity.TRACED)


FAULTHANDLER = """Thread 0x00007f82c24ff6c0 (most recent call first):
  File "/x/threading.py", line 982 in run

Current thread 0x00007f82ecc06b80 (most recent call first):
  File "/home/me/train.py", line 57 in forward
  File "/home/me/train.py", line 9 in <module>
"""
ONE_THREAD = """Stack (most recent call first):
  File "/home/me/train.py", line 57 in forward
  File "/home/me/train.py", line 9 in <module>
"""
PY_SPY = """Process 4711: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    forward (train.py:57)
    <module> (/home/me/train.py:9)
Thread 4712 (active): "helper"
    run (threading.py:982)
"""


@pytest.mark.parametrize("dump", [FAULTHANDLER, ONE_THREAD, PY_SPY])
def test_the_main_thread_is_found_in_either_dump(dump: str) -> None:
    frames = main_thread(dump)
    assert [frame.shown for frame in frames] == ["train.py:57 in forward", "train.py:9 in <module>"]


@pytest.mark.parametrize(
    ("dump", "left"),
    [
        (ONE_THREAD, False),
        (PY_SPY, False),
        ("", False),
        ("Stack (most recent call first):\n  <no Python frame>\n", True),
        ('Stack (most recent call first):\n  File "/x/threading.py", line 1590 in _shutdown\n', True),
        ('Stack (most recent call first):\n  File "/home/me/train.py", line 3 in deep\n  ...\n', False),
        ('Stack (most recent call first):\n  File "/home/me/train.py", line 57 in forw', False),
        ("Stack (most recent call first):\n", False),
        ("Stack (most recent call first):\n" + '  File "/x/a.py", line 3 in deep\n' * 100, False),
    ],
)
def test_an_interpreter_that_leaves_has_no_line_of_a_script_below_its_calls(dump: str, left: bool) -> None:
    assert has_left(dump) is left


@given(text=st.text())
def test_whatever_a_dump_says_it_is_read_without_an_error(text: str) -> None:
    main_thread(text)
    main_thread(f"Thread 1\n{text}")


def test_where_all_wait_and_other_nodes_have_ranks_the_wait_is_for_those() -> None:
    verdict = judge(suspicion(0, 1), tuple(look(rank, "S", BACKWARD) for rank in (0, 1)), elsewhere=6)
    assert isinstance(verdict, Blamed)
    assert verdict.why == (
        "waits in a collective for ranks of other nodes (6): every rank of this node waits"
    )
    assert not acts(verdict, suspicion(0, 1)), "the others are asked first"
    assert acts(verdict, replace(suspicion(0, 1), asked=True))
    for word, found in (
        (HangWarned, suspicion(0, acts=False)),
        (HangElsewhere, suspicion(0)),
        (HangDetected, replace(suspicion(0), asked=True)),
    ):
        assert type(judged(found, verdict, None, at_s=1.0, incarnation=0)) is word
    stuck = judge(suspicion(0, 1), (look(0, "S", BACKWARD), look(1, "D")), elsewhere=6)
    assert isinstance(stuck, Blamed)
    assert (stuck.rank, stuck.stance) == (1, Activity.UNINTERRUPTIBLE)
