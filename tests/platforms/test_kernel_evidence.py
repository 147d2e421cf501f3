"""What the kernel says of dead processes and of memory: its log, and the counters of control groups."""

import os
from pathlib import Path

import psutil
import pytest

from faultrun.platforms.cgroup import memory_group, oom_kill_count, spendable_bytes
from faultrun.platforms.kernel_log import KernelLog, OomKill, Record, memory_fault, oom_kills, thread_fault

LINES = (
    "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:43292kB, anon-rss:32512kB,"
    " file-rss:6612kB, shmem-rss:0kB, UID:0 pgtables:124kB oom_score_adj:0",
    "Out of memory: Killed process 12 (a (b) c) total-vm:1kB, anon-rss:2kB, file-rss:0kB",
    "python3[99]: segfault at 0 ip 00007f error 4 in libtorch_cpu.so[7f00+1000]",
    "eth0: link becomes ready",
)


def test_the_processes_that_the_oom_killer_ended() -> None:
    assert oom_kills(LINES) == (
        OomKill(pid=4711, anon_rss_bytes=32512 * 1024),
        OomKill(pid=12, anon_rss_bytes=2048),
    )


def test_what_a_memory_fault_hit() -> None:
    assert memory_fault(LINES, 99).endswith("in libtorch_cpu.so[7f00+1000]")
    assert memory_fault(LINES, 4711) == ""


def thread(number: int, at_s: float) -> Record:
    return Record(text=f"RECV LOOP[{number}]: segfault at 0 ip 00007f error 4 in libx.so[7f00+1]", at_s=at_s)


@pytest.mark.parametrize(
    ("records", "known"),
    [
        ([thread(101, 50.1)], True),
        ([thread(101, 50.1), Record(text="eth0: link becomes ready", at_s=50.0)], True),
        ([thread(101, 20.0), thread(102, 50.1)], True),  # the first is an old one
        ([thread(101, 50.1), thread(99, 50.1)], True),  # that is the main thread of another rank
        ([thread(101, 50.1), thread(102, 50.2)], False),  # of whom?
        ([thread(99, 50.1)], False),
        ([thread(101, 53.0)], False),
        ([], False),
    ],
)
def test_the_memory_fault_of_a_thread_is_told_by_its_moment(records: list[Record], known: bool) -> None:
    told = thread_fault(records, died_at_s=50.0, others={99, 100})
    assert told == ("segfault at 0 ip 00007f error 4 in libx.so[7f00+1] (thread RECV LOOP)" if known else "")


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 5\noom 1\noom_kill 3\noom_group_kill 0\n", 3),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", 0),
        ("memory.events", "oom_kill many\n", 0),
    ],
)
def test_the_counters_of_both_versions(tmp_path: Path, name: str, text: str, count: int) -> None:
    (tmp_path / name).write_text(text)
    assert oom_kill_count(tmp_path) == count


def test_where_nothing_counts_there_were_none(tmp_path: Path) -> None:
    assert oom_kill_count(tmp_path) == 0
    assert oom_kill_count(None) == 0


def test_the_group_of_a_process_is_found_where_the_machine_has_groups() -> None:
    group = memory_group(os.getpid())
    assert group is None or group.is_dir()
    assert memory_group(2**22 + 1) == memory_group(2**22 + 1)


def test_a_kernel_log_that_may_not_be_read_is_empty(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path / "missing"))
    log.mark()
    assert log.records() == ()
    log.close()


def test_records_are_taken_apart_from_the_mark_on(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("6,1,5,-;before\n")
    log = KernelLog(str(path))
    with path.open("a") as file:
        file.write("6,2,9,-;after; more\n SUBSYSTEM=x\n")
    assert log.records() == (Record(text="after; more", at_s=0.000009),)
    assert log.records() == ()
    log.close()


GIB = 1 << 30


def group(root: Path, *, limit: int, used: int, droppable: int) -> Path:
    folder = root / "sys/fs/cgroup"
    folder.mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (root / "proc/self/cgroup").write_text("0::/\n")
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {droppable}\n")
    return root


def test_without_a_group_it_is_the_machines_beyond_a_reserve(tmp_path: Path) -> None:
    spendable = spendable_bytes(tmp_path)
    assert spendable is not None
    assert spendable < psutil.virtual_memory().total * 0.9


def test_a_small_group_is_what_counts_and_its_droppable_cache_is_free(tmp_path: Path) -> None:
    root = group(tmp_path, limit=GIB, used=GIB // 2, droppable=GIB // 4)
    assert spendable_bytes(root) == GIB * 3 // 4 - GIB
