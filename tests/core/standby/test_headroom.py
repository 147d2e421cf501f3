"""Whether there is room for standbys, from made facts."""

from dataclasses import replace

import pytest

from faultrun.core.standby.headroom import (
    MOST_AT_ONCE,
    ProcessorRoom,
    ProcessorSample,
    idle_processors,
    processor_room,
    short_of_memory,
)

BEGIN = ProcessorSample(at_s=100.0, allowed=2, idle_s=50.0)
MIB = 1 << 20


def later(idle: float, *, passed_s: float = 1.0, of: ProcessorSample = BEGIN) -> ProcessorSample:
    """A sample of which ``idle`` processors did nothing since ``of``."""
    return replace(of, at_s=of.at_s + passed_s, idle_s=(of.idle_s or 0.0) + idle * passed_s)


def many(processors: int) -> ProcessorSample:
    return replace(BEGIN, allowed=processors)


def test_twice_as_many_processors_as_workers_are_room_at_once_however_busy_they_are() -> None:
    busy = later(0.0, of=many(4))
    assert processor_room(many(4), busy, 2) == ProcessorRoom(at_once=1, why="4 processors for 2 workers")
    assert processor_room(None, many(4), 2) is not None, "nothing needs to have been measured"
    assert processor_room(many(4), busy, 3) is None


@pytest.mark.parametrize(("idle", "room"), [(0.0, False), (0.85, False), (0.95, True), (1.7, True)])
def test_elsewhere_a_processor_must_have_stood_idle(idle: float, *, room: bool) -> None:
    assert (processor_room(BEGIN, later(idle), 2) is not None) is room


def test_what_was_seen_is_said() -> None:
    room = processor_room(BEGIN, later(1.26), 2)
    assert room is not None
    assert room.why == "1.3 of 2 processors stood idle"


def test_as_many_as_stand_idle_start_side_by_side_and_no_more_than_are_of_use() -> None:
    assert [at_once(idle, of=many(16)) for idle in (0.3, 1.0, 1.95, 5.2)] == [1, 1, 2, 5]
    assert at_once(60.0, of=many(64)) == MOST_AT_ONCE


def at_once(idle: float, of: ProcessorSample) -> int:
    room = processor_room(of, later(idle, of=of), 2)
    assert room is not None
    return room.at_once


def test_a_quota_counts_as_processors_and_what_was_spent_of_it_is_not_idle() -> None:
    pod = replace(many(64), quota=4.0, spent_s=10.0)
    assert processor_room(pod, replace(later(60.0, of=pod), spent_s=14.0), 3) is None, "all four are spent"
    half = replace(later(60.0, of=pod), spent_s=12.0)
    assert idle_processors(pod, half) == pytest.approx(2.0)
    assert processor_room(pod, half, 3) is not None
    assert processor_room(pod, replace(later(0.1, of=pod), spent_s=10.0), 3) is None, "the host is full"
    assert processor_room(pod, half, 2) == ProcessorRoom(at_once=2, why="4 processors for 2 workers")


def test_nothing_is_guessed_where_nobody_counts_and_nothing_read_from_a_moment() -> None:
    mute = replace(BEGIN, idle_s=None)
    assert processor_room(mute, later(2.0), 2) is None
    assert processor_room(BEGIN, replace(mute, at_s=101.0), 2) is None
    uncounted = replace(later(2.0), quota=2.0)
    assert processor_room(replace(BEGIN, quota=2.0), uncounted, 2) is None
    assert processor_room(BEGIN, later(2.0, passed_s=0.2), 2) is None
    assert processor_room(None, BEGIN, 2) is None


def test_counters_that_went_back_are_no_idle_time() -> None:
    assert idle_processors(BEGIN, replace(BEGIN, at_s=101.0, idle_s=1.0)) == 0.0


def test_all_standbys_have_memory_or_none_is_started() -> None:
    assert short_of_memory(2, 300 * MIB, 600 * MIB) == ""
    assert short_of_memory(2, 300 * MIB, 599 * MIB) == (
        "2 would need about 600 MiB, and only 599 MiB may be used beside a reserve"
    )
    assert short_of_memory(2, 300 * MIB, -5) == (
        "2 would need about 600 MiB, and none may be used beside a reserve"
    )
    assert short_of_memory(1, MIB, None) == "how much memory is free cannot be read"
