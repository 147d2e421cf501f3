import os
from pathlib import Path

import pytest

from faultrun.rehearse.isolation.scratch_copy import ScratchCopy, copied


@pytest.fixture
def job(tmp_path: Path) -> Path:
    job = tmp_path / "job"
    (job / "ckpt").mkdir(parents=True)
    (job / "ckpt" / "a.pt").write_bytes(b"weights")
    (job / "train.py").write_text("print()")
    (job / ".git").mkdir()
    (job / "data").symlink_to("/usr/share")
    return job


def test_files_are_copies_and_what_is_large_or_not_for_writing_is_a_link(job: Path, tmp_path: Path) -> None:
    with (job / "large.bin").open("wb") as file:
        file.truncate(200 << 20)
    copy = copied(job, tmp_path / "copy", (), ())
    with (copy.work / "ckpt" / "a.pt").open("wb") as file:
        file.write(b"written in place")
    assert (job / "ckpt" / "a.pt").read_bytes() == b"weights"
    assert (copy.work / "train.py").read_text() == "print()"
    links = {path.name for path in copy.work.iterdir() if path.is_symlink()}
    assert links == {"large.bin", ".git", "data"}


def test_words_lead_to_the_copy_and_to_other_places_that_may_be_written(job: Path, tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "old.pt").write_bytes(b"old")
    words = ("--lr=0.1", f"--out={tmp_path}/new", f"--list={job}/train.py", "--name", "run")
    copy = copied(job, tmp_path / "copy", words, (str(tmp_path / "saved"), "ckpt"))
    assert copy.word("--lr=0.1") == "--lr=0.1"
    assert copy.word(f"--list={job}/train.py") == f"--list={copy.work}/train.py"
    assert copy.word(f"--out={tmp_path}/new").startswith(f"--out={tmp_path}/copy/place_")
    saved = Path(copy.path(str(tmp_path / "saved")))
    assert (saved / "old.pt").read_bytes() == b"old"
    assert copy.path("/usr/bin") == "/usr/bin"
    assert copy.path(f"{job}er/x") == f"{job}er/x"


def test_a_configuration_that_the_command_names_names_the_copies(job: Path, tmp_path: Path) -> None:
    (job / "train.yaml").write_text(f"out: {job}/ckpt\nlr: 0.1\n")
    copy = copied(job, tmp_path / "copy", ("--config=train.yaml",), ())
    assert (copy.work / "train.yaml").read_text() == f"out: {copy.work}/ckpt\nlr: 0.1\n"
    assert (job / "train.yaml").read_text() == f"out: {job}/ckpt\nlr: 0.1\n"


def test_a_copy_below_the_folder_itself_ends(job: Path) -> None:
    copy = copied(job, job / "scratch", (), ())
    assert (copy.work / "scratch").is_symlink()


def test_of_two_places_the_inner_one_counts() -> None:
    copy = ScratchCopy(work=Path("/c/w"), places=(("/job/out", "/c/p"), ("/job", "/c/w")))
    assert copy.path("/job/out/x") == "/c/p/x"
    assert copy.path("/job/x") == "/c/w/x"
    assert copy.path(os.sep) == os.sep
