"""A copy in memory is used whole, of this rank and run, or not at all."""

from hypothesis import given
from hypothesis import strategies as st

from faultrun.sdk.snapshot import SnapshotFull, SnapshotOwner, Snapshots, bytes_needed

OWNER = SnapshotOwner(run_id="run", rank=1)
PLAN = b"plan"
SIZE = bytes_needed(len(PLAN), [100])


def state(step: int) -> list[memoryview]:
    return [memoryview(bytes([step]) * 100)]


def written(*steps: int) -> bytearray:
    memory = bytearray(SIZE)
    for step in steps:
        Snapshots(memory, OWNER).write(step, 0, PLAN, state(step))
    return memory


def test_the_two_newest_steps_are_kept_and_read_as_they_were_written() -> None:
    copies = Snapshots(written(3, 4, 5), OWNER)
    assert copies.steps == {4, 5}
    for step in (4, 5):
        found = copies.read(step)
        assert found is not None
        assert (found[0], bytes(found[1][:100])) == (PLAN, bytes([step]) * 100)
    assert copies.read(3) is None


def test_a_step_that_is_copied_again_takes_its_own_place() -> None:
    assert Snapshots(written(3, 4, 4, 3), OWNER).steps == {3, 4}


def test_new_memory_holds_nothing_and_another_ranks_or_runs_is_not_ours() -> None:
    assert not Snapshots(bytearray(SIZE), OWNER).steps
    memory = written(3, 4)
    for other in (SnapshotOwner(run_id="run", rank=2), SnapshotOwner(run_id="another", rank=1)):
        assert not Snapshots(memory, other).steps


def test_a_state_that_has_grown_is_refused_before_anything_is_written() -> None:
    copies = Snapshots(written(3, 4), OWNER)
    try:
        copies.write(5, 0, PLAN, [memoryview(bytes(SIZE))])
    except SnapshotFull as error:
        assert "room for" in str(error)
    assert copies.steps == {3, 4}


@given(st.integers(0, 4), st.integers(0, 200))
def test_a_writer_that_is_killed_anywhere_leaves_the_newer_copy_alone(parts: int, plan_bytes: int) -> None:
    class Dies(list[memoryview]):
        """Its ``parts``-th part is where the writer ends."""

        def __iter__(self):  # type: ignore[no-untyped-def]
            for number, one in enumerate(list.__iter__(self)):
                if number == parts:
                    raise KeyboardInterrupt
                yield one

    memory = bytearray(bytes_needed(200, [10] * 4))
    copies = Snapshots(memory, OWNER)
    pieces = [memoryview(b"x" * 10)] * 4
    for step in (3, 4):
        copies.write(step, 0, b"p" * plan_bytes, pieces)
    try:
        sizes = Dies(pieces)
        copies.write(5, 0, b"q" * plan_bytes, _Sized(sizes))
    except KeyboardInterrupt:
        assert Snapshots(memory, OWNER).steps == {4}
    else:
        assert Snapshots(memory, OWNER).steps == {4, 5}


class _Sized(list[memoryview]):
    """Counted whole, written in part: the first pass over the parts only adds up their sizes."""

    def __init__(self, dies: list[memoryview]) -> None:
        super().__init__(list.__iter__(dies))
        self._dies, self._passes = dies, 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        self._passes += 1
        return list.__iter__(self) if self._passes == 1 else iter(self._dies)


@given(st.integers(0, SIZE - 1), st.integers(1, 255), st.booleans())
def test_whatever_byte_of_header_or_plan_is_changed_the_copy_is_not_used_as_another(
    at: int, change: int, both: bool
) -> None:
    memory = written(3, 4)
    memory[at] ^= change
    if both:
        memory[(at * 7) % SIZE] ^= change
    copies = Snapshots(memory, OWNER)
    assert copies.steps <= {3, 4}
    for step in copies.steps:
        found = copies.read(step)
        assert found is not None
        assert found[0] == PLAN
