"""Who failed first, and who merely followed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.diagnosis.diagnose import conclude, describe, exit_code_of, open_incident
from faultrun.core.diagnosis.signatures import signal_name
from faultrun.model.events import HelperExit, SpawnFailed, WorkerExit
from faultrun.model.exits import Exited, Signaled
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.progress import RankStep
from faultrun.model.run import Phase, RunState
from support.stories.story import NODE, SIGKILL, SIGSEGV, SIGTERM, in_phase

KILLED, TERMINATED = Signaled(signum=SIGKILL), Signaled(signum=SIGTERM)
SIGABRT = 6
NEVER = 1e9
RUNNING = in_phase(Phase.RUNNING)


def stepped(steps: tuple[RankStep, ...]) -> RunState:
    return replace(RUNNING, life=RUNNING.life.stepped(steps))


def exit_of(rank: int, status: Exited | Signaled, at_s: float = 0.0) -> WorkerExit:
    return WorkerExit(at_s=at_s, incarnation=0, node=NODE, rank=rank, pid=rank, status=status)


def judged(*exits: WorkerExit, ours_from_s: float = NEVER, notes: tuple[DeathNote, ...] = ()) -> Incident:
    fault = next(one for one in exits if not one.clean)
    return conclude(open_incident(RUNNING, fault), exits, ours_from_s, notes)


def test_the_first_in_kernel_order_failed_and_the_others_followed() -> None:
    found = judged(exit_of(2, Exited(code=1), 5), exit_of(0, TERMINATED, 6), exit_of(1, Exited(code=143), 7))
    assert (found.rank, found.cause, found.followers, found.together) == (2, Cause.EXIT, (0, 1), ())
    assert (found.at_s, found.explanation) == (5, "exited with code 1")


def test_a_sigkill_that_is_reaped_a_moment_late_outranks_the_broken_collective_of_a_peer() -> None:
    found = judged(exit_of(0, Signaled(signum=SIGABRT), 5.0), exit_of(3, KILLED, 5.02))
    assert (found.rank, found.followers, found.cause) == (3, (0,), Cause.SIGNAL)


def test_a_sigkill_long_after_the_first_failure_is_not_its_cause_but_no_follower_either() -> None:
    found = judged(exit_of(0, Exited(code=1), 5), exit_of(3, KILLED, 6), exit_of(2, TERMINATED, 7))
    assert (found.rank, found.together, found.followers) == (0, (3,), (2,))


def test_a_memory_fault_long_after_the_first_failure_is_a_survivors_end_that_went_wrong() -> None:
    found = judged(exit_of(0, KILLED, 5), exit_of(3, Signaled(signum=SIGSEGV), 6))
    assert (found.rank, found.together, found.followers) == (0, (), (3,))


def test_ranks_that_are_killed_at_once_are_named_together() -> None:
    found = judged(exit_of(1, KILLED, 5), exit_of(2, KILLED, 5.01), exit_of(0, TERMINATED, 5.1))
    assert (found.rank, found.together, found.followers) == (1, (2,), (0,))


def test_our_own_sigkill_at_the_end_of_a_short_window_blames_nobody() -> None:
    found = judged(exit_of(1, Exited(code=1), 5), exit_of(0, KILLED, 5.1), ours_from_s=5.1)
    assert (found.rank, found.followers, found.together) == (1, (0,), ())
    also = judged(exit_of(1, KILLED, 5), exit_of(0, KILLED, 5.1), ours_from_s=5.1)
    assert (also.rank, also.followers, also.together) == (1, (0,), ())


def test_a_rank_that_finished_is_no_follower() -> None:
    found = judged(exit_of(0, Exited(code=0), 1), exit_of(1, KILLED, 5))
    assert (found.rank, found.followers) == (1, ())


def test_the_last_line_is_the_first_failures_own() -> None:
    notes = (DeathNote(rank=0, last_line="peer is gone"), DeathNote(rank=1, last_line="CUDA error"))
    found = judged(exit_of(1, Exited(code=1)), exit_of(0, TERMINATED, 1), notes=notes)
    assert found.last_line == "CUDA error"


def test_a_step_that_was_reported_is_not_overruled_by_a_log() -> None:
    opened = open_incident(stepped((RankStep(rank=0, step=7),)), exit_of(0, KILLED))
    found = conclude(opened, (exit_of(0, KILLED),), NEVER, (DeathNote(rank=0, logged_step=99),))
    assert (found.step, found.step_from_log) == (7, False)


def test_the_failed_rank_has_a_step_of_its_own_beside_how_far_training_was() -> None:
    steps = (RankStep(rank=0, step=14), RankStep(rank=1, step=10))
    fault = exit_of(1, KILLED)
    found = conclude(open_incident(stepped(steps), fault), (fault,), NEVER, (), steps)
    assert (found.step, found.own_step) == (14, 10)
    logs = (DeathNote(rank=0, logged_step=41), DeathNote(rank=1, logged_step=40))
    found = conclude(open_incident(RUNNING, fault), (fault,), NEVER, logs)
    assert (found.step, found.own_step, found.step_from_log) == (41, 40, True)
    silent = conclude(open_incident(RUNNING, fault), (fault,), NEVER, ())
    assert (silent.step, silent.own_step) == (None, None)


def test_the_scheduler_and_the_kernel_are_blamed_without_blaming_a_rank() -> None:
    fallen = HelperExit(at_s=1, incarnation=0, name="scheduler", pid=9, status=KILLED)
    found = conclude(open_incident(RUNNING, fallen), (exit_of(0, TERMINATED, 2),), NEVER, ())
    assert (found.cause, found.rank, found.followers) == (Cause.SCHEDULER, None, (0,))
    assert found.explanation == "scheduler (pid 9) killed by SIGKILL while it was needed"

    unborn = SpawnFailed(at_s=1, incarnation=0, rank=2, errno=2, why="could not start it")
    found = conclude(open_incident(RUNNING, unborn), (exit_of(0, TERMINATED, 2),), NEVER, ())
    assert (found.cause, found.rank, found.followers) == (Cause.SPAWN, 2, (0,))


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (Exited(code=1), "exited with code 1", 1),
        (Exited(code=137), "exited with code 137", 137),
        (KILLED, "killed by SIGKILL", 137),
        (TERMINATED, "killed by SIGTERM", 143),
        (Signaled(signum=SIGSEGV), "killed by SIGSEGV", 139),
        (Signaled(signum=63), "killed by signal 63", 191),
    ],
)
def test_a_program_that_returns_137_and_one_that_is_killed_are_told_apart(
    status: Exited | Signaled, words: str, code: int
) -> None:
    assert (describe(status), exit_code_of(status)) == (words, code)


def test_the_signal_numbers_are_those_of_this_kernel() -> None:
    import signal

    for name in ("SIGHUP", "SIGKILL", "SIGBUS", "SIGSEGV", "SIGTERM", "SIGCONT", "SIGSTOP", "SIGSYS"):
        assert signal_name(getattr(signal, name)) == name


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from([Exited(code=0), Exited(code=1), KILLED, TERMINATED]),
            st.floats(0, 0.5),
        ),
        unique_by=lambda one: one[0],
    ).filter(lambda all_: any(status != Exited(code=0) for _, status, _ in all_)),
    st.floats(0, 1),
)
def test_every_rank_that_failed_has_exactly_one_role(
    deaths: list[tuple[int, Exited | Signaled, float]], ours_from_s: float
) -> None:
    exits = sorted((exit_of(*death) for death in deaths), key=lambda one: one.at_s)
    found = judged(*exits, ours_from_s=ours_from_s)
    roles = [found.rank, *found.followers, *found.together]
    assert sorted(role for role in roles if role is not None) == sorted(
        one.rank for one in exits if not one.clean
    )
    for rank in found.together:
        assert next(one for one in exits if one.rank == rank).at_s < ours_from_s
