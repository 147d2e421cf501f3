"""The catalog's memory: what is read once, what is read again, and how little room that takes."""

import gc
import json
import os
import select
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.checkpoints import names
from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import verify_all
from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.model.checkpoint import Depth, Entry, Verdict
from support.checkpoints.catalogs import catalog_of
from support.checkpoints.ckpt_bytes import ckpt, save
from support.machine.processes import no_more_threads


class Counting:
    """A real format that counts how often it is asked to open something."""

    name = "counting"

    def __init__(self) -> None:
        self.headers: list[str] = []
        self.verified: list[str] = []

    def claim(self, listing: Listing) -> Iterator[Claim]:
        for name in listing.files:
            if name.endswith(".bin"):
                yield Claim(path=listing.join(name), members=(name,))

    def read(self, entry: Entry) -> Entry:
        self.headers.append(Path(entry.path).name)
        return replace(
            entry, global_step=int(Path(entry.path).read_text() or 0), rank=3, replica_group=(3, 1)
        )

    def verify(self, entry: Entry, look: Look) -> Verdict:
        self.verified.append(Path(entry.path).name)
        return Verdict(whole=True, why="counted", depth=Depth.CHECKSUM, digest="sha256:00")


class Headless(Counting):
    """Files whose contents say nothing."""

    def read(self, entry: Entry) -> Entry:
        self.headers.append(Path(entry.path).name)
        return entry


class Unproved(Counting):
    """Files without checksums."""

    def verify(self, entry: Entry, look: Look) -> Verdict:
        return replace(super().verify(entry, look), depth=Depth.STRUCTURE)


class Slow(Counting):
    """A disk that is waited for, so that several are read at a time."""

    def read(self, entry: Entry) -> Entry:
        select.select([], [], [], 0.001)
        return super().read(entry)


def counting(root: Path, one: Counting, memory: Path | None = None) -> Catalog:
    return catalog_of(root, (one,), memory=memory)


