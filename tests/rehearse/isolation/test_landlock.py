"""What the kernel lets a confined process do, tried in processes of their own."""

from pathlib import Path

import pytest

from support.machine.installed import has_landlock
from support.machine.scripts import ended

if not has_landlock():
    pytest.skip("this kernel has no landlock", allow_module_level=True)

CONFINED = """
import os, subprocess, sys
from pathlib import Path
from faultrun.rehearse.isolation.landlock import confine
mine, theirs = Path(sys.argv[1]), Path(sys.argv[2])
confine([mine])
def denied(what):
    try:
        what()
    except OSError as error:
        return error.strerror
    return "done"
"""


def said(tmp_path: Path, code: str) -> list[str]:
    (tmp_path / "mine").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").write_text("kept")
    done = ended(CONFINED + code, str(tmp_path / "mine"), str(tmp_path / "theirs"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "theirs" / "file").read_text() == "kept"
    return done.stdout.splitlines()


def test_its_own_folder_can_be_written_and_everything_read(tmp_path: Path) -> None:
    code = """
(mine / "deep").mkdir()
(mine / "deep" / "x").write_text((theirs / "file").read_text())
(mine / "deep" / "x").replace(mine / "y")
Path("/dev/null").write_text("x")
print((mine / "y").read_text())
"""
    assert said(tmp_path, code) == ["kept"]


def test_nothing_else_can_be_written_removed_or_made_by_it_or_its_children(tmp_path: Path) -> None:
    code = """
(mine / "link").symlink_to(theirs / "file")
(mine / "over").write_text("x")
print(denied(lambda: (theirs / "file").write_text("x")))
print(denied(lambda: (theirs / "new").write_text("x")))
print(denied(lambda: (theirs / "folder").mkdir()))
print(denied(lambda: (theirs / "file").unlink()))
print(denied(lambda: os.truncate(theirs / "file", 1)))
print(denied(lambda: (mine / "link").write_text("x")))
print(denied(lambda: (mine / "over").replace(theirs / "file")))
child = f"open({str(theirs / 'file')!r}, 'w')"
print(subprocess.run([sys.executable, "-c", child], stderr=subprocess.DEVNULL).returncode)
"""
    *answers, child = said(tmp_path, code)
    assert set(answers) <= {"Permission denied", "Invalid cross-device link"}, answers
    assert child == "1"


def test_devices_can_be_written_to_and_shared_memory_only_where_it_is_allowed(tmp_path: Path) -> None:
    code = """
name = f"/dev/shm/faultrun-confined-{os.getpid()}"
print(denied(lambda: Path(name).write_text("x")))
print(denied(lambda: Path("/dev/null").write_text("x")))
print(denied(lambda: Path("/proc/self/oom_score_adj").write_text("1000")))
print(Path(name).exists())
"""
    assert said(tmp_path, code) == ["Permission denied", "done", "done", "False"]


def test_modes_and_times_are_not_guarded_as_the_closing_line_says(tmp_path: Path) -> None:
    code = """
print(denied(lambda: (theirs / "file").chmod(0o600)))
print(denied(lambda: os.utime(theirs / "file", (1, 1))))
"""
    assert said(tmp_path, code) == ["done", "done"]
