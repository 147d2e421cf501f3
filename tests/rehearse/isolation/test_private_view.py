"""What is written in a private view, seen from outside, tried in processes of their own."""

import os
import tempfile
from pathlib import Path

import pytest

from faultrun.rehearse.isolation.private_view import written
from support.machine.scripts import ended

IN_VIEW = """
import os, sys
from pathlib import Path
from faultrun.rehearse.isolation.private_view import NoPrivateView, enter
folder, scratch = Path(sys.argv[1]), Path(sys.argv[2])
os.chdir(folder)
try:
    enter(scratch)
except NoPrivateView as error:
    print(error)
    sys.exit(69)
"""
NOBODY = 65534
AS_NOBODY = f"""
import ctypes, os
from faultrun.rehearse.isolation.private_view import enter
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # its own /proc/self is its own again
"""


def seen(tmp_path: Path, code: str, *, before: str = "") -> list[str]:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "file").write_text("kept")
    (tmp_path / "scratch").mkdir()
    for path in (tmp_path / "job", tmp_path / "job" / "file", tmp_path / "scratch"):
        if AS_NOBODY in before:
            os.chown(path, NOBODY, NOBODY)
    done = ended(before + IN_VIEW + code, str(tmp_path / "job"), str(tmp_path / "scratch"))
    if done.returncode == 69:
        pytest.skip(f"no private view here: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


IN_TMP = Path(f"/tmp/faultrun_in_view_{os.getpid()}")
"""Outside the working directory; nobody else has a file of this name there."""

CODE = f"""
Path("file").write_text("written in place")
Path("new").write_text("x")
Path("old_name").mkdir()
Path("old_name").rename("new_name")
(scratch / "out" / "told").write_text("both sides")
Path({str(IN_TMP)!r}).write_text("x")
print(Path.cwd() == folder, Path("file").read_text(), sorted(os.listdir()))
print(Path("/proc/self/stat").exists(), Path("/dev/null").exists())
"""


def check(tmp_path: Path, said: list[str]) -> None:
    assert said[0] == "True written in place ['file', 'new', 'new_name']"
    assert said[1] == "True True"
    assert (tmp_path / "job" / "file").read_text() == "kept"
    assert [path.name for path in (tmp_path / "job").iterdir()] == ["file"]
    assert not IN_TMP.exists()
    assert (tmp_path / "scratch" / "out" / "told").read_text() == "both sides"
    found = [
        f"{place.rstrip('/')}{str(path)[len(str(layer)) :]}"
        for layer, place in written(tmp_path / "scratch")
        for path in layer.rglob("new")
    ]
    assert str(tmp_path / "job" / "new") in found


def test_what_is_written_is_there_inside_and_nowhere_outside(tmp_path: Path) -> None:
    check(tmp_path, seen(tmp_path, CODE))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_who_is_not_root_has_a_view_too() -> None:
    """In a user namespace, below folders that are root's."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        check(Path(folder), seen(Path(folder), CODE, before=AS_NOBODY))


BEFORE_MEMORY = "import mmap, multiprocessing.synchronize\n"
SHARED_MEMORY = """
place = Path(os.environ["IN_MEMORY"])
print((place / "step_10.pt").read_text())
(place / "step_10.pt").write_text("over it")
(place / "step_20.pt").write_text("new")
(place / "memory").write_bytes(bytes(4096))
both = [mmap.mmap(os.open(place / "memory", os.O_RDWR), 4096) for _ in range(2)]
both[0][:4] = b"both"
with multiprocessing.get_context("fork").Lock():
    print(both[1][:4].decode())
"""


@pytest.mark.parametrize("before", [pytest.param("", id="root"), pytest.param(AS_NOBODY, id="not root")])
def test_a_save_in_shared_memory_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    if not os.access("/dev/shm", os.W_OK) or (before and os.geteuid() != 0):
        pytest.skip("no /dev/shm to write to, or nobody else to become")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as saved:
        Path(folder).chmod(0o755)
        kept = Path(saved) / "step_10.pt"
        kept.write_text("weights")
        if before:
            os.chown(saved, NOBODY, NOBODY)
            os.chown(kept, NOBODY, NOBODY)
        monkeypatch.setenv("IN_MEMORY", saved)
        said = seen(Path(folder), SHARED_MEMORY, before=BEFORE_MEMORY + before)
        assert said == ["weights", "both"]
        assert (kept.read_text(), [one.name for one in Path(saved).iterdir()]) == ("weights", [kept.name])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_files_of_a_second_group_are_told_before_anything_is_mounted() -> None:
    with tempfile.TemporaryDirectory() as folder:
        job, scratch = Path(folder) / "job", Path(folder) / "scratch"
        for one in (job, scratch):
            one.mkdir()
            os.chown(one, NOBODY, NOBODY)
        Path(folder).chmod(0o755)
        (job / "shared").write_text("x")
        os.chown(job / "shared", NOBODY, 0)
        done = ended(AS_NOBODY + IN_VIEW, str(job), str(scratch))
    assert (done.returncode, done.stdout.strip()) == (
        69,
        f"{job}/shared belongs to a group (0) that is not your first",
    )
