"""What ``faultrun doctor`` thinks of what was found out. Facts in, checks out; no machine is asked here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from faultrun.cli.ckpt.rows import size_text
from faultrun.locks import LEASE_S
from faultrun.model.spec.windows import TERMINATION_VARIABLE, Windows
from faultrun.platforms.cgroup import Limits
from faultrun.platforms.host import SeenProcess, Ulimit
from faultrun.platforms.storage import Room, Sample
from faultrun.platforms.this_machine import Accelerators

FRAMEWORKS = (
    "mindspore",
    "mindspore-ascend",
    "mindspore-gpu",
    "torch",
    "torch-npu",
    "tensorflow",
    "tensorflow-cpu",
)
_SHM_DEFAULT_BYTES, _SHM_SMALL_BYTES = 64 << 20, 1 << 30
_FULL = 0.9
_FEW_FILES = 4096
_FEW_PIDS = 4096
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_INITS = frozenset({"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "runit", "s6-svscan"})
_SKEW_S = 5.0
_FEW_INODES = 1000
_LITTLE_BYTES = 1 << 30
_SAVES_THAT_FIT = 2
_FIRST_SANE_S = 1_735_689_600.0  # 2025-01-01
_LAST_SANE_S = 4_102_444_800.0  # 2100-01-01
_STEP_S = 0.5
_KUBERNETES = "KUBERNETES_SERVICE_HOST"


class CheckStatus(str, Enum):
    """WARN: a run works, and may be slower, shorter of time or harder to understand.

    FAIL ends the doctor with 1: a run would not start, or not survive a fault.
    """

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it is, and what to do about it; ``fix`` is empty where all is well."""

    check: str
    status: CheckStatus
    what: str
    fix: str = ""

    def told(self, width: int) -> str:
        """One line for a person; ``width`` is that of the longest name."""
        line = f"{self.status.value:<4}  {self.check.ljust(width)}  {self.what}"
        return f"{line} · {self.fix}" if self.fix else line


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedFolder:
    """What was found out about a folder. ``place`` is where a sample was written: the folder, or one above.

    ``refused`` is why that failed, empty if it did not.
    """

    path: str
    place: str
    room: Room | None
    sample: Sample | None
    refused: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestSave:
    """The newest checkpoint that a folder holds, over all its ranks."""

    size_bytes: int
    files: int


def limits_checks(limits: Limits, machine_bytes: int | None, processors: int) -> Iterator[Check]:
    """Memory, processors and processes, as the control groups allow them."""
    version = f"version {limits.version}" if limits.version != "none" else "no control groups are seen"
    yield _ok("cgroup", version)
    yield _memory(limits, machine_bytes)
    if limits.cpus is None or limits.cpus >= processors:
        quota = f"quota {limits.cpus:g}" if limits.cpus else "no quota"
        yield _ok("cpu", f"{processors} processors, {quota}")
    else:
        fix = f"libraries start {processors} threads a worker: OMP_NUM_THREADS={max(1, int(limits.cpus))}"
        yield _warn("cpu", f"a quota of {limits.cpus:g} on {processors} visible processors", fix)
    used = limits.pids_used or 0
    text = "no limit" if limits.pids is None else f"{used} of {limits.pids} used"
    if limits.pids is None or limits.pids - used >= _FEW_PIDS:
        yield _ok("pids", text)
    else:
        fix = "raise the limit: kubelet's podPidsLimit, docker run --pids-limit"
        yield _warn("pids", f"{text}; every thread counts", fix)


def shm_check(room: Room | None) -> Check:
    """Shared memory, which data loaders and collectives fill."""
    fix = "an emptyDir with medium: Memory at /dev/shm; docker run --shm-size=16g"
    if room is None:
        return _warn("shm", "there is no /dev/shm", fix)
    text = f"{size_text(room.total_bytes)}, {size_text(room.free_bytes)} free"
    if room.total_bytes <= _SHM_DEFAULT_BYTES:
        return _warn("shm", f"{text}: a container's default", fix)
    if room.free_bytes < min(_SHM_SMALL_BYTES, room.total_bytes * (1 - _FULL)):
        return _warn("shm", f"{text}: nearly full", "ls -l /dev/shm shows what was left there")
    return _ok("shm", text)


