"""A copy in memory is used whole, of this rank and run, or not at all."""

import mmap
import os

from hypothesis import given
from hypothesis import strategies as st

from faultrun.sdk.snapshots.buffer import SnapshotFull, SnapshotOwner, Snapshots, Texts, bytes_needed

OWNER = SnapshotOwner(run_id="run", rank=1)
TEXTS = Texts(label=b"whose", plan=b"plan", pickled=b"p" * 70)
PARTS = 3, 100, 0, 64
SIZE = bytes_needed(TEXTS, PARTS)


def state(step: int) -> list[memoryview]:
    return [memoryview(bytearray([step]) * size) for size in PARTS]


def written(*steps: int, summed: bool = False) -> bytearray:
    memory = bytearray(SIZE)
    for step in steps:
        copies = Snapshots(memory, OWNER)
        copies.write(step, 0, TEXTS, state(step))
        if summed:
            copies.add_sum(step)
    return memory


def assert_as_written(copies: Snapshots, step: int) -> None:
    found = copies.read(step)
    assert found is not None
    assert found.texts == TEXTS
    at = 0
    for part in state(step):
        assert found.parts[at : at + part.nbytes] == part
        at += -(-part.nbytes // 64) * 64
    assert at == found.parts.nbytes


def test_the_two_newest_steps_are_kept_and_read_as_they_were_written() -> None:
    copies = Snapshots(written(3, 4, 5), OWNER)
    assert copies.steps == {4, 5}
    for step in (4, 5):
        assert_as_written(copies, step)
        assert copies.is_sound(step), "nobody has summed it"
    assert copies.read(3) is None
    assert not copies.is_sound(3)


def test_a_step_that_is_copied_again_takes_its_own_place() -> None:
    assert Snapshots(written(3, 4, 4, 3), OWNER).steps == {3, 4}


def test_what_will_be_done_again_is_forgotten() -> None:
    memory = written(3, 4)
    Snapshots(memory, OWNER).drop_after(3)
    assert Snapshots(memory, OWNER).steps == {3}
    Snapshots(memory, OWNER).write(5, 1, TEXTS, state(5))
    assert Snapshots(memory, OWNER).steps == {3, 5}


def test_new_memory_holds_nothing_and_another_ranks_or_runs_is_not_ours() -> None:
    assert not Snapshots(bytearray(SIZE), OWNER).steps
    assert not Snapshots(bytearray(10), OWNER).steps
    memory = written(3, 4)
    for other in (SnapshotOwner(run_id="run", rank=2), SnapshotOwner(run_id="another", rank=1)):
        assert not Snapshots(memory, other).steps


def test_a_state_that_has_grown_is_refused_before_anything_is_written() -> None:
    copies = Snapshots(written(3, 4), OWNER)
    try:
        copies.write(5, 0, TEXTS, [memoryview(bytes(SIZE))])
    except SnapshotFull as error:
        assert "room for" in str(error)
    assert copies.steps == {3, 4}


def test_large_parts_are_copied_into_mapped_memory_and_read_where_it_may_only_be_read() -> None:
    part = bytearray(os.urandom(300_000))
    size_bytes = bytes_needed(TEXTS, [len(part)])
    fd = os.memfd_create("snapshot")
    os.ftruncate(fd, size_bytes)
    Snapshots(mmap.mmap(fd, 0), OWNER).write(7, 2, TEXTS, [memoryview(part)])
    found = Snapshots(mmap.mmap(fd, 0, access=mmap.ACCESS_READ), OWNER).read(7)
    os.close(fd)
    assert found is not None
    assert found.parts[: len(part)] == part


def test_half_of_the_memory_is_a_copy_of_its_own_and_may_lie_anywhere() -> None:
    memory = written(3, 4, summed=True)
    half = len(memory) // 2
    there = bytearray(SIZE)
    there[half:] = memory[:half]
    copies = Snapshots(there, OWNER)
    assert copies.steps == {3}
    assert copies.is_sound(3)
    assert_as_written(copies, 3)


@given(st.integers(0, len(PARTS)), st.integers(1, 60), st.booleans())
def test_a_writer_killed_anywhere_leaves_the_newer_copy_alone(parts: int, every: int, summed: bool) -> None:
    first, second, third = every, 2 * every, 3 * every
    memory = written(first, second, summed=summed)
    try:
        Snapshots(memory, OWNER).write(third, 0, TEXTS, _Dies(state(third), parts))
    except KeyboardInterrupt:
        assert Snapshots(memory, OWNER).steps == {second}
        assert_as_written(Snapshots(memory, OWNER), second)
    else:
        assert Snapshots(memory, OWNER).steps == {second, third}


class _Dies(list[memoryview]):
    """Counted whole, written in part: its ``dies``-th part is where the writer ends."""

    def __init__(self, parts: list[memoryview], dies: int) -> None:
        super().__init__(parts)
        self._dies, self._passes = dies, 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        self._passes += 1
        for number, one in enumerate(list.__iter__(self)):
            if self._passes > 1 and number == self._dies:
                raise KeyboardInterrupt
            yield one


changes = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, 255)), min_size=1, max_size=4)


@given(changes, st.integers(0, SIZE))
def test_no_change_or_cut_leads_to_a_state_that_never_was(changed: list[tuple[int, int]], kept: int) -> None:
    memory = written(3, 4, summed=True)
    for at, change in changed:
        memory[at] ^= change
    for damaged in (memory, memory[:kept] + bytes(SIZE - kept), memory[:kept]):
        copies = Snapshots(damaged, OWNER)
        assert copies.steps <= {3, 4}
        for step in copies.steps:
            if copies.is_sound(step):
                assert_as_written(copies, step)


@given(changes)
def test_without_a_sum_header_and_texts_are_still_what_was_written(changed: list[tuple[int, int]]) -> None:
    memory = written(3, 4)
    for at, change in changed:
        memory[at] ^= change
    copies = Snapshots(memory, OWNER)
    for step in copies.steps:
        found = copies.read(step)
        assert found is not None
        assert (step in (3, 4), found.texts) == (True, TEXTS)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.text(), st.text())
def test_copies_of_another_rank_or_run_are_never_ours(rank: int, other: int, run: str, another: str) -> None:
    mine = SnapshotOwner(run_id=run, rank=rank)
    memory = bytearray(SIZE)
    Snapshots(memory, mine).write(3, 0, TEXTS, state(3))
    theirs = SnapshotOwner(run_id=another, rank=other)
    assert Snapshots(memory, theirs).steps == ({3} if theirs == mine else set())
