import os
import subprocess
import sys
from pathlib import Path

import pytest

from faultrun.rehearse.isolation.file_digests import changed, marks_of


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "a.pt").write_bytes(b"weights")
    (tmp_path / "link").symlink_to("ckpt/a.pt")
    return tmp_path


def test_what_nobody_touched_has_the_same_marks(place: Path) -> None:
    before = marks_of([str(place)])
    assert len(before) == 4
    os.utime(place / "ckpt" / "a.pt", (1, 1))  # looking at a small file is reading it
    assert changed(before, marks_of([str(place)])) == ()


def test_a_changed_a_new_and_a_removed_file_and_a_turned_link_are_found(place: Path) -> None:
    (place / "gone").write_text("x")
    before = marks_of([str(place)])
    (place / "ckpt" / "a.pt").write_bytes(b"weighty")
    (place / "new").write_text("x")
    (place / "gone").unlink()
    (place / "link").unlink()
    (place / "link").symlink_to("new")
    names = [Path(path).name for path in changed(before, marks_of([str(place)]))]
    assert names == ["a.pt", "gone", "link", "new"]


def test_a_changed_mode_is_a_change(place: Path) -> None:
    before = marks_of([str(place)])
    (place / "ckpt" / "a.pt").chmod(0o600)
    assert len(changed(before, marks_of([str(place)]))) == 1


def test_a_large_file_is_told_by_its_stamps_even_where_its_time_is_set_back(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(40 << 20)
    before, stamps = marks_of([str(large)]), large.stat()
    with large.open("rb+") as file:
        file.seek(20 << 20)
        file.write(b"x")
    os.utime(large, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
    assert changed(before, marks_of([str(large)])) == (str(large),)


def test_what_is_not_there_has_no_mark_and_a_place_named_twice_is_read_once(tmp_path: Path) -> None:
    assert marks_of([str(tmp_path / "missing")]) == {}
    assert len(marks_of([str(tmp_path), f"{tmp_path}/"])) == 1


def test_what_a_shell_leads_our_own_words_to_is_left_out(place: Path) -> None:
    code = """
from faultrun.rehearse.isolation.file_digests import changed, marks_of, own_streams
before = marks_of(["."], own_streams())
print("some words", flush=True)
open("ckpt/a.pt", "ab").write(b"x")
print(changed(before, marks_of(["."], own_streams())), flush=True)
"""
    log = place / "rehearsal.log"
    with log.open("wb") as stream:
        subprocess.run([sys.executable, "-c", code], cwd=place, stdout=stream, stderr=stream, check=True)
    assert log.read_text().splitlines() == ["some words", str((str(place / "ckpt" / "a.pt"),))]