def ulimit_checks(limits: Mapping[str, Ulimit], devices: int) -> Iterator[Check]:
    """Open files, processes, core dumps and locked memory."""
    for name, enough, option in (("nofile", _FEW_FILES, "-n"), ("nproc", _FEW_PIDS, "-u")):
        soft, hard = limits[name].soft, limits[name].hard
        most = "unlimited" if hard is None else str(hard)
        if soft is None or soft >= enough:
            yield _ok(name, "unlimited" if soft is None else str(soft))
        elif hard is None or hard >= enough:
            fix = f"ulimit {option} {most} before faultrun"
            yield _warn(name, f"{soft}, of {most} that are allowed", fix)
        else:
            fix = f"docker run --ulimit {name}=65536, or the limit of the node's container runtime"
            yield _warn(name, f"{soft}, and no more than {most} are allowed", fix)
    core, locked = limits["core"].soft, limits["memlock"].soft
    yield _ok("core", "no core dumps" if core == 0 else f"core dumps up to {_bytes(core)}")
    if locked is None or not devices:
        yield _ok("memlock", _bytes(locked))
    else:
        what = f"{_bytes(locked)} may be locked, and drivers lock buffers for {devices} devices"
        yield _warn("memlock", what, "ulimit -l unlimited, or capability IPC_LOCK")


def pid_1_check(first: SeenProcess | None, own_pid: int) -> Check:
    """PID 1 gets the SIGTERM, and the zombies."""
    if own_pid == 1:
        return _ok("pid-1", "this very process")
    if first is None:
        return _warn("pid-1", "cannot be seen", "mount /proc without hidepid")
    words = " ".join(first.words)[:60] or first.name
    if first.name in _SHELLS:
        fix = 'it takes SIGTERM and passes none on: ENTRYPOINT ["faultrun"], or exec faultrun in its script'
        return _warn("pid-1", f"is a shell: {words}", fix)
    if "faultrun" in words:
        return _ok("pid-1", f"is faultrun: {words}")
    if first.name in _INITS:
        return _ok("pid-1", f"{first.name}, an init")
    if first.name == "pause":
        return _ok("pid-1", "pause: the containers of the pod share their processes")
    fix = "start faultrun as PID 1, or tini -- before what is there"
    return _warn("pid-1", f"{words}: neither faultrun nor an init", fix)


def parent_check(parent: SeenProcess | None) -> Check:
    """Who started us: a shell's script between an init and us does not pass signals on."""
    if parent is None:
        return _ok("parent", "outside of this container")
    words = " ".join(parent.words)[:60] or parent.name
    script = parent.name in _SHELLS and any(not word.startswith("-") for word in parent.words[1:])
    if script and parent.parent == 1:
        return _warn("parent", f"a shell's script: {words}", "end the script with exec faultrun ...")
    return _ok("parent", words)


def kernel_check(missing: tuple[str, ...], release: str) -> Check:
    """What faultrun asks of the kernel."""
    if "pidfd" in missing:
        fix = "Linux 5.4 or newer, and a seccomp profile that allows pidfd_open and pidfd_send_signal"
        return _fail("kernel", f"{release} gives no pidfd", fix)
    if missing:
        fix = "a newer kernel or a wider seccomp profile"
        return _warn("kernel", f"{release} gives no {', '.join(missing)}", fix)
    return _ok("kernel", f"{release}: pidfd, child subreaper, parent death signal, eventfd, inotify")


def log_dir_checks(folder: ProbedFolder) -> Iterator[Check]:
    """The log_dir: without it a run ends with 73."""
    return _folder_checks("log_dir", folder, " will be made")


