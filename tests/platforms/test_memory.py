"""How much memory may still be used: the machine's, or the control group's where that is less."""

from pathlib import Path

import psutil

from faultrun.platforms.cgroup import spendable_bytes

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
