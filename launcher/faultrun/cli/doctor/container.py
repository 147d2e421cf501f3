"""Judges the container: its limits, shared memory, PID 1 and the kernel. Facts in, checks out."""

from collections.abc import Iterator, Mapping

from faultrun.cli.ckpt.rows import size_text
from faultrun.cli.doctor.check import Check, fail, ok, warn
from faultrun.platforms.cgroup import Limits
from faultrun.platforms.host import Process, Ulimit
from faultrun.platforms.storage import Room

_MIB = 1 << 20
_SHM_DEFAULT_BYTES = 64 * _MIB
_SHM_SMALL_BYTES = 1024 * _MIB
_FULL = 0.9
_FEW_FILES = 4096
_FEW_PIDS = 4096
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_INITS = frozenset({"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "runit", "s6-svscan"})
_PAUSE = "pause"


def limits_checks(limits: Limits, machine_bytes: int | None, processors: int) -> Iterator[Check]:
    """Memory, processors and processes, as the control groups allow them."""
    yield ok(
        "cgroup", f"version {limits.version}" if limits.version != "none" else "no control groups are seen"
    )
    yield _memory(limits, machine_bytes)
    if limits.cpus is None or limits.cpus >= processors:
        yield ok(
            "cpu", f"{processors} processors" + (f", quota {limits.cpus:g}" if limits.cpus else ", no quota")
        )
    else:
        yield warn(
            "cpu",
            f"a quota of {limits.cpus:g} on {processors} visible processors",
            f"libraries start {processors} threads a worker: OMP_NUM_THREADS={max(1, int(limits.cpus))}",
        )
    if limits.pids is None or limits.pids - (limits.pids_used or 0) >= _FEW_PIDS:
        yield ok(
            "pids", "no limit" if limits.pids is None else f"{limits.pids_used or 0} of {limits.pids} used"
        )
    else:
        yield warn(
            "pids",
            f"{limits.pids_used or 0} of {limits.pids} used; every thread counts",
            "raise the limit: kubelet's podPidsLimit, docker run --pids-limit",
        )


def shm_check(room: Room | None) -> Check:
    """Shared memory, which data loaders and collectives fill."""
    fix = "an emptyDir with medium: Memory at /dev/shm; docker run --shm-size=16g"
    if room is None:
        return warn("shm", "there is no /dev/shm", fix)
    text = f"{size_text(room.total_bytes)}, {size_text(room.free_bytes)} free"
    if room.total_bytes <= _SHM_DEFAULT_BYTES:
        return warn("shm", f"{text}: a container's default", fix)
    if room.free_bytes < min(_SHM_SMALL_BYTES, room.total_bytes * (1 - _FULL)):
        return warn("shm", f"{text}: nearly full", "ls -l /dev/shm shows what was left there")
    return ok("shm", text)


def ulimit_checks(limits: Mapping[str, Ulimit], devices: int) -> Iterator[Check]:
    """Open files, processes, core dumps and locked memory."""
    for name, enough, option in (("nofile", _FEW_FILES, "-n"), ("nproc", _FEW_PIDS, "-u")):
        limit = limits[name]
        if limit.soft is None or limit.soft >= enough:
            yield ok(name, _number(limit.soft))
        elif limit.hard is None or limit.hard >= enough:
            fix = f"ulimit {option} {_number(limit.hard)} before faultrun"
            yield warn(name, f"{limit.soft}, of {_number(limit.hard)} that are allowed", fix)
        else:
            fix = f"docker run --ulimit {name}=65536, or the limit of the node's container runtime"
            yield warn(name, f"{limit.soft}, and no more than {limit.hard} are allowed", fix)
    core = limits["core"].soft
    yield ok("core", "no core dumps" if core == 0 else f"core dumps up to {_bytes(core)}")
    locked = limits["memlock"].soft
    if locked is None or not devices:
        yield ok("memlock", _bytes(locked))
    else:
        yield warn(
            "memlock",
            f"{_bytes(locked)} may be locked, and drivers lock buffers for {devices} devices",
            "ulimit -l unlimited, or capability IPC_LOCK",
        )


def pid_1_check(first: Process | None, own_pid: int) -> Check:
    """PID 1 gets the SIGTERM, and the zombies."""
    if own_pid == 1:
        return ok("pid-1", "this very process")
    if first is None:
        return warn("pid-1", "cannot be seen", "mount /proc without hidepid")
    words = " ".join(first.words)[:60] or first.name
    if first.name in _SHELLS:
        return warn(
            "pid-1",
            f"is a shell: {words}",
            'it takes SIGTERM and passes none on: ENTRYPOINT ["faultrun"], or exec faultrun in its script',
        )
    if "faultrun" in words:
        return ok("pid-1", f"is faultrun: {words}")
    if first.name in _INITS:
        return ok("pid-1", f"{first.name}, an init")
    if first.name == _PAUSE:
        return ok("pid-1", "pause: the containers of the pod share their processes")
    return warn(
        "pid-1",
        f"{words}: neither faultrun nor an init",
        "start faultrun as PID 1, or tini -- before what is there",
    )


def parent_check(parent: Process | None) -> Check:
    """Who started us: a shell's script between an init and us does not pass signals on."""
    if parent is None:
        return ok("parent", "outside of this container")
    words = " ".join(parent.words)[:60] or parent.name
    script = parent.name in _SHELLS and any(not word.startswith("-") for word in parent.words[1:])
    if script and parent.parent == 1:
        return warn("parent", f"a shell's script: {words}", "end the script with exec faultrun ...")
    return ok("parent", words)


def kernel_check(missing: tuple[str, ...], release: str) -> Check:
    """What faultrun asks of the kernel."""
    if "pidfd" in missing:
        return fail(
            "kernel",
            f"{release} gives no pidfd",
            "Linux 5.4 or newer, and a seccomp profile that allows pidfd_open and pidfd_send_signal",
        )
    if missing:
        fix = "a newer kernel or a wider seccomp profile"
        return warn("kernel", f"{release} gives no {', '.join(missing)}", fix)
    return ok("kernel", f"{release}: pidfd, child subreaper, parent death signal, eventfd, inotify")


def _memory(limits: Limits, machine_bytes: int | None) -> Check:
    used = limits.memory_used_bytes
    if limits.memory_bytes is None or (machine_bytes is not None and limits.memory_bytes >= machine_bytes):
        return ok(
            "memory", f"no limit; the machine has {size_text(machine_bytes)}" if machine_bytes else "no limit"
        )
    text = f"limit {size_text(limits.memory_bytes)}"
    if used is None:
        return ok("memory", text)
    text += f", {size_text(used)} used"
    if used > _FULL * limits.memory_bytes:
        return warn("memory", text, "raise the limit; what lies in /dev/shm and in the page cache counts too")
    return ok("memory", text)


def _number(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)


def _bytes(limit: int | None) -> str:
    return "unlimited" if limit is None else size_text(limit)
