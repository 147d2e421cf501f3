"""Control groups, version 1, 2 or both: limits, what may still be used of them, processes that were killed.

A limit set on any group above ours counts too, as far as the container shows it. Files:
Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of the kernel.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from faultrun.core.standby.headroom import ProcessorSample
from faultrun.files import text_of

_Look = Callable[[Path, int], tuple[float | None, int | None]]
"""Reads a group of some version: its limit, and what is used."""

_UNLIMITED = 1 << 62
"""Version 1 writes a number near 2**63 for "no limit"."""


_RESERVE_BYTES = 1 << 30
_RESERVE_PART = 10
"""What must stay free: a tenth, and a GiB at the least. Training grows, and its checkpoints are cached."""
_IDLE, _IOWAIT = 4, 5  # fields of a "cpu<n>" line in proc_stat(5), its name included
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None where there is no limit, or nothing says. ``cpus`` is the quota in processors.

    ``version`` is ``v1``, ``v2``, ``v1 and v2`` or ``none``.
    """

    version: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    cpus: float | None
    pids: int | None
    pids_used: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    """A control group file system: the group it shows at ``path``, and its controllers."""

    version: int
    shows: str
    path: Path
    controllers: frozenset[str]


def limits(root: Path = Path("/")) -> Limits:
    """Read the limits of this process; ``root`` is where ``proc`` and ``sys`` are looked for."""
    mounts = tuple(_mounts(root))
    groups = _groups(root)
    versions = sorted({mount.version for mount in mounts})
    memory_bytes, memory_used = _tightest(mounts, groups, "memory", _memory)
    of_pids = lambda folder, _: (_whole(folder / "pids.max"), _whole(folder / "pids.current"))  # noqa: E731
    pids, pids_used = _tightest(mounts, groups, "pids", of_pids)
    cpus, _ = _tightest(mounts, groups, "cpu", _cpus)
    return Limits(
        version=" and ".join(f"v{version}" for version in versions) or "none",
        memory_bytes=None if memory_bytes is None else int(memory_bytes),
        memory_used_bytes=memory_used,
        cpus=cpus,
        pids=None if pids is None else int(pids),
        pids_used=pids_used,
    )


def processor_sample(root: Path = Path("/")) -> ProcessorSample:
    """How busy the processors are that this process may use: by affinity, ``/proc/stat`` and control group.

    Two samples make a measurement; what it means is ``core.standby.headroom``'s. One costs a tenth of a
    millisecond. ``root`` is where ``proc`` and ``sys`` are looked for.
    """
    allowed = os.sched_getaffinity(0)
    at_s = time.monotonic()
    quota, used_us = _tightest(tuple(_mounts(root)), _groups(root), "cpu", _cpus)
    spent_s = used_us / 1e6 if quota is not None and used_us is not None else None
    idle_s = _idle_s(root, allowed)
    return ProcessorSample(at_s=at_s, allowed=len(allowed), idle_s=idle_s, quota=quota, spent_s=spent_s)


def memory_group(pid: int, root: Path = Path("/")) -> Path | None:
    """The folder of the control group that ``pid`` belongs to for its memory; None where nothing shows it."""
    return next((folder for folder, _ in _folders(tuple(_mounts(root)), _groups(root, pid), "memory")), None)


def oom_kill_count(group: Path | None) -> int:
    """Processes that the OOM killer has ended in ``group`` so far; 0 where nothing counts them.

    ``oom_kill`` in ``memory.events`` (version 2, with the groups below) or ``memory.oom_control`` (version 1,
    this group alone): readable where the kernel's log is not.
    """
    for name in ("memory.events", "memory.oom_control") if group is not None else ():
        for line in text_of((group or Path()) / name).splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.strip().isdigit():
                return int(value)
    return 0


def spendable_bytes(root: Path = Path("/")) -> int | None:
    """Free memory beyond a reserve, negative when that is touched already; None when nothing says.

    ``root`` is where the control group's files are looked for.

    In a control group the page cache counts as used; what of it can be dropped at once
    (``inactive_file``) is counted as free, as the kubelet does for its evictions.
    """
    lines = (line.split() for line in text_of(Path("/proc/meminfo")).splitlines())
    memory = {words[0]: int(words[1]) << 10 for words in lines if words[-1] == "kB"}
    if not {"MemTotal:", "MemAvailable:"} <= memory.keys():
        return None
    spendable = _beyond_reserve(memory["MemTotal:"], memory["MemAvailable:"])
    if (group := limits(root)).memory_bytes is None:
        return spendable
    if group.memory_used_bytes is None:
        return None
    free = group.memory_bytes - group.memory_used_bytes + _droppable(root)
    return min(spendable, _beyond_reserve(group.memory_bytes, free))