def test_nothing_is_read_twice_by_one_process(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    one = Counting()
    catalog = counting(tmp_path, one)
    (entry,) = catalog.scan().entries
    assert catalog.scan().entries == (entry,)
    assert catalog.verify(entry) == catalog.verify(entry)
    assert (one.headers, one.verified) == (["a.bin"], ["a.bin"])


def test_many_files_are_read_and_proved_where_no_thread_is_to_be_had(tmp_path: Path) -> None:
    for number in range(100):
        save(tmp_path / f"{number}.bin", b"1")
    one = Slow()
    catalog = counting(tmp_path, one)
    with no_more_threads():
        verdicts = verify_all(catalog, catalog.scan().entries)
    assert all(verdict.whole for verdict in verdicts.values())
    assert len(set(one.headers)) == len(one.verified) == 100


def test_nothing_is_read_again_by_the_next_process(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    memory = tmp_path / "log/checkpoints.jsonl"
    memory.parent.mkdir()
    first = counting(tmp_path, Counting(), memory)
    (entry,) = first.scan().entries
    verdict = first.verify(entry)
    second = Counting()
    again = counting(tmp_path, second, memory)
    assert again.scan().entries == (entry,)
    assert again.verify(entry) == verdict
    assert (second.headers, second.verified) == ([], [])


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    one = Counting()
    catalog = counting(tmp_path, one)
    catalog.verify(catalog.scan().entries[0])
    save(tmp_path / "new", b"2").replace(tmp_path / "a.bin")
    (entry,) = catalog.scan().entries
    assert entry.global_step == 2
    catalog.verify(entry)
    assert (one.headers, one.verified) == (["a.bin"] * 2, ["a.bin"] * 2)


@pytest.mark.long
def test_a_torn_memory_costs_time_and_nothing_else(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    memory = tmp_path / "checkpoints.jsonl"
    catalog = counting(tmp_path, Counting(), memory)
    catalog.verify(catalog.scan().entries[0])
    lines = memory.read_bytes()
    for size in range(len(lines)):
        memory.write_bytes(lines[:size] + b"\n{]\n[1]\n" + b'{"s":["x"]}\n' + b"\xff\n")
        again = counting(tmp_path, Counting(), memory)
        (entry,) = again.scan().entries
        assert (entry.global_step, entry.rank) == (1, 3)
        assert again.verify(entry).whole


def test_a_memory_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    catalog = counting(tmp_path, Counting(), tmp_path / "absent/checkpoints.jsonl")
    assert catalog.verify(catalog.scan().entries[0]).whole


def test_an_answer_that_may_change_is_not_remembered(tmp_path: Path) -> None:
    memory = tmp_path / "checkpoints.jsonl"
    save(tmp_path / "net-1_1.ckpt", ckpt(None, None))
    lone = catalog_of(tmp_path, memory=memory)
    assert not lone.verify(lone.scan().entries[0]).whole
    save(tmp_path / "net-1_2.ckpt", ckpt(None, None))
    now = catalog_of(tmp_path, memory=memory)
    assert all(now.verify(entry).whole for entry in now.scan().entries)


def test_the_memory_holds_no_more_than_one_line_for_each_thing_learned(tmp_path: Path) -> None:
    memory = tmp_path / "checkpoints.jsonl"
    save(tmp_path / "a.bin", b"1")
    for _ in range(3):
        catalog = counting(tmp_path, Counting(), memory)
        catalog.verify(catalog.scan().entries[0])
    lines = [json.loads(line) for line in memory.read_text().splitlines()]
    assert len(lines) == 2


def test_a_memory_that_has_grown_long_keeps_what_is_there_and_what_is_left_alone(tmp_path: Path) -> None:
    memory = tmp_path / "log/checkpoints.jsonl"
    memory.parent.mkdir()
    old, new = save(tmp_path / "old.bin", b"1"), save(tmp_path / "new.bin", b"2")
    first = counting(tmp_path, Counting(), memory)
    for entry in first.scan().entries:
        first.verify(entry)
    first.leave_alone(entry for entry in first.scan().entries if entry.path == str(old))
    learned = memory.read_text()
    first.tidy(first.scan())
    assert memory.read_text() == learned, "short as it is, it is left as it is"
    gone = "".join(learned.replace("new.bin", f"gone{number}.bin") for number in range(1100))
    gone = gone.replace(f'"s":[{new.stat().st_ino},', '"s":[1,')
    memory.write_text(gone + learned)
    again = counting(tmp_path, Counting(), memory)
    again.tidy(again.scan())
    assert len(memory.read_text().splitlines()) == 4
    asked = Counting()
    third = counting(tmp_path, asked, memory)
    (entry,) = third.scan().entries
    assert entry.path == str(new)
    assert third.verify(entry).whole
    assert (asked.headers, asked.verified) == ([], [])


@pytest.mark.long
def test_files_that_are_gone_take_no_room_in_a_long_run(tmp_path: Path) -> None:
    catalog = counting(tmp_path, Counting(), tmp_path / "memory.jsonl")
    held_bytes = []
    tracemalloc.start()
    for life in range(6):
        paths = [save(tmp_path / f"{life}-{number}.bin", b"1") for number in range(50)]
        for entry in catalog.scan().entries:
            catalog.verify(entry)
        for path in paths:
            path.unlink()
        catalog.tidy(catalog.scan())
        for bounded in [one for one in vars(names).values() if hasattr(one, "cache_clear")]:
            bounded.cache_clear()
        held_bytes.append(held_by_checkpoints())
    tracemalloc.stop()
    assert held_bytes[-1] - held_bytes[1] < 200 * 50, "fifty bytes a file"


def held_by_checkpoints() -> int:
    gc.collect()
    ours = [tracemalloc.Filter(True, "*/faultrun/checkpoints/*")]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)


@pytest.mark.long
def test_to_look_ahead_again_and_again_takes_room_for_what_is_there_only(tmp_path: Path) -> None:
    """A run that keeps its newest saves looks at all that there ever were, for weeks."""
    catalog = counting(tmp_path, Counting(), tmp_path / "memory.jsonl")
    held_bytes = []
    tracemalloc.start()
    for number in range(600):
        save(tmp_path / f"{number}.bin", b"1")
        if number:
            (tmp_path / f"{number - 1}.bin").unlink()
        assert catalog.look_ahead() == 1
        if number % 100 == 99:
            held_bytes.append(held_by_checkpoints())
    tracemalloc.stop()
    assert held_bytes[-1] - held_bytes[1] < 400 * 50, "fifty bytes a file"


def test_what_was_read_ahead_is_not_read_again(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    one = Counting()
    catalog = counting(tmp_path, one)
    assert catalog.look_ahead() == 1
    (entry,) = catalog.scan().entries
    assert catalog.verify(entry).whole
    assert (one.headers, one.verified) == (["a.bin"], ["a.bin"])


def test_of_large_saves_nothing_but_the_header_is_read_ahead(tmp_path: Path) -> None:
    save(tmp_path / "older.bin", b"1")
    os.utime(tmp_path / "older.bin", (1, 1))
    save(tmp_path / "large.bin", b"2")
    os.truncate(tmp_path / "large.bin", 17 << 20)
    one = Headless()
    assert counting(tmp_path, one).look_ahead() == 2
    assert sorted(one.headers) == ["large.bin", "older.bin"]
    assert one.verified == []


def test_what_no_checksum_of_its_own_proves_is_judged_again_by_what_lies_beside_it_then(
    tmp_path: Path,
) -> None:
    path = save(tmp_path / "old.bin", b"1")
    one = Unproved()
    catalog = counting(tmp_path, one)
    assert [catalog.look_ahead() for _ in range(3)] == [1, 1, 1]
    (tmp_path / "old.bin.sha256").write_text(f"{'0' * 64}  old.bin\n")
    (entry,) = catalog.scan().entries
    assert entry.path == str(path)
    assert not catalog.verify(entry).whole
    assert one.verified == ["old.bin", "old.bin"]


def test_when_a_file_was_first_seen_outlives_a_folder_that_cannot_be_looked_into(tmp_path: Path) -> None:
    save(tmp_path / "there/a.bin", b"1")
    catalog = counting(tmp_path, Counting())
    catalog.know(catalog.scan().entries, life=3)
    (tmp_path / "there").rename(tmp_path / ".away")
    assert catalog.look_ahead() == 0
    (tmp_path / ".away").rename(tmp_path / "there")
    assert [entry.first_seen for entry in catalog.scan().entries] == [3]


class FailsOnce(Counting):
    """The first look comes too early, or has no descriptor left."""

    def read(self, entry: Entry) -> Entry:
        if not self.headers:
            self.headers.append("too early")
            raise Unreadable("it has no end")
        return super().read(entry)


def test_a_header_that_could_not_be_read_once_says_nothing_about_the_next_look(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    catalog = counting(tmp_path, FailsOnce())
    assert catalog.scan().entries[0].global_step is None
    (entry,) = catalog.scan().entries
    assert entry.global_step == 1
    assert catalog.verify(entry).whole


def test_a_file_that_changes_between_listing_and_verifying_is_still_being_written(tmp_path: Path) -> None:
    path = save(tmp_path / "a.bin", b"1")
    catalog = counting(tmp_path, Counting())
    (entry,) = catalog.scan().entries
    path.write_bytes(b"12")
    verdict = catalog.verify(entry)
    assert (verdict.whole, verdict.provisional) == (False, True)
    assert "still being written" in verdict.why
    path.unlink()
    assert not catalog.verify(entry).whole
