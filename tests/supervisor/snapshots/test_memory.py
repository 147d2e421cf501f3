"""How much memory ranks are given for copies of their state."""

import os

from faultrun.supervisor.snapshots.memory import NoMemory, SnapshotMemory

MIB = 1 << 20


def test_what_others_were_promised_and_have_not_written_yet_is_not_free() -> None:
    memory = SnapshotMemory(lambda: 100 * MIB)
    first = memory.grant(0, 40 * MIB)
    assert isinstance(first, int)
    assert memory.grant(1, 40 * MIB) == NoMemory(
        "40 MiB for copies of its state are more than half of the 60 MiB free"
    )
    os.pwrite(first, bytes(30 * MIB), 0)
    assert isinstance(memory.grant(1, 40 * MIB), int)
    assert memory.all().keys() == {0, 1}
    memory.drop()


def test_what_a_node_sends_again_is_written_over_the_copies_that_are_there() -> None:
    memory = SnapshotMemory(lambda: 100 * MIB)
    first = memory.grant_again(2, MIB)
    assert isinstance(first, int)
    os.pwrite(first, b"copies", 0)
    assert memory.grant_again(2, MIB) == first
    other = memory.grant_again(2, 2 * MIB)
    assert isinstance(other, int)
    assert os.pread(other, 6, 0) == bytes(6)
    assert isinstance(memory.grant_again(3, 90 * MIB), NoMemory)
    memory.drop()
