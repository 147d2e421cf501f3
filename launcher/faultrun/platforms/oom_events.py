"""How often the OOM killer has struck in a control group: readable where the kernel's log is not.

``oom_kill`` in ``memory.events`` (version 2, with the groups below) or
``memory.oom_control`` (version 1, this group alone); cgroup-v2.rst and
cgroup-v1/memory.rst in Documentation/admin-guide of the kernel.
"""

from pathlib import Path

_FILES = ("memory.events", "memory.oom_control")


def oom_kill_count(group: Path | None) -> int:
    """Processes that the OOM killer has ended in ``group`` so far; 0 where nothing counts them."""
    if group is None:
        return 0
    for name in _FILES:
        try:
            lines = (group / name).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.strip().isdigit():
                return int(value)
    return 0