def _idle_s(root: Path, allowed: set[int]) -> float | None:
    """How long ``allowed`` have been idle; None where one of them is not shown, or nothing is counted.

    A sandbox (gVisor) shows zeros: time that is neither used nor idle is none.
    """
    idle = counted = seen = 0
    for line in text_of(root / "proc/stat").splitlines():
        name, *fields = line.split()
        number = name.removeprefix("cpu")
        if number.isdecimal() and int(number) in allowed and len(fields) >= _IOWAIT:
            seen += 1
            counted += sum(map(int, fields))
            idle += int(fields[_IDLE - 1]) + int(fields[_IOWAIT - 1])
    return idle / _TICKS if seen == len(allowed) and counted else None


def _tightest(
    mounts: tuple[_Mount, ...], groups: dict[str, str], controller: str, look: _Look
) -> tuple[float | None, int | None]:
    """The smallest limit of our group and those above, and what is used where it applies."""
    least: float | None = None
    used: int | None = None
    for folder, version in _folders(mounts, groups, controller):
        limit, use = look(folder, version)
        if use is not None and used is None:
            used = use
        if limit is not None and limit < _UNLIMITED and (least is None or limit < least):
            least, used = limit, use if use is not None else used
    return least, used


def _memory(folder: Path, version: int) -> tuple[float | None, int | None]:
    if version == 2:
        return _whole(folder / "memory.max"), _whole(folder / "memory.current")
    return _whole(folder / "memory.limit_in_bytes"), _whole(folder / "memory.usage_in_bytes")


def _cpus(folder: Path, version: int) -> tuple[float | None, int | None]:
    if version == 2:
        quota, _, period = text_of(folder / "cpu.max").strip().partition(" ")
    else:
        quota, period = (text_of(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    if not quota.isdigit() or not period.isdigit() or not int(period):
        return None, None
    return int(quota) / int(period), _used_us(folder, version)


def _used_us(folder: Path, version: int) -> int | None:
    """Processor time of a group and those below it, in microseconds."""
    if version == 1:
        used_ns = _whole(folder / "cpuacct.usage")
        return None if used_ns is None else used_ns // 1000
    words = (line.split() for line in text_of(folder / "cpu.stat").splitlines())
    return next((int(one[1]) for one in words if one[:1] == ["usage_usec"] and one[1].isdigit()), None)


def _folders(
    mounts: tuple[_Mount, ...], groups: dict[str, str], controller: str
) -> Iterator[tuple[Path, int]]:
    """Our group for a controller, then those above it up to the mount."""
    for mount in mounts:
        if mount.version == 1 and controller not in mount.controllers:
            continue
        if (group := groups.get(controller if mount.version == 1 else "")) is None:
            continue
        inside = PurePosixPath(group)
        shown = inside.relative_to(mount.shows) if inside.is_relative_to(mount.shows) else PurePosixPath()
        folder = mount.path / shown
        while True:
            yield folder, mount.version
            if folder == mount.path:
                break
            folder = folder.parent


def _mounts(root: Path) -> Iterator[_Mount]:
    """Control groups in ``mountinfo``; its fields are in proc_pid_mountinfo(5)."""
    for line in text_of(root / "proc/self/mountinfo").splitlines():
        left, dash, right = line.partition(" - ")
        fields, system = left.split(), right.split()
        if dash and len(fields) > 4 and len(system) > 2 and system[0] in {"cgroup", "cgroup2"}:
            version = 2 if system[0] == "cgroup2" else 1
            path = root / fields[4].lstrip("/")
            controllers = frozenset(system[2].split(","))
            yield _Mount(version=version, shows=fields[3], path=path, controllers=controllers)


def _groups(root: Path, pid: int | None = None) -> dict[str, str]:
    """The group of ``pid`` (ours) for each controller, cgroups(7); version 2 stands under the empty name."""
    found: dict[str, str] = {}
    for line in text_of(root / "proc" / ("self" if pid is None else str(pid)) / "cgroup").splitlines():
        _, names, group = (*line.split(":", 2), "", "")[:3]
        for name in names.split(","):
            found[name] = group
    return found


def _beyond_reserve(total: int, free: int) -> int:
    return free - max(_RESERVE_BYTES, total // _RESERVE_PART)


def _droppable(root: Path) -> int:
    """Inactive page cache of our own control group, 0 where it cannot be seen."""
    for folder in ("sys/fs/cgroup", "sys/fs/cgroup/memory"):
        lines = (line.split() for line in text_of(root / folder / "memory.stat").splitlines())
        stat = {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdigit()}
        if (found := stat.get("total_inactive_file", stat.get("inactive_file"))) is not None:
            return found
    return 0


def _whole(path: Path) -> int | None:
    text = text_of(path).strip()
    return int(text) if text.isdigit() else None
