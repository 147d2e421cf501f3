"""Which steps MindSpore's files stand for, whatever sessions wrote them and wherever these began."""

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from faultrun.checkpoints.formats.mindspore.epoch_steps import (
    infer_steps_per_epoch,
    with_steps_of_all_sessions,
)
from faultrun.model.checkpoint import Entry, Kind


def saves(session: int, begin: int, steps_per_epoch: int, every: int, until: int) -> Iterator[Entry]:
    """What ``ModelCheckpoint`` writes after ``Model.train(initial_epoch=..)`` and ``set_init_step(begin)``.

    The first epoch is shorter by what was done of it; the step in a name counts in whole epochs all the same.
    """
    first, left = begin // steps_per_epoch + 1, steps_per_epoch - begin % steps_per_epoch
    for done in range(every, until + 1, every):
        epoch = first if done <= left else first + 1 + (done - left - 1) // steps_per_epoch
        step = (done - 1) % steps_per_epoch + 1
        suffix = f"_{session}" if session else ""
        yield Entry(
            path=f"/ckpt/net{suffix}-{epoch}_{step}.ckpt",
            format="mindspore",
            kind=Kind.PERIODIC,
            size_bytes=1,
            mtime_ns=1,
            inode=1,
            epoch=epoch,
            step_in_epoch=step,
            global_step=begin + done,
            series="net-",
            session=session,
        )


@st.composite
def trainings(draw: st.DrawFn) -> list[Entry]:
    """Sessions that each begin at any step that one before had done; of their files any may be gone."""
    steps_per_epoch, every = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    files: list[Entry] = []
    reached = 0
    for session in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, reached))
        length = draw(st.integers(1, 300))
        files += saves(session, begin, steps_per_epoch, every, length)
        reached = max(reached, begin + length)
    kept = draw(st.sets(st.integers(0, max(0, len(files) - 1)), max_size=12))
    return [files[at] for at in sorted(kept) if files]


@given(trainings())
def test_steps_of_a_training_that_goes_on_are_those_of_its_optimizer(files: list[Entry]) -> None:
    assert with_steps_of_all_sessions(files) == files


def test_few_files_of_a_session_that_began_within_an_epoch_mislead_nobody() -> None:
    """Two saves in an epoch of 40 steps, then a session from step 50: its files look like 50 an epoch."""
    files = [*saves(0, 0, 40, 20, 40), *saves(1, 50, 40, 20, 40)]
    assert [(one.epoch, one.step_in_epoch) for one in files[2:]] == [(2, 20), (3, 40)]
    assert infer_steps_per_epoch(files) == 50
    assert [one.global_step for one in with_steps_of_all_sessions(files)] == [20, 40, 70, 90]


@given(
    st.integers(2, 60), st.lists(st.tuples(st.integers(1, 5), st.integers(1, 120)), min_size=1, max_size=4)
)
def test_sessions_that_count_from_zero_again_are_lifted_where_epochs_were_saved_whole(
    steps_per_epoch: int, later: list[tuple[int, int]]
) -> None:
    """Weights alone are restored, at the end of an epoch: the optimizer begins with zero."""
    truth = list(saves(0, 0, steps_per_epoch, steps_per_epoch, 5 * steps_per_epoch))
    files = list(truth)
    for session, (epochs, length) in enumerate(later, 1):
        begin = epochs * steps_per_epoch
        wrote = list(saves(session, begin, steps_per_epoch, 1, length))
        truth += wrote
        files += [replace(one, global_step=(one.global_step or 0) - begin) for one in wrote]
    assert with_steps_of_all_sessions(files) == truth
