"""Log files: msrun's names as links, the last words of the dead."""

import os
from pathlib import Path

import pytest

from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.progress import RankStep
from faultrun.model.wire import SLOT_BYTES, pack_word
from faultrun.workers.logs.console import Console
from faultrun.workers.logs.death_evidence import death_note
from faultrun.workers.logs.last_steps import LastSteps, last_steps, progress_of
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


def files(log_dir: Path) -> LogFiles:
    made = LogFiles(log_dir=log_dir, worker_name="worker", incarnation=2)
    made.folder.mkdir()
    return made


def write_page(logs: LogFiles, *steps: int | None) -> None:
    """One slot a rank; None: it has not written yet."""
    words = [
        b"" if step is None else pack_word(step, epoch=-1, phase=0, at_monotonic_s=1.0, count=1)
        for step in steps
    ]
    logs.progress.write_bytes(b"".join(word.ljust(SLOT_BYTES, b"\0") for word in words))


def test_what_ranks_report_counts_and_their_logs_do_not(tmp_path: Path) -> None:
    logs = files(tmp_path)
    write_page(logs, 30, None)
    logs.worker(4).write_text("step 99 loss 0.5\n")
    found = last_steps(logs, (4, 5))
    assert (found.steps, found.by_log) == ((RankStep(rank=4, step=30),), False)
    assert [seen.step if seen is not None else None for seen in progress_of(logs)] == [30, None]


def test_where_nobody_reports_the_last_step_of_each_log_counts(tmp_path: Path) -> None:
    logs = files(tmp_path)
    write_page(logs, None, None, None)
    logs.worker(0).write_text("step 84 loss 0.5\nstep 85 loss 0.4\nBroken pipe\n")
    logs.worker(1).write_text("max step: 900\n")
    os.utime(logs.worker(0), ns=(1, 10**18))
    os.utime(logs.worker(1), ns=(1, 5))
    os.utime(logs.progress, ns=(1, 5))
    found = last_steps(logs, range(3))
    assert found == LastSteps(steps=(RankStep(rank=0, step=85),), by_log=True, changed_utc_ns=10**18)


def test_steps_that_count_anew_in_every_epoch_are_no_global_ones(tmp_path: Path) -> None:
    logs = files(tmp_path)
    logs.worker(0).write_text("epoch: 3 step: 7, loss is 0.5\n")
    assert last_steps(logs, (0,)).steps == ()


def test_where_nothing_is_left_nothing_is_known(tmp_path: Path) -> None:
    gone = LogFiles(log_dir=tmp_path, worker_name="worker", incarnation=7)
    assert last_steps(gone, (0, 1)) == LastSteps(by_log=True)


def test_what_a_full_disk_did_not_take_comes_once_it_has_room(tmp_path: Path) -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    console = Console(fd, None)
    console.take(b"[0]: ", [b"one", b"two"])
    assert not console.has_room()
    with (tmp_path / "out").open("wb") as out:
        os.dup2(out.fileno(), fd)
    assert console.has_room()
    console.take(b"[1]: ", [b"three"])
    os.close(fd)
    assert (tmp_path / "out").read_text() == "[0]: one\n[0]: two\n[1]: three\n"