def checkpoint_dir_checks(folder: ProbedFolder, save: NewestSave | None, windows: Windows) -> Iterator[Check]:
    """A checkpoint_dir: room, speed, and the time that a save of the last one's size would take."""
    yield from _folder_checks("checkpoint_dir", folder, " is not there yet")
    if folder.sample is None or save is None:
        return
    if folder.room is not None and folder.room.free_bytes < _SAVES_THAT_FIT * save.size_bytes:
        what = f"{size_text(folder.room.free_bytes)} free, and the last save has {size_text(save.size_bytes)}"
        yield _warn(
            "checkpoint_dir", what, "remove old checkpoints: a save is written before the old one goes"
        )
    seconds = save.size_bytes / folder.sample.bytes_per_s
    window_s = min(windows.grace_s, windows.stop_grace_s)
    option = "--grace" if windows.grace_s <= windows.stop_grace_s else "--stop_grace"
    last = f"{save.files} file{'s' if save.files > 1 else ''}, {size_text(save.size_bytes)}"
    text = f"the last one ({last}) takes about {seconds:.1f} s of the {window_s:g} s of {option}"
    longer = f"{option}={int(seconds * 2) + 1}s"
    if seconds > window_s:
        yield _fail("save", text, f"{longer}, a faster volume, or fewer ranks that save")
    elif seconds > window_s / 2:
        yield _warn("save", text, f"{longer}: storage is slower when all nodes save at once")
    else:
        yield _ok("save", text)


def clock_check(wall_s: float, drift_s: float) -> Check:
    """The wall clock is sane, and went ``drift_s`` further than the monotonic one while we looked."""
    if not _FIRST_SANE_S < wall_s < _LAST_SANE_S:
        return _warn("clock", f"the wall clock stands at {wall_s:.0f} s since 1970", "set it by NTP")
    if abs(drift_s) > _STEP_S:
        fix = "windows are counted by the monotonic clock; let NTP slew instead of stepping"
        return _warn("clock", f"the wall clock jumped by {drift_s:+.1f} s while we looked", fix)
    return _ok("clock", "wall and monotonic clock agree")


def window_check(windows: Windows, environ: Mapping[str, str]) -> Check:
    """How long a stop may take, and who says so."""
    text = f"{windows.stop_grace_s:g} s to save when stopped ({windows.stop_grace_source})"
    if _KUBERNETES in environ and windows.stop_grace_source == Windows().stop_grace_source:
        fix = f"{TERMINATION_VARIABLE}: the pod's terminationGracePeriodSeconds; faultrun lint says where"
        return _warn("window", text, fix)
    return _ok("window", text)


def port_check(holders: Mapping[int, SeenProcess | None], usual: tuple[int, ...], fresh: int | None) -> Check:
    """A free port for workers to meet, and who holds those that frameworks take by habit."""
    if fresh is None:
        fix = "ss -ltnp shows who holds them"
        return _fail("ports", "no free port for workers to meet on 127.0.0.1", fix)
    if not holders:
        return _ok("ports", f"{fresh} is free to meet on, and so are {' and '.join(map(str, usual))}")
    told = (
        f"{port} by {f'{one.name} (pid {one.pid})' if one else 'a process that cannot be seen'}"
        for port, one in holders.items()
    )
    fix = "faultrun takes another one, unless --fixed_port: then --master_port=N"
    return _warn("ports", f"taken: {', '.join(told)}", fix)


def framework_check(found: Mapping[str, str]) -> Check:
    """The frameworks that are installed for this Python."""
    if not found:
        fix = "run faultrun by the Python that trains: python -m faultrun"
        return _warn("frameworks", "neither MindSpore nor torch nor TensorFlow for this Python", fix)
    return _ok("frameworks", ", ".join(f"{name} {version}" for name, version in found.items()))


def device_check(files: tuple[str, ...], visible: Accelerators | None) -> Check:
    """Accelerators: those that there are, and those that the environment names."""
    kinds = {name.rstrip("0123456789") for name in files}
    text = f"{len(files)} ({', '.join(sorted(kinds))})" if files else "no accelerator"
    if visible is None:
        return _ok("devices", text)
    if visible.count > len(files):
        fix = "request them in the manifest, and let the device plug-in set the variable"
        return _warn("devices", f"{text}, and {visible.source} names {visible.count}", fix)
    return _ok("devices", f"{text}; {visible.source}")


