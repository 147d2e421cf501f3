"""Log files: msrun's names as links, the last words of the dead."""

import os
from pathlib import Path

import pytest

from faultrun.model.observed.evidence import DeathNote
from faultrun.workers.logs.death_evidence import death_note
from faultrun.workers.logs.log_files import LogFiles, point_link


def logs(folder: Path, incarnation: int = 0, name: str = "worker") -> LogFiles:
    return LogFiles(log_dir=folder, worker_name=name, incarnation=incarnation)


def test_every_incarnation_has_its_folder_and_the_links_follow(tmp_path: Path) -> None:
    for incarnation in range(3):
        files = logs(tmp_path, incarnation)
        files.open((0, 1))
        files.worker(1).write_text(f"life {incarnation}")
        files.scheduler.write_text(f"scheduler {incarnation}")
        files.link_scheduler()
        assert (tmp_path / "worker_1.log").read_text() == f"life {incarnation}"
        assert (tmp_path / "scheduler.log").read_text() == f"scheduler {incarnation}"
    assert (tmp_path / "incarnation_0" / "worker_1.log").read_text() == "life 0"
    assert str((tmp_path / "worker_0.log").readlink()) == "incarnation_2/worker_0.log"


def test_the_names_are_msruns(tmp_path: Path) -> None:
    files = logs(tmp_path, name="10.0.0.1")
    files.open((0,))
    assert (tmp_path / "10.0.0.1_0.log").is_symlink()
    assert files.error_file(3) == tmp_path / "incarnation_0" / "error_3.json"
    assert files.worker_errors(3).name == "10.0.0.1_3.err.log"


def test_links_still_hold_when_the_folder_is_moved(tmp_path: Path) -> None:
    logs(tmp_path / "here").open((0,))
    (tmp_path / "here" / "incarnation_0" / "worker_0.log").write_text("moved")
    (tmp_path / "here").rename(tmp_path / "there")
    assert (tmp_path / "there" / "worker_0.log").read_text() == "moved"


def test_somebody_elses_file_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "worker_0.log").write_text("msrun's, from last week")
    logs(tmp_path).open((0,))
    assert (tmp_path / "worker_0.log").read_text() == "msrun's, from last week"


def test_a_link_is_replaced_even_if_it_points_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "target").write_text("here")
    point_link(tmp_path / "link", tmp_path / "target")
    assert (tmp_path / "link").read_text() == "here"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


@pytest.mark.parametrize(
    ("text", "line", "step"),
    [
        ("", "", None),
        ("\n \n", "", None),
        ("loss 0.5\nRuntimeError: boom\n\n", "RuntimeError: boom", None),
        ("epoch: 1 step: 12, loss is 0.1\nepoch: 1 step: 13, loss is 0.1\nkilled", "killed", 13),
        ("global_step=41 loss=1\n", "global_step=41 loss=1", 41),
        ("Step 7\nfootsteps 99\nmisstep: 98\n", "misstep: 98", 7),
        ("step: 123456789012345678\n", "step: 123456789012345678", None),
        ("no newline at the end", "no newline at the end", None),
        ("x" * 9999, "x" * 500, None),
    ],
)
def test_the_last_line_and_step_of_a_log(tmp_path: Path, text: str, line: str, step: int | None) -> None:
    (tmp_path / "log").write_text(text)
    found = death_note(3, [tmp_path / "log"])
    assert (found.rank, found.last_line, found.logged_step) == (3, line, step)


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        file.write(b"step: 1\n")
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast words\n")
    assert death_note(0, [tmp_path / "log"]) == DeathNote(rank=0, last_line="last words")


def test_a_log_that_is_no_text_or_not_there_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\x00 step: 5 \x80\r\n")
    assert death_note(0, [tmp_path / "log"]).logged_step == 5
    assert death_note(0, [tmp_path / "missing"]) == DeathNote(rank=0)
