"""What the kernel counts of processors, from written-out trees and from the real machine."""

import os
from pathlib import Path

import pytest

from faultrun.core.standby.headroom import idle_processors
from faultrun.platforms.cgroup import processor_sample
from support.machine.processes import wait_until

TICKS = os.sysconf("SC_CLK_TCK")
MINE = sorted(os.sched_getaffinity(0))
V2 = "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"
V1 = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"


def tree(root: Path, **files: str) -> Path:
    """Files by their path with ``__`` for ``/`` and ``_DOT_`` for the dots that no argument can have."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def stat(idle: int, iowait: int = 0, *, numbers: list[int] | None = None) -> str:
    """A /proc/stat in which each processor has been idle for so many ticks; all others are never idle."""
    lines = [
        f"cpu{number} 7 0 3 {idle} {iowait} 0 0 0 0 0" for number in (MINE if numbers is None else numbers)
    ]
    return "\n".join(
        ("cpu  9 9 9 9 9 9 9 9 0 0", *lines, "cpu9999 1 1 1 77777 1 0 0 0 0 0", "intr 1", "ctxt 5\n")
    )


def test_only_the_processors_that_are_ours_count_and_waiting_for_a_disk_is_idle(tmp_path: Path) -> None:
    seen = processor_sample(tree(tmp_path, proc__stat=stat(2 * TICKS, TICKS)))
    assert seen.idle_s == pytest.approx(3.0 * len(MINE))
    assert (seen.allowed, seen.quota, seen.spent_s) == (len(MINE), None, None)


@pytest.mark.parametrize(
    "text", ["", stat(5, numbers=[]), "\n".join(f"cpu{number} 0 0 0 0 0 0 0 0" for number in MINE), "cpu0\n"]
)
def test_what_is_not_shown_or_not_counted_is_unknown(tmp_path: Path, text: str) -> None:
    assert processor_sample(tree(tmp_path, proc__stat=text)).idle_s is None


def test_the_quota_and_what_was_spent_of_it_version_2(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        proc__self__mountinfo=V2,
        proc__self__cgroup="0::/pods/one\n",
        sys__fs__cgroup__pods__cpu_DOT_max="300000 100000\n",
        sys__fs__cgroup__pods__cpu_DOT_stat="usage_usec 9500000\nuser_usec 1\n",
        sys__fs__cgroup__pods__one__cpu_DOT_max="max 100000\n",
        sys__fs__cgroup__pods__one__cpu_DOT_stat="usage_usec 100\n",
        proc__stat=stat(TICKS),
    )
    seen = processor_sample(root)
    assert (seen.quota, seen.spent_s) == (3.0, 9.5)
    assert seen.processors == min(len(MINE), 3.0)


def test_the_quota_and_what_was_spent_of_it_version_1(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        proc__self__mountinfo=V1,
        proc__self__cgroup="1:cpu,cpuacct:/\n",
        **{
            f"sys__fs__cgroup__cpu,cpuacct__{name}": text
            for name, text in {
                "cpu_DOT_cfs_quota_us": "50000\n",
                "cpu_DOT_cfs_period_us": "100000\n",
                "cpuacct_DOT_usage": "2500000000\n",
            }.items()
        },
    )
    seen = processor_sample(root)
    assert (seen.quota, seen.spent_s, seen.processors) == (0.5, 2.5, 0.5)


@pytest.mark.long
def test_this_machine_counts() -> None:
    first = processor_sample()
    if first.idle_s is None:
        pytest.skip("this kernel does not show how long its processors are idle")

    def measured() -> tuple[float] | None:
        idle = idle_processors(first, processor_sample())
        return None if idle is None else (idle,)

    (idle,) = wait_until(measured, within_s=30.0, what="half a second")
    assert 0.0 <= idle <= len(MINE)
