"""How ``doctor`` judges what it found out; no machine is asked."""

from dataclasses import replace

import pytest

from faultrun.cli.doctor import checks as doctor
from faultrun.cli.doctor.checks import Check, CheckStatus, NewestSave, ProbedFolder
from faultrun.model.spec.windows import Windows
from faultrun.platforms.cgroup import Limits
from faultrun.platforms.host import SeenProcess, Ulimit
from faultrun.platforms.storage import Room, Sample
from faultrun.platforms.this_machine import Accelerators

GIB = 1 << 30
NO_LIMITS = Limits(
    version="v2", memory_bytes=None, memory_used_bytes=None, cpus=None, pids=None, pids_used=None
)


def judged(limits: Limits, processors: int = 8) -> dict[str, Check]:
    return {check.check: check for check in doctor.limits_checks(limits, 64 * GIB, processors)}


def test_limits_are_fine_warn_when_they_are_tight() -> None:
    assert {check.status for check in judged(NO_LIMITS).values()} == {CheckStatus.OK}
    assert judged(NO_LIMITS)["memory"].what == "no limit; the machine has 64.0 GiB"
    tight = judged(
        replace(
            NO_LIMITS,
            memory_bytes=10 * GIB,
            memory_used_bytes=int(9.5 * GIB),
            cpus=2.0,
            pids=100,
            pids_used=3,
        )
    )
    assert {name: check.status.value for name, check in tight.items()} == {
        "cgroup": "ok", "memory": "warn", "cpu": "warn", "pids": "warn",
    }  # fmt: skip
    assert tight["cpu"].fix.endswith("OMP_NUM_THREADS=2")
    assert (
        judged(replace(NO_LIMITS, memory_bytes=10 * GIB, memory_used_bytes=GIB))["memory"].what
        == "limit 10.0 GiB, 1.0 GiB used"
    )
    assert judged(replace(NO_LIMITS, memory_bytes=100 * GIB))["memory"].what.startswith("no limit")
    assert judged(replace(NO_LIMITS, pids=40000, pids_used=3))["pids"].status is CheckStatus.OK


@pytest.mark.parametrize(
    ("room", "status"),
    [
        (None, CheckStatus.WARN),
        (Room(total_bytes=64 << 20, free_bytes=64 << 20, free_inodes=1), CheckStatus.WARN),
        (Room(total_bytes=16 * GIB, free_bytes=1 << 20, free_inodes=1), CheckStatus.WARN),
        (Room(total_bytes=16 * GIB, free_bytes=16 * GIB, free_inodes=1), CheckStatus.OK),
    ],
)
def test_shared_memory(room: Room | None, status: CheckStatus) -> None:
    check = doctor.shm_check(room)
    assert check.status is status
    assert bool(check.fix) is (status is not CheckStatus.OK)


def test_ulimits_say_what_may_be_raised_by_whom() -> None:
    limits = {
        "nofile": Ulimit(soft=1024, hard=1_048_576),
        "nproc": Ulimit(soft=512, hard=512),
        "core": Ulimit(soft=0, hard=None),
        "memlock": Ulimit(soft=65536, hard=65536),
    }
    checks = {check.check: check for check in doctor.ulimit_checks(limits, 8)}
    assert checks["nofile"].fix == "ulimit -n 1048576 before faultrun"
    assert checks["nproc"].fix.startswith("docker run --ulimit nproc=65536")
    assert (checks["core"].status, checks["memlock"].status) == (CheckStatus.OK, CheckStatus.WARN)
    alone = {one.check: one.status for one in doctor.ulimit_checks(limits, 0)}
    assert alone["memlock"] is CheckStatus.OK


@pytest.mark.parametrize(
    ("name", "words", "status"),
    [
        ("bash", ("bash", "-c", "cd /job; ./start.sh"), CheckStatus.WARN),
        ("sh", ("sh",), CheckStatus.WARN),
        ("faultrun", ("/usr/bin/python3", "/usr/bin/faultrun", "train.py"), CheckStatus.OK),
        ("tini", ("/sbin/tini", "--", "train"), CheckStatus.OK),
        ("systemd", ("/sbin/init",), CheckStatus.OK),
        ("pause", ("/pause",), CheckStatus.OK),
        ("python", ("python", "train.py"), CheckStatus.WARN),
    ],
)
def test_pid_1(name: str, words: tuple[str, ...], status: CheckStatus) -> None:
    check = doctor.pid_1_check(SeenProcess(pid=1, name=name, words=words, parent=0), own_pid=7)
    assert check.status is status
    assert doctor.pid_1_check(None, own_pid=1).status is CheckStatus.OK
    assert doctor.pid_1_check(None, own_pid=7).status is CheckStatus.WARN


