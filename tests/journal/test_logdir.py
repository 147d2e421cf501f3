"""The log_dir: claimed once, continued or moved aside, never overwritten."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.errors import LogDirError
from faultrun.journal import logdir
from faultrun.journal.append import FILE_NAME, JournalWriter
from faultrun.journal.logdir import RECORD, Claimed, make, mark_ended, read_record, set_aside, write_record
from faultrun.model.events import RunStarted
from faultrun.model.run import RunState
from faultrun.model.topology import BootId
from support.machine.processes import files_limited_to, killed_at_change
from support.stories.story import NODE, SIGTERM, Story, new_run

START = new_run(2)


def claim(folder: Path, start: RunState, run_id: str) -> Claimed:
    """As a supervisor that then ends."""
    claimed = logdir.claim(folder, start, run_id)
    assert claimed.lock is not None
    claimed.lock.release()
    return claimed


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


@pytest.mark.parametrize("story", [stopped, cut_off, given_up])
def test_a_run_that_did_not_come_to_its_end_is_continued_by_its_name(tmp_path: Path, story: type) -> None:
    left_by(tmp_path, story())
    claimed = claim(tmp_path, START, "new")
    assert claimed.run_id == "before"
    assert claimed.past is not None
    assert claimed.past.state == story().state
    assert claimed.past.boots == ("b",)
    last = claimed.past.state.plan
    after = "that had no plan here yet" if last is None else f"after incarnation {last.incarnation}"
    assert claimed.note.startswith(f"going on with run before {after}")
    assert (tmp_path / "worker_0.log").read_text() == "hello"


def test_a_run_that_was_given_up_is_continued_with_a_line_that_says_why(tmp_path: Path) -> None:
    left_by(tmp_path, given_up())
    assert claim(tmp_path, START, "new").note == (
        "going on with run before that had no plan here yet, with a fresh budget: "
        "it had been given up (exit code 65), 3 found, none whole"
    )


def test_a_run_that_ended_is_set_aside_with_everything(tmp_path: Path) -> None:
    left_by(tmp_path, finished())
    claimed = claim(tmp_path, START, "new")
    assert (claimed.run_id, claimed.past, claimed.ended_run) == ("new", None, "before")
    aside = set_aside(tmp_path, claimed.ended_run)
    assert aside == tmp_path / "runs" / "before"
    assert (aside / FILE_NAME).exists()
    assert (aside / "worker_0.log").read_text() == "hello"
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {"runs"}


def test_what_stays_is_not_set_aside_with_its_neighbours(tmp_path: Path) -> None:
    left_by(tmp_path, finished())
    kept = {"/a.yaml": {"name": "001-a.yaml"}, "/b.yaml": {"name": "hand-001-b.yaml"}}
    index = json.dumps({"version": 1, "files": kept})
    written(tmp_path, {"original/index.json": index, "original/001-a.yaml": "of the run"})
    written(tmp_path, {"original/hand-001-b.yaml": "of a person"})
    aside = set_aside(tmp_path, "before", staying=[tmp_path / "original" / "hand-001-b.yaml"])
    assert files_below(tmp_path / "original") == {"hand-001-b.yaml"}
    assert files_below(aside / "original") == {"index.json", "001-a.yaml"}


REPORTS = {
    "report.html": "<title>r (faultrun report)</title>",
    "report.json": '{"schema": 1, "productive_share": 1}',
}

OURS = {
    *("incident_1.txt", "incident_1.json", "incident_1/rank_0.txt"),
    *("report.html", "report.json", "checkpoints.jsonl"),
    *(".run.json.4711", "standby_0.log", "rank_table_of_2_nodes.json", "rank_table_of_0_2.json"),
    *("device0/group_info.pb", "etcd/etcd.log", "etcd/data/member/wal", "edited/0123abcd/a.yaml"),
}


THEIRS = st.sampled_from(
    [
        *("train.py", ".git/HEAD", "notes.txt", "model.ckpt", "ckpt/step_20.pt", "runs/events.out", "a b/c"),
        *("original/001-cat.jpg", "original/index.html", "edited/cat.jpg", "etcd/conf.yml", "data/x.bin"),
        *(
            *("device0/net-1_20.ckpt", "device0/rank_0.log"),
            *("devices/group_info.pb", "incident.txt", "report.pdf"),
        ),
        *("incident_1/photo.jpg", "incident_1/rank_0.pt", "report.md"),
        *("worker_0.txt", "worker_7.log", "incarnation/x", "incident_one.txt", "rank_table_8pcs.json"),
        *(
            *("journal.jsonl.bak", "my_run.json", "standby_a.log"),
            *(".env", ".notes.1", "compile_cache/graph.mindir"),
        ),
        *(
            *("node_a/x", "report.pdf", "compile_cache/a.mindir", "group_info.pb"),
            *("checkpoints/a.jsonl", ".venv/bin/python", "训练/模型.pt"),
        ),
    ]
)


@given(theirs=st.sets(THEIRS, max_size=12), ours=st.sets(st.sampled_from(sorted(OURS))))
def test_of_a_log_dir_only_what_bears_our_names_is_moved(theirs: set[str], ours: set[str]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        left_by(folder, finished())
        written(folder, {name: REPORTS.get(name, "x") for name in {*theirs, *ours}})
        (folder / "latest").symlink_to("ckpt")
        aside = set_aside(folder, "before")
        moved = {FILE_NAME, RECORD, "worker_0.log", "incarnation_0/worker_0.log"}
        assert files_below(aside) == {*ours, *moved}
        assert {one for one in files_below(folder) if not one.startswith("runs/before/")} == {*theirs}
        assert (folder / "latest").is_symlink()


def written(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.long
def test_killed_at_any_change_while_it_is_set_aside_a_run_is_found_again_whole(tmp_path: Path) -> None:
    """Two starts are killed at the same change each; the third does the rest."""
    start_after(ended_well(tmp_path / "whole"))
    whole = set(below(tmp_path / "whole"))
    for at in count(1):
        folder = ended_well(tmp_path / str(at))
        ends = [killed_at_change(at, partial(start_after, folder)) for _ in range(2)]
        start_after(folder)
        assert set(below(folder)) - {RECORD} == whole
        if ends[0] == 0:
            assert at > 5
            break


def ended_well(folder: Path) -> Path:
    left_by(folder, named(finished()))
    mark_ended(folder, "b", 0)
    return folder


def start_after(folder: Path) -> None:
    """What a start does about the run that ended in ``folder``."""
    if (folder / FILE_NAME).exists():
        claimed = claim(folder, START, "new")
        assert (claimed.ended_run, claimed.untold) == ("before", None)
        set_aside(folder, "before")


def below(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.name[0] != "."]


@pytest.mark.parametrize("story", [finished, given_up])
def test_an_end_that_nobody_was_told_is_told_by_the_next_start(tmp_path: Path, story: type) -> None:
    told = story()
    left_by(tmp_path, named(told))
    claimed = claim(tmp_path, START, "new")
    assert (claimed.run_id, claimed.untold) == ("before", told.state.exit_code)
    mark_ended(tmp_path, "b", told.state.exit_code)
    assert claim(tmp_path, START, "new").untold is None


def test_the_mark_of_an_earlier_supervisor_says_nothing_of_the_newest(tmp_path: Path) -> None:
    left_by(tmp_path, named(finished()))
    mark_ended(tmp_path, "an earlier one", 143)
    assert claim(tmp_path, START, "new").untold == 0


def named(story: Story) -> Story:
    """The same, told by a version that writes the run id into its journal."""
    first, step = story.steps[0]
    assert isinstance(first, RunStarted)
    story.steps[0] = (replace(first, run_id="before"), step)
    return story


@pytest.mark.parametrize(
    ("run_id", "folder"), [("a/../b", "a_.._b"), ("..", "run"), ("", "new"), ("训练-1", "训练-1")]
)
def test_a_strange_name_becomes_a_folder_all_the_same(tmp_path: Path, run_id: str, folder: str) -> None:
    left_by(tmp_path, finished(), run_id)
    claimed = claim(tmp_path, START, "new")
    assert set_aside(tmp_path, claimed.ended_run) == tmp_path / "runs" / folder


def test_of_two_runs_with_one_name_neither_is_overwritten(tmp_path: Path) -> None:
    for _ in range(3):
        left_by(tmp_path, finished())
        aside = set_aside(tmp_path, claim(tmp_path, START, "new").ended_run)
    assert aside == tmp_path / "runs" / "before_3"
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"before", "before_2", "before_3"}


def test_a_journal_without_a_start_is_no_run(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / FILE_NAME).write_bytes(b'{"seq":0,"event":"Runs')
    claimed = claim(tmp_path, START, "new")
    assert (claimed.run_id, claimed.past) == ("new", None)


@pytest.mark.parametrize("name", ["run.json", "report.json", "report.md", "incident_1.txt", "journal.jsonl"])
def test_a_folder_in_which_a_run_would_write_over_files_of_others_is_refused(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text('{"schema": 1}')
    with pytest.raises(LogDirError, match=f"has files that a run would write over: {name}"):
        claim(tmp_path, START, "new")
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_a_torn_journal_is_mentioned(tmp_path: Path) -> None:
    left_by(tmp_path, cut_off())
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b"half")
    assert "4 bytes after the last whole line were cut" in claim(tmp_path, START, "new").note


@pytest.mark.parametrize("record", ["", "{torn", "[1]"])
def test_without_its_record_a_run_is_continued_by_its_journals_name(tmp_path: Path, record: str) -> None:
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


@pytest.mark.long
def test_what_another_process_holds_is_refused(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LogDirError) as refused:
        claim(tmp_path, START, "new")
    assert refused.value.because.startswith(f"pid {holder.pid} (python")
    assert refused.value.because.endswith(" holds its lock; the run that was here is run theirs (pid 4711)")
    write_record(tmp_path, {"run_id": "theirs", "pid": holder.pid})
    with pytest.raises(LogDirError) as refused:
        claim(tmp_path, START, "new")
    assert refused.value.because == f"run theirs (pid {holder.pid}) holds its lock"
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
from support.machine.processes import files_limited_to
from support.stories.story import new_run
folder = Path(sys.argv[1])
mine = claim(folder, new_run(2), "theirs")
write_record(folder, {{"run_id": "theirs", "pid": 4711}})
print("held", flush=True)
sys.stdin.read()
"""
