"""The log_dir: claimed once, continued or moved aside, never overwritten."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faultrun.errors import LogDirError
from faultrun.journal.append import FILE_NAME, JournalWriter
from faultrun.journal.logdir import Claimed, claim, make, read_record, write_record
from faultrun.model.events import RunStarted
from faultrun.model.topology import BootId
from support.processes import files_limited_to
from support.story import NODE, SIGTERM, Story, new_run

START = new_run(2)


def left_by(folder: Path, story: Story, run_id: str = "before") -> None:
    """What a supervisor that told ``story`` left behind."""
    folder.mkdir(parents=True, exist_ok=True)
    journal = JournalWriter(folder / FILE_NAME, next_seq=0, node=NODE, boot=BootId("b"))
    for event, step in story.steps:
        journal.append(event, step)
    journal.close()
    write_record(folder, {"run_id": run_id, "pid": 1})
    (folder / "incarnation_0").mkdir()
    (folder / "incarnation_0" / "worker_0.log").write_text("hello")
    (folder / "worker_0.log").symlink_to("incarnation_0/worker_0.log")


def finished() -> Story:
    return Story(2).begins().returned(0).returned(1).drained()


def given_up() -> Story:
    return Story(2).starts().found_nothing_whole()


def stopped() -> Story:
    return Story(2).begins().told_to_stop().killed(0, SIGTERM).killed(1, SIGTERM).drained()


def cut_off() -> Story:
    return Story(2).begins().killed(1)


def test_a_new_folder_is_made_with_all_above_it(tmp_path: Path) -> None:
    claimed = claim(tmp_path / "a" / "b", START, "run")
    assert claimed == Claimed(path=tmp_path / "a" / "b", past=None, run_id="run")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("story", [stopped, cut_off])
def test_a_run_that_was_stopped_or_cut_off_is_continued_under_its_own_name(
    tmp_path: Path, story: type
) -> None:
    left_by(tmp_path, story())
    claimed = claim(tmp_path, START, "new")
    assert claimed.run_id == "before"
    assert claimed.past is not None
    assert claimed.past.state == story().state
    assert claimed.past.boots == ("b",)
    assert claimed.note == "going on with run before after incarnation 0"
    assert (tmp_path / "worker_0.log").read_text() == "hello"


@pytest.mark.parametrize("story", [finished, given_up])
def test_a_run_that_ended_is_moved_aside_with_everything(tmp_path: Path, story: type) -> None:
    left_by(tmp_path, story())
    claimed = claim(tmp_path, START, "new")
    assert (claimed.run_id, claimed.past) == ("new", None)
    aside = tmp_path / "runs" / "before"
    assert (aside / FILE_NAME).exists()
    assert (aside / "worker_0.log").read_text() == "hello"
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {"runs"}
    assert str(aside) in claimed.note


@pytest.mark.parametrize(
    ("run_id", "folder"), [("a/../b", "a_.._b"), ("..", "run"), ("", "new"), ("训练-1", "训练-1")]
)
def test_a_strange_name_becomes_a_folder_all_the_same(tmp_path: Path, run_id: str, folder: str) -> None:
    left_by(tmp_path, finished(), run_id)
    claimed = claim(tmp_path, START, "new")
    assert claimed.before == tmp_path / "runs" / folder


def test_of_two_runs_with_one_name_neither_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "runs" / "before").mkdir(parents=True)
    (tmp_path / "runs" / "before_2").mkdir()
    left_by(tmp_path, finished())
    assert claim(tmp_path, START, "new").before == tmp_path / "runs" / "before_3"


def test_a_journal_without_a_start_is_no_run(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b'{"seq":0,"event":"Runs')
    claimed = claim(tmp_path, START, "new")
    assert (claimed.run_id, claimed.past) == ("new", None)


def test_a_torn_journal_is_mentioned(tmp_path: Path) -> None:
    left_by(tmp_path, cut_off())
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b"half")
    assert "4 bytes after the last whole line were cut" in claim(tmp_path, START, "new").note


@pytest.mark.parametrize("record", ["", "{torn", "[1]"])
def test_without_its_record_a_run_is_continued_under_the_name_in_its_journal(
    tmp_path: Path, record: str
) -> None:
    story = Story(2)
    story.tell(RunStarted(at_s=0, incarnation=-1, node=NODE, boot=BootId("b"), pid=1, run_id="before"))
    left_by(tmp_path, story.all_run().killed(1))
    (tmp_path / "run.json").write_text(record)
    claimed = claim(tmp_path, START, "new")
    assert claimed.run_id == "before"
    assert claimed.past is not None


def test_a_run_that_nothing_names_is_continued_under_the_new_name(tmp_path: Path) -> None:
    left_by(tmp_path, cut_off())
    (tmp_path / "run.json").unlink()
    claimed = claim(tmp_path, START, "new")
    assert claimed.run_id == "new"
    assert claimed.past is not None


def test_what_another_process_holds_is_refused(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LogDirError) as refused:
        claim(tmp_path, START, "new")
    assert refused.value.because == "run theirs (pid 4711) holds its lock"
    holder.communicate("", timeout=20)
    assert claim(tmp_path, START, "new").run_id == "new"


@pytest.mark.parametrize("below", ["file", "file/below"])
def test_what_cannot_be_a_folder_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogDirError) as refused:
        make(tmp_path / below)
    assert refused.value.exit_code == 73


def test_a_full_disk_is_noticed_before_anything_is_started(tmp_path: Path) -> None:
    with files_limited_to(1000), pytest.raises(LogDirError) as refused:
        make(tmp_path)
    assert refused.value.because == "File too large"
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_replaced_in_one_step_and_read_back(tmp_path: Path) -> None:
    assert read_record(tmp_path) == {}
    write_record(tmp_path, {"run_id": "a", "pid": 1})
    write_record(tmp_path, {"run_id": "b", "pid": 2})
    assert read_record(tmp_path) == {"run_id": "b", "pid": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    (tmp_path / "run.json").write_text(json.dumps([1]))
    assert read_record(tmp_path) == {}


_HOLD = f"""
import sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from faultrun.journal.logdir import claim, write_record
from support.processes import files_limited_to
from support.story import new_run
folder = Path(sys.argv[1])
claim(folder, new_run(2), "theirs")
write_record(folder, {{"run_id": "theirs", "pid": 4711}})
print("held", flush=True)
sys.stdin.read()
"""
