"""What ``doctor`` finds out: control groups from written-out trees, the rest from the real machine."""

import fcntl
import os
import resource
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultrun.platforms import cgroup, host, storage, this_machine
from faultrun.platforms.cgroup import Limits
from faultrun.platforms.host import Ulimit
from support.machine.scripts import printed

GIB = 1 << 30


def tree(root: Path, mounts: str, groups: str, files: dict[str, str]) -> Path:
    """Write a ``proc`` and a ``sys`` as a kernel shows them."""
    for path, text in {"proc/self/mountinfo": mounts, "proc/self/cgroup": groups, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


V2 = "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 {shows} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {shows} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "39 31 0:36 {shows} /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
)
GROUPS_V1 = "9:name=systemd:/pod7\n8:pids:/pod7/a\n4:memory:/pod7/a\n1:cpu,cpuacct:/pod7/a\n"


def test_version_2_limits_are_read_inside_a_container(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        V2,
        "0::/\n",
        {
            "sys/fs/cgroup/memory.max": "17179869184\n",
            "sys/fs/cgroup/memory.current": "1048576\n",
            "sys/fs/cgroup/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pids.max": "max\n",
            "sys/fs/cgroup/pids.current": "12\n",
        },
    )
    assert cgroup.limits(root) == Limits(
        version="v2", memory_bytes=16 * GIB, memory_used_bytes=1 << 20, cpus=1.5, pids=None, pids_used=12
    )


def test_the_tightest_limit_of_all_groups_above_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/kubepods/memory.max": "8589934592",
        "sys/fs/cgroup/kubepods/memory.current": "4294967296",
        "sys/fs/cgroup/kubepods/pod/memory.max": "max",
        "sys/fs/cgroup/kubepods/pod/memory.current": "1024",
        "sys/fs/cgroup/kubepods/pod/cpu.max": "max 100000",
    }
    found = cgroup.limits(tree(tmp_path, V2, "0::/kubepods/pod\n", files))
    assert (found.memory_bytes, found.memory_used_bytes, found.cpus) == (8 * GIB, 4 * GIB, None)


@pytest.mark.parametrize(("shows", "folder"), [("/", "pod7/a/"), ("/pod7/a", ""), ("/other", "")])
def test_version_1_limits_are_read_where_a_mount_shows_them(tmp_path: Path, shows: str, folder: str) -> None:
    base = "sys/fs/cgroup"
    files = {
        f"{base}/memory/{folder}memory.limit_in_bytes": "1073741824",
        f"{base}/memory/{folder}memory.usage_in_bytes": "1000",
        f"{base}/cpu,cpuacct/{folder}cpu.cfs_quota_us": "400000",
        f"{base}/cpu,cpuacct/{folder}cpu.cfs_period_us": "100000",
        f"{base}/pids/{folder}pids.max": "100",
        f"{base}/pids/{folder}pids.current": "7",
    }
    found = cgroup.limits(tree(tmp_path, V1.format(shows=shows), GROUPS_V1, files))
    assert found == Limits(
        version="v1", memory_bytes=GIB, memory_used_bytes=1000, cpus=4.0, pids=100, pids_used=7
    )


def test_no_limit_is_none_and_no_control_groups_are_none(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    root = tree(tmp_path / "a", V1.format(shows="/"), "4:memory:/\n1:cpu,cpuacct:/\n", files)
    assert (cgroup.limits(root).memory_bytes, cgroup.limits(root).cpus) == (None, None)
    assert cgroup.limits(tmp_path / "none").version == "none"


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A real group that can have a memory limit, if this machine lets us make one."""
    group = Path("/sys/fs/cgroup/memory") / f"faultrun-test-{os.getpid()}"
    if not group.parent.is_dir():
        group = Path("/sys/fs/cgroup") / group.name
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no right to make a control group here")
    try:
        yield group
    finally:
        group.rmdir()


def test_a_real_limit_is_seen_by_a_process_in_that_group(memory_group: Path) -> None:
    files = (memory_group / "memory.limit_in_bytes", memory_group / "memory.max")
    limit = next((file for file in files if file.exists()), None)
    if limit is None:
        pytest.skip("no memory controller in this group")
    limit.write_text(str(GIB))
    script = (
        "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(str(os.getpid()));"
        "from faultrun.platforms import cgroup; print(cgroup.limits().memory_bytes)"
    )
    assert int(printed(script, str(memory_group / "cgroup.procs"))) == GIB


def test_a_sample_is_written_measured_and_gone(tmp_path: Path) -> None:
    sample = storage.write_sample(tmp_path, most_bytes=3 << 20, for_s=5.0, within_s=30.0)
    assert sample.size_bytes == 3 << 20
    assert sample.seconds > 0
    assert sample.locks
    assert abs(sample.skew_s) < 60
    assert list(tmp_path.iterdir()) == []


def test_a_sample_ends_with_its_time_however_fast_the_disk(tmp_path: Path) -> None:
    sample = storage.write_sample(tmp_path, most_bytes=1 << 50, for_s=0.05, within_s=30.0)
    assert 0 < sample.size_bytes < 1 << 40


@pytest.mark.long
def test_a_folder_that_refuses_says_why_and_one_that_hangs_is_left(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        storage.write_sample(tmp_path / "none", most_bytes=1, for_s=1.0, within_s=30.0)
    before = set(threading.enumerate())
    with pytest.raises(TimeoutError, match="no answer in 0 s"):
        storage.write_sample(tmp_path, most_bytes=1 << 50, for_s=0.2, within_s=0.0)
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert list(tmp_path.iterdir()) == []


def test_the_nearest_folder_that_is_there(tmp_path: Path) -> None:
    assert storage.nearest(tmp_path / "a" / "b") == tmp_path
    assert storage.nearest(Path("/")) == Path("/")


def test_this_kernel_has_what_is_asked_of_it() -> None:
    assert host.missing_features() == ()


def test_this_process_is_seen_as_it_is() -> None:
    found = host.process(os.getpid())
    assert found is not None
    assert found.parent == os.getppid()
    assert list(found.words) == sys.orig_argv
    assert host.process(1 << 30) is None


def test_ulimits_are_those_of_this_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert host.ulimits()["nofile"] == Ulimit(soft=soft, hard=hard)


def test_the_holder_of_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        holder = host.listener(port)
        assert holder is not None
        assert holder.pid == os.getpid()
    assert host.listener(port) is None


@pytest.mark.long
def test_versions_come_from_the_installation_and_nothing_is_imported() -> None:
    script = (
        "import sys; from faultrun.platforms import host;"
        "from faultrun.cli.doctor.checks import FRAMEWORKS;"
        "print(sorted(host.versions((*FRAMEWORKS, 'click'))), {'torch', 'mindspore'} & {*sys.modules})"
    )
    told = printed(script)
    assert "'click'" in told
    assert told.strip().endswith("set()")


def test_device_files(tmp_path: Path) -> None:
    for name in ("davinci0", "davinci11", "davinci_manager", "nvidia0", "nvidiactl", "null"):
        (tmp_path / name).touch()
    assert this_machine.device_files(tmp_path) == ("davinci0", "davinci11", "nvidia0")
    assert this_machine.device_files(tmp_path / "none") == ()


def test_a_lock_that_somebody_holds_does_not_make_a_file_system_without_locks(tmp_path: Path) -> None:
    with (tmp_path / "held").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert storage.write_sample(tmp_path, most_bytes=1, for_s=1.0, within_s=30.0).locks