def test_a_script_between_an_init_and_us_is_warned_of() -> None:
    script = SeenProcess(pid=7, name="bash", words=("bash", "start.sh"), parent=1)
    assert doctor.parent_check(script).status is CheckStatus.WARN
    shell = SeenProcess(pid=7, name="bash", words=("-bash",), parent=1)
    assert doctor.parent_check(shell).status is CheckStatus.OK
    assert doctor.parent_check(None).status is CheckStatus.OK


def test_a_kernel_without_pidfd_fails_and_one_without_the_rest_is_warned_of() -> None:
    assert doctor.kernel_check((), "6.1").status is CheckStatus.OK
    assert doctor.kernel_check(("inotify",), "6.1").status is CheckStatus.WARN
    assert doctor.kernel_check(("pidfd", "eventfd"), "4.19").status is CheckStatus.FAIL


FAST = Sample(size_bytes=32 << 20, seconds=0.32, skew_s=0.0, locks=True)
AMPLE = Room(total_bytes=100 * GIB, free_bytes=50 * GIB, free_inodes=1 << 20)


def folder(sample: Sample | None = FAST, room: Room | None = AMPLE, refused: str = "") -> ProbedFolder:
    return ProbedFolder(path="/ckpt", place="/ckpt", room=room, sample=sample, refused=refused)


@pytest.mark.parametrize(
    ("size_gib", "status", "says"),
    [
        (0.5, CheckStatus.OK, "takes about 5.1 s of the 30 s of --grace"),
        (2.0, CheckStatus.WARN, "takes about 20.5 s of the 30 s"),
        (10.0, CheckStatus.FAIL, "takes about 102.4 s of the 30 s"),
    ],
)
def test_a_save_is_held_against_the_window(size_gib: float, status: CheckStatus, says: str) -> None:
    save = NewestSave(size_bytes=int(size_gib * GIB), files=4)
    checks = list(doctor.checkpoint_dir_checks(folder(), save, Windows()))
    assert [check.status for check in checks] == [CheckStatus.OK, status]
    assert says in checks[-1].what
    assert bool(checks[-1].fix) is (status is not CheckStatus.OK)


def test_the_shorter_window_is_the_one_that_counts() -> None:
    save = NewestSave(size_bytes=GIB, files=1)
    *_, last = doctor.checkpoint_dir_checks(folder(), save, Windows(grace_s=600, stop_grace_s=5))
    assert last.status is CheckStatus.FAIL
    assert last.fix.startswith("--stop_grace=21s")


def test_storage_that_is_full_late_or_shut_is_said() -> None:
    little = Room(total_bytes=GIB, free_bytes=10 << 20, free_inodes=3)
    late = Sample(size_bytes=1, seconds=1.0, skew_s=-90.0, locks=False)
    checks = list(doctor.log_dir_checks(folder(late, little)))
    assert [check.status.value for check in checks] == ["ok", "warn", "warn", "warn", "warn"]
    assert "90 s behind ours" in checks[-1].what
    (shut,) = doctor.log_dir_checks(folder(None, None, "Read-only file system"))
    assert (shut.status, shut.what) == (CheckStatus.FAIL, "/ckpt cannot be written: Read-only file system")
    room = Room(total_bytes=100 * GIB, free_bytes=3 * GIB, free_inodes=None)
    checks = list(
        doctor.checkpoint_dir_checks(folder(room=room), NewestSave(size_bytes=2 * GIB, files=1), Windows())
    )
    assert "3.0 GiB free, and the last save has 2.0 GiB" in checks[1].what


def test_the_clock() -> None:
    now = 1_800_000_000.0
    good = doctor.clock_check(now, 0.0)
    step, epoch = doctor.clock_check(now, -61.0), doctor.clock_check(3.0, 0.0)
    assert (good.status, step.status, epoch.status) == (CheckStatus.OK, CheckStatus.WARN, CheckStatus.WARN)
    assert "-61.0 s" in step.what


def test_devices_and_what_names_them() -> None:
    files = ("davinci0", "davinci1")
    both = Accelerators(count=2, source="ASCEND_VISIBLE_DEVICES=0,1")
    more = Accelerators(count=8, source="ASCEND_VISIBLE_DEVICES=0-7")
    assert doctor.device_check(files, both).what == "2 (davinci); ASCEND_VISIBLE_DEVICES=0,1"
    assert doctor.device_check(files, more).status is CheckStatus.WARN
    assert doctor.device_check((), None).what == "no accelerator"
