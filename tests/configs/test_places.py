"""Places that only another user or a mount makes: files that must not, or cannot, be replaced there."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faultrun.configs.apply import apply
from faultrun.model.edit import Setting
from support.places import ROOT

LAUNCHER = ROOT / "launcher"
NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount and to become somebody else")


def as_nobody(act: Callable[[], str]) -> str:
    """What ``act`` answers in a fork of this process that is no longer root."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writable, act().encode())
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return told


def reason(file: Path, originals: Path) -> str:
    """Why a copy was made, or '' and the file's new text."""
    (result,) = apply([Setting(file=str(file), key="a", value=2)], originals=originals)
    if result.copy is None:
        return f"in place: {file.read_text()}"
    return f"{result.copy.reason}: {Path(result.path).read_text()}"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter and write, with a file of root's that everybody may write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    (folder / "c.yaml").write_text("a: 1\n")
    (folder / "c.yaml").chmod(0o666)
    yield folder
    shutil.rmtree(folder)


def test_a_file_of_another_user_is_copied_because_a_replacement_would_be_ours(open_folder: Path) -> None:
    told = as_nobody(lambda: reason(open_folder / "c.yaml", open_folder / "log" / "original"))
    assert told == "belongs to another user, which a replacement would change: a: 2\n"
    assert (open_folder / "c.yaml").read_text() == "a: 1\n"


def test_a_file_in_a_folder_that_we_may_not_write_is_copied(open_folder: Path) -> None:
    folder = open_folder / "closed"
    folder.mkdir()
    shutil.move(open_folder / "c.yaml", folder / "c.yaml")
    os.chown(folder / "c.yaml", NOBODY, NOBODY)
    told = as_nobody(lambda: reason(folder / "c.yaml", open_folder / "log" / "original"))
    assert told == f"lies in a read-only directory ({folder}): a: 2\n"


def test_our_own_file_is_changed_in_place_without_root(open_folder: Path) -> None:
    os.chown(open_folder / "c.yaml", NOBODY, NOBODY)
    told = as_nobody(lambda: reason(open_folder / "c.yaml", open_folder / "log" / "original"))
    assert told == "in place: a: 2\n"


def test_root_keeps_the_owner_of_somebody_elses_file(open_folder: Path) -> None:
    os.chown(open_folder / "c.yaml", NOBODY, 1)
    assert reason(open_folder / "c.yaml", open_folder / "log" / "original") == "in place: a: 2\n"
    status = (open_folder / "c.yaml").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (NOBODY, 1, 0o666)


SCRIPT = """
import sys
from pathlib import Path
from faultrun.configs.apply import apply
from faultrun.model.edit import Setting
(result,) = apply([Setting(file=sys.argv[1], key="a", value=2)], originals=Path("log/original").absolute())
print(result.copy and result.copy.reason, Path(result.path).read_text())
"""


def mounted(folder: Path, mount: str, file: str) -> str:
    """What an edit of ``file`` says in a mount namespace of its own, after ``mount``."""
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False, timeout=30)
    if tried.returncode:
        pytest.skip("this machine allows no mount namespaces")
    (folder / "edit.py").write_text(SCRIPT)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-ec", f'{mount}; exec "$0" edit.py "$1"', sys.executable, file],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(LAUNCHER)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout.strip()


@pytest.mark.long
def test_a_file_that_is_a_mount_of_its_own_is_copied(tmp_path: Path) -> None:
    for name in ("host.yaml", "my config.yaml"):
        (tmp_path / name).write_text("a: 1\n")
    told = mounted(tmp_path, 'mount --bind host.yaml "my config.yaml"', "my config.yaml")
    assert told == "is a mount of its own and cannot be replaced by a rename a: 2"
    assert (tmp_path / "host.yaml").read_text() == "a: 1\n"


@pytest.mark.long
def test_a_file_on_a_read_only_mount_is_copied(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "c.yaml").write_text("a: 1\n")
    told = mounted(tmp_path, "mount --bind etc etc; mount -o remount,bind,ro etc", "etc/c.yaml")
    assert told == "is read-only a: 2"
