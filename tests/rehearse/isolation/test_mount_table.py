import pytest

from faultrun.rehearse.isolation.mount_table import Mount, Showing, visible

# As the kernel writes it: proc_pid_mountinfo(5).
LINES = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,size=12334492k
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 27 0:30 / /data rw,nosuid,relatime - nfs4 server:/data rw
29 28 0:31 / /data/set\\040one ro,relatime - nfs4 server:/set rw
30 27 8:1 /resolv.conf /etc/resolv.conf rw,relatime - ext4 /dev/sda1 rw
31 28 0:33 / /data/old rw - tmpfs tmpfs rw
32 31 0:34 / /data/old rw - xfs /dev/sdb rw
33 31 0:35 / /data/old/below rw - xfs /dev/sdc rw
a line of another kind
""".splitlines()


def test_each_path_is_there_once_the_outer_ones_first() -> None:
    assert sorted(one.path for one in visible(LINES)) == [
        *("/data", "/data/old", "/data/set one", "/dev", "/dev/shm", "/etc/resolv.conf", "/proc")
    ]
    depths = [one.path.count("/") for one in visible(LINES)]
    assert depths == sorted(depths)


def test_the_last_mount_on_a_path_is_the_one_that_is_seen() -> None:
    assert next(one for one in visible(LINES) if one.path == "/data/old").fstype == "xfs"


@pytest.mark.parametrize("parent", [27, 28])
def test_a_mount_hides_what_was_mounted_below_it_before(parent: int) -> None:
    """On the root of the mount that was there, or on its folder where none was."""
    lines = [*LINES, f"40 {parent} 0:40 / /data rw - tmpfs tmpfs rw"]
    if parent == 27:
        lines = [line for line in lines if not line.startswith(("28 ", "29 ", "31 ", "32 ", "33 "))]
        lines.append("41 27 0:41 / /data/x rw - tmpfs tmpfs rw")
    shown = [one for one in visible(lines) if one.path.startswith("/data")]
    assert [(one.path, one.number) for one in shown] == [("/data", 40)]


def test_what_is_mounted_on_the_root_is_seen_wherever_it_stands_in_the_list() -> None:
    assert {one.path for one in visible(reversed(LINES))} == {one.path for one in visible(LINES)}


@pytest.mark.parametrize(
    ("path", "options", "showing"),
    [
        ("/dev/shm", ("rw",), Showing.COPIED_ON_WRITE),
        ("/dev", ("rw",), Showing.AS_IT_IS),
        ("/proc", ("rw",), Showing.AS_IT_IS),
        ("/device", ("rw",), Showing.COPIED_ON_WRITE),
        ("/data", ("rw", "relatime"), Showing.COPIED_ON_WRITE),
        ("/data", ("ro", "relatime"), Showing.READ_ONLY),
    ],
)
def test_the_kernels_own_are_shown_as_they_are(path: str, options: tuple[str, ...], showing: Showing) -> None:
    assert Mount(number=2, parent=1, path=path, options=options, fstype="x").showing is showing


@pytest.mark.parametrize("fstype", ["devpts", "mqueue", "hugetlbfs", "devtmpfs"])
def test_below_the_devices_only_what_holds_no_files_is_left_as_it_is(fstype: str) -> None:
    line = f"50 24 0:50 / /dev/one rw - {fstype} none rw"
    assert "/dev/one" not in {one.path for one in visible([*LINES, line])}
    saved = f"50 24 0:50 / /dev/one rw - tmpfs {fstype} rw"
    assert "/dev/one" in {one.path for one in visible([*LINES, saved])}