def rank_table_check(path: str, refused: str, devices: int) -> Check:
    """The rank table that RANK_TABLE_FILE names."""
    if refused:
        return _warn("rank table", f"{path}: {refused}", "the platform writes it once all pods are placed")
    return _ok("rank table", f"{path}: {devices} devices")


def termination_check(path: str, exists: bool, writable: bool) -> Check:
    """The file that Kubernetes reads the reason of an end from."""
    if writable or not exists:
        return _ok("termination log", path if exists else f"no {path}; the reason goes to stderr only")
    fix = "terminationMessagePath, or the user of the container"
    return _warn("termination log", f"{path} cannot be written", fix)


def variable_checks(notes: tuple[str, ...], refused: tuple[str, str, str] | None) -> Iterator[Check]:
    """FAULTRUN_ variables: misspelled ones, and a value that a run would refuse."""
    for note in notes:
        name, _, hint = note.partition(" has no effect here: ")
        yield _warn("variables", f"{name} has no effect", hint)
    if refused is not None:
        what, because, hint = refused
        yield _fail("variables", f"{what}: {because}", hint)


def _bytes(limit: int | None) -> str:
    return "unlimited" if limit is None else size_text(limit)


def _memory(limits: Limits, machine_bytes: int | None) -> Check:
    used, most = limits.memory_used_bytes, limits.memory_bytes
    if most is None or (machine_bytes is not None and most >= machine_bytes):
        machine = f"; the machine has {size_text(machine_bytes)}" if machine_bytes else ""
        return _ok("memory", f"no limit{machine}")
    if used is None:
        return _ok("memory", f"limit {size_text(most)}")
    text = f"limit {size_text(most)}, {size_text(used)} used"
    if used > _FULL * most:
        fix = "raise the limit; what lies in /dev/shm and in the page cache counts too"
        return _warn("memory", text, fix)
    return _ok("memory", text)


def _folder_checks(name: str, folder: ProbedFolder, missing: str) -> Iterator[Check]:
    place, room, sample = folder.place, folder.room, folder.sample
    if sample is None:
        yield _fail(name, f"{place} cannot be written: {folder.refused}", f"--{name} on a volume that can")
        return
    there = "" if folder.path == place else missing
    speed = f"{size_text(int(sample.bytes_per_s))}/s, synced ({size_text(sample.size_bytes)}"
    yield _ok(name, f"{folder.path}{there}: {speed} in {sample.seconds:.2f} s)")
    if name == "log_dir" and not sample.locks:
        what = f"{place} cannot lock files: a lease of {LEASE_S:g} s keeps two runs apart"
        fix = (
            "--log_dir on a file system with flock: after the death of its machine a run waits for the lease"
        )
        yield _warn(name, what, fix)
    if room is not None and room.free_bytes < _LITTLE_BYTES:
        yield _warn(name, f"{size_text(room.free_bytes)} free", f"make room: df -h {place}")
    if room is not None and room.free_inodes is not None and room.free_inodes < _FEW_INODES:
        what = f"{room.free_inodes} files may still be made"
        yield _warn(name, what, f"remove small files: df -i {place}")
    if abs(sample.skew_s) > _SKEW_S:
        ahead = "ahead of" if sample.skew_s > 0 else "behind"
        what = f"the clock of {place} is {abs(sample.skew_s):.0f} s {ahead} ours"
        fix = "faultrun does not choose by it; people and other tools do: set both by NTP"
        yield _warn(name, what, fix)


def _ok(check: str, what: str) -> Check:
    return Check(check, CheckStatus.OK, what)


def _warn(check: str, what: str, fix: str) -> Check:
    return Check(check, CheckStatus.WARN, what, fix)


def _fail(check: str, what: str, fix: str) -> Check:
    return Check(check, CheckStatus.FAIL, what, fix)
