"""What is done with files below a folder, as the kernel tells it."""

import subprocess
import sys
from pathlib import Path

import pytest

from faultrun.platforms.folder_watch import FileUse, FolderWatch


def watched(root: Path) -> FolderWatch:
    watch = FolderWatch([str(root)])
    watch.tell_reads(True)
    watch.begin()
    return watch


def told(watch: FolderWatch, root: Path) -> list[tuple[str, str]]:
    return [(str(Path(one.path).relative_to(root)), one.use.value) for one in watch.seen()]


def test_saves_loads_and_removals_are_told_apart(tmp_path: Path) -> None:
    watch = watched(tmp_path)
    (tmp_path / "a.pt").write_bytes(b"1")
    (tmp_path / ".b.tmp").write_bytes(b"1")
    (tmp_path / ".b.tmp").rename(tmp_path / "b.pt")
    assert told(watch, tmp_path)[0] == ("a.pt", "written")
    (tmp_path / "a.pt").read_bytes()
    (tmp_path / "b.pt").unlink()
    assert told(watch, tmp_path) == [("a.pt", "read"), ("b.pt", "gone")]
    watch.close()


@pytest.mark.parametrize("below", ["ckpt", "out/run/ckpt"])
def test_a_root_that_is_made_later_is_watched_with_all_below_it(tmp_path: Path, below: str) -> None:
    root = tmp_path / below
    watch = watched(root)
    (root / "step_1").mkdir(parents=True)
    (root / "step_1/model.pt").write_bytes(b"1")
    found = told(watch, root)
    (root / "step_1/optimizer.pt").write_bytes(b"1")
    found += told(watch, root)
    assert {("step_1/model.pt", "written"), ("step_1/optimizer.pt", "written")} <= set(found)
    assert watch.whole
    watch.close()


def test_a_link_shows_under_the_name_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"1")
    (tmp_path / "latest.pt").symlink_to("a.pt")
    watch = watched(tmp_path)
    (tmp_path / "latest.pt").read_bytes()
    assert told(watch, tmp_path) == [("a.pt", "read")]
    watch.close()


def test_a_root_that_is_a_link_is_told_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "ckpt").symlink_to("scratch")
    watch = watched(tmp_path / "ckpt")
    (tmp_path / "ckpt/a.pt").write_bytes(b"1")
    assert told(watch, tmp_path) == [("ckpt/a.pt", "written")]
    watch.close()


def test_a_move_tells_where_the_file_was_alone_or_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    (tmp_path / "last/a.pt").write_bytes(b"1")
    watch = watched(tmp_path)
    (tmp_path / "last/a.pt").rename(tmp_path / "last/b.pt")
    (tmp_path / "last").rename(tmp_path / "prev")
    (tmp_path / "prev/b.pt").write_bytes(b"1")
    found = [
        (one.path.removeprefix(f"{tmp_path}/"), one.was.removeprefix(f"{tmp_path}/")) for one in watch.seen()
    ]
    assert found[1:] == [("last/b.pt", "last/a.pt"), ("prev/b.pt", "last/b.pt"), ("prev/b.pt", "")]
    watch.close()


def test_reads_are_told_only_while_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"1")
    watch = watched(tmp_path)
    watch.tell_reads(False)
    (tmp_path / "a.pt").read_bytes()
    assert [one for one in watch.seen() if one.use is FileUse.READ] == []
    watch.close()


def test_more_folders_than_may_be_watched_are_not_seen_whole(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / str(number)).mkdir()
    watch = FolderWatch([str(tmp_path)], most=3)
    watch.begin()
    assert not watch.whole
    watch.close()


def test_beside_the_roots_writes_are_told_until_they_are_left(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    watch = FolderWatch([str(tmp_path / "ckpt")], beside=[str(tmp_path)])
    watch.tell_reads(True)
    watch.begin()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.pt").write_bytes(b"1")
    (tmp_path / "out/a.pt").read_bytes()
    assert set(told(watch, tmp_path)) == {("out/a.pt", "written")}
    watch.leave_beside()
    (tmp_path / "out/b.pt").write_bytes(b"1")
    (tmp_path / "ckpt/c.pt").write_bytes(b"1")
    assert told(watch, tmp_path) == [("ckpt/c.pt", "written")]
    assert watch.whole
    watch.close()


def test_many_folders_beside_the_roots_take_nothing_from_these(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"data/{number}").mkdir(parents=True)
    (tmp_path / "ckpt").mkdir()
    watch = FolderWatch([str(tmp_path / "ckpt")], beside=[str(tmp_path)], most=8)
    watch.begin()
    (tmp_path / "ckpt/step_1").mkdir()
    assert list(watch.seen()) == []
    (tmp_path / "ckpt/step_1/a.pt").write_bytes(b"1")
    assert told(watch, tmp_path) == [("ckpt/step_1/a.pt", "written")]
    assert watch.whole
    watch.close()


def test_a_second_name_of_a_whole_file_is_written_and_a_file_that_is_begun_is_not(tmp_path: Path) -> None:
    watch = watched(tmp_path)
    watch.tell_reads(False)
    with (tmp_path / "b.pt").open("wb") as begun:
        begun.write(b"1")
        begun.flush()
        (tmp_path / ".a.tmp").write_bytes(b"1")
        (tmp_path / "a.pt").hardlink_to(tmp_path / ".a.tmp")
        (tmp_path / ".a.tmp").unlink()
        (tmp_path / "latest.pt").symlink_to("a.pt")
        assert told(watch, tmp_path)[-1] == ("a.pt", "written")
    assert told(watch, tmp_path) == [("b.pt", "written")]
    (tmp_path / "copy.pt").hardlink_to(tmp_path / "b.pt")
    assert told(watch, tmp_path) == [("copy.pt", "written")]
    watch.close()


_LOOKS = """
import os
from faultrun.platforms.folder_watch import FolderWatch
watch = FolderWatch([os.getcwd()])
watch.begin()
for number in range(1000):
    os.link("a.pt", f"{number}.pt")
    list(watch.seen())
    os.unlink(f"{number}.pt")
"""


def test_who_looks_is_not_ended_by_a_writer_that_comes_in_this_moment(tmp_path: Path) -> None:
    """The kernel tells it to who holds a lease, by a signal that ends a process (SIGIO)."""
    (tmp_path / "a.pt").write_bytes(b"1")
    looks = subprocess.Popen([sys.executable, "-c", _LOOKS], cwd=tmp_path)
    while looks.poll() is None:
        (tmp_path / "a.pt").open("ab").close()
    assert looks.returncode == 0
