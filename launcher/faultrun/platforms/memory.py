"""How much memory may still be used before the kernel ends somebody: the machine's and the container's."""

from pathlib import Path

import psutil

from faultrun.platforms.cgroup import limits

_RESERVE_BYTES = 1 << 30
_RESERVE_PART = 10
"""What must stay free: a tenth, and a GiB at the least. Training grows, and its checkpoints are cached."""


def spendable_bytes(root: Path = Path("/")) -> int | None:
    """Free memory beyond a reserve, negative when that is touched already; None when nothing says.

    ``root`` is where the control group's files are looked for.

    In a control group the page cache counts as used; what of it can be dropped at once
    (``inactive_file``) is counted as free, as the kubelet does for its evictions.
    """
    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError):
        return None
    spendable = _beyond_reserve(memory.total, memory.available)
    group = limits(root)
    if group.memory_bytes is None:
        return spendable
    if group.memory_used_bytes is None:
        return None
    free = group.memory_bytes - group.memory_used_bytes + _droppable(root)
    return min(spendable, _beyond_reserve(group.memory_bytes, free))


def _beyond_reserve(total: int, free: int) -> int:
    return free - max(_RESERVE_BYTES, total // _RESERVE_PART)


def _droppable(root: Path) -> int:
    """Inactive page cache of our own control group, 0 where it cannot be seen."""
    for folder in ("sys/fs/cgroup", "sys/fs/cgroup/memory"):
        stat = _numbers(root / folder / "memory.stat")
        found = stat.get("total_inactive_file", stat.get("inactive_file"))
        if found is not None:
            return found
    return 0


def _numbers(path: Path) -> dict[str, int]:
    """``name number`` of each line; empty when the file cannot be read."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(" ") for line in lines)
    words = ((name.strip(), rest.split()) for name, _, rest in pairs)
    return {name: int(rest[0]) for name, rest in words if rest and rest[0].isdigit()}
