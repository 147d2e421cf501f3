"""The journal on a disk: torn, full, foreign, read again, and written by an earlier version."""

import errno
import json
import os
import shutil
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from faultrun.errors import LogDirError
from faultrun.journal.append import JournalWriter
from faultrun.journal.read import Past, cut_torn_tail, event_of, lines, replay
from faultrun.model.events import FirstStep, RunStarted, SpawnFailed
from faultrun.model.observed.dying_gasp import GaspFailed
from faultrun.model.run import Phase, RunState, Step
from faultrun.model.topology import BootId
from support.machine.processes import files_limited_to, no_more_threads
from support.places import DATA
from support.stories.story import NODE, SIGTERM, Story, checkpoint, new_run

WORLD_SIZE = 2
START = new_run(WORLD_SIZE)


def writer(path: Path, *, next_seq: int = 0, soon_s: float = 0.05) -> JournalWriter:
    return JournalWriter(path, next_seq=next_seq, node=NODE, boot=BootId("b"), soon_s=soon_s)


def write(path: Path, story: Story) -> RunState:
    journal = writer(path)
    for event, step in story.steps:
        journal.append(event, step)
    journal.close()
    return story.state


def a_story() -> Story:
    """A fault, a recovery and a stop; its times are no round numbers."""
    story = Story(WORLD_SIZE)
    story.now_s = 1 / 3
    story.begins(checkpoint(5, "训练/net-5.ckpt")).reported(r0=6, r1=7).killed(1, after_s=0.1)
    story.could_not_save(0, "disk full").killed(0, SIGTERM, after_s=1e-7)
    story.recovers(checkpoint(5)).told_to_stop(after_s=2 / 3)
    return story


def test_the_journal_alone_gives_the_same_state(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    state = write(path, a_story())
    past = replay(path, START)
    assert past == Past(
        state=state,
        next_seq=len(path.read_bytes().splitlines()),
        last_s=past.last_s,
        last_utc=past.last_utc,
        boots=("b",),
    )
    assert past.last_s == pytest.approx(1 / 3 + 0.1 + 2 / 3)


def test_a_line_is_what_the_contract_says(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, Story(WORLD_SIZE).begins().never_started(1, errno=2, why="no such file"))
    line = list(lines(path))[-1]
    assert list(line)[:5] == ["seq", "at_utc", "run_s", "incarnation", "event"]
    assert list(line)[-3:] == ["phase", "actions", "why"]
    assert (line["event"], line["errno"], line["because"]) == ("SpawnFailed", 2, "no such file")
    assert line["why"] == "rank 1: no such file; 1 get 30 s to save"
    assert [action["is"] for action in line["actions"]] == ["RequestGasp", "RaiseAlarm", "StartTimer"]
    assert line["at_utc"].endswith("Z")


def test_the_reason_of_an_event_and_of_its_decision_are_both_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    story = Story(WORLD_SIZE).begins().killed(1).could_not_save(0, "disk full")
    write(path, story)
    read = event_of(list(lines(path))[-1])
    assert isinstance(read, GaspFailed)
    assert read.why == "disk full"


def test_torn_at_any_byte_it_loses_at_most_the_torn_line(tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole.jsonl", tmp_path / "torn.jsonl"
    story = Story(WORLD_SIZE).starts()
    write(whole, story)
    content = whole.read_bytes()
    events = [event for event, _ in story.steps]
    for size in range(len(content) + 1):
        torn.write_bytes(content[:size])
        kept = content[:size].count(b"\n")
        past = replay(torn, START)
        assert past.next_seq == kept
        assert [event_of(line) for line in lines(torn)] == events[:kept]
        assert torn.read_bytes() == b"".join(content.splitlines(keepends=True)[:kept])
        assert bool(past.torn) == (size not in (0, len(content)) and not content[:size].endswith(b"\n"))


def test_torn_at_any_byte_of_its_last_line_the_story_goes_on_one_event_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    story = a_story()
    write(path, story)
    content = path.read_bytes()
    before = story.steps[-2][1].state
    last = content[:-1].rfind(b"\n") + 1
    for size in range(last, len(content), 7):
        path.write_bytes(content[:size])
        assert replay(path, START).state == before


def test_writing_goes_on_behind_what_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, Story(WORLD_SIZE).begins())
    path.write_bytes(path.read_bytes() + b'{"seq":99,"half a li')
    past = replay(path, START)
    assert past.torn == "20 bytes after the last whole line were cut"
    journal = writer(path, next_seq=past.next_seq)
    journal.append(FirstStep(at_s=1, incarnation=0, step=1), Step(state=past.state, why="noted"))
    journal.close()
    assert [line["seq"] for line in lines(path)] == list(range(past.next_seq + 1))


def test_a_tear_longer_than_one_read_is_cut_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, Story(WORLD_SIZE).starts())
    content = path.read_bytes()
    path.write_bytes(content + b"x" * 200_000)
    assert cut_torn_tail(path) == "200000 bytes after the last whole line were cut"
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "junk",
    [
        b"\0" * 100,
        b"\xff\xfe not utf-8",
        b"[1,2,3]",
        b'"text"',
        b"{}",
        b'{"seq":"x","event":"WorkerExit"}',
        b'{"seq":null}',
        b'{"event":"WorkerExit","run_s":1,"incarnation":0,"rank":"one"}',
        b'{"event":"ClusterTeleported","run_s":1,"incarnation":0}',
        b'{"event":"TimerFired","run_s":1e999,"incarnation":0,"timer":"teatime"}',
        b"[" * 5000,
    ],
    ids=lambda junk: repr(junk[:20]),
)
def test_a_line_that_is_not_understood_is_passed_over(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    story = Story(WORLD_SIZE).begins().killed(1)
    write(path, story)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, junk, b"\n", *rest]))
    past = replay(path, START)
    assert past.state == story.state
    assert past.next_seq == len(story.steps)


def test_an_empty_journal_is_a_run_that_has_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.touch()
    assert replay(path, START) == Past(state=START, next_seq=0, last_s=0.0, boots=())


def test_the_budget_clock_goes_on_from_the_last_event(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    story = Story(WORLD_SIZE).begins()
    story.killed(1, after_s=1234.5)
    write(path, story)
    assert replay(path, START).last_s == 1234.5


@pytest.mark.parametrize(("later_s", "counted_s"), [(3600.0, 3600.0), (0.0, 0.0), (-3600.0, 0.0)])
def test_the_budget_clock_goes_on_while_nobody_supervises_and_never_back(
    tmp_path: Path, later_s: float, counted_s: float
) -> None:
    path = tmp_path / "journal.jsonl"
    story = Story(WORLD_SIZE).begins()
    story.killed(1, after_s=1234.5)
    write(path, story)
    past = replay(path, START)
    last_line = datetime.fromisoformat(past.last_utc.replace("Z", "+00:00"))
    assert past.run_s_at(last_line + timedelta(seconds=later_s)) == pytest.approx(1234.5 + counted_s)


@pytest.mark.parametrize("at_utc", ["", "yesterday", "2026-11-22T10:00:00"])
def test_a_line_without_a_time_that_can_be_read_lets_no_time_pass(at_utc: str) -> None:
    past = Past(state=START, next_seq=1, last_s=5.0, boots=("b",), last_utc=at_utc)
    assert past.run_s_at(datetime.now(timezone.utc)) == 5.0


def test_the_journal_says_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    story = Story(WORLD_SIZE)
    story.tell(RunStarted(at_s=0, incarnation=-1, node=NODE, boot=BootId("b"), pid=1, run_id="mine"))
    write(path, story)
    assert replay(path, START).run_id == "mine"


def test_a_name_that_is_no_utf8_is_written_as_json_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    name = os.fsdecode(b"ckpt/\xff.pt")
    story = Story(WORLD_SIZE).starts().chose(checkpoint(5, name))
    write(path, story)
    path.read_bytes().decode("utf-8")
    assert replay(path, START).state.life.point == checkpoint(5, name)


def test_a_full_disk_is_remembered_and_nothing_is_lost_once_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal, story = writer(path), a_story()
    with files_limited_to(700):
        for event, step in story.steps:
            journal.append(event, step)
        journal.sync()
        assert journal.trouble.startswith("journal not written: ")
        assert path.stat().st_size == 700
    journal.close()
    assert journal.trouble == ""
    assert replay(path, START).state == story.state


def test_a_journal_that_somebody_removed_is_there_again_with_every_line(tmp_path: Path) -> None:
    path, asked = tmp_path / "log" / "journal.jsonl", list[bool]()
    path.parent.mkdir()

    def begin_again() -> None:
        asked.append(path.parent.exists())
        path.parent.mkdir()

    story = a_story()
    journal = JournalWriter(path, next_seq=0, node=NODE, boot=BootId("b"), begin_again=begin_again)
    for number, (event, step) in enumerate(story.steps):
        if number == len(story.steps) // 2:
            shutil.rmtree(path.parent)
        journal.append(event, step)
    journal.close()
    assert (asked, journal.trouble) == ([False], "")
    assert replay(path, START).state == story.state


def test_where_another_run_has_the_log_dir_by_now_its_journal_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"

    def begin_again() -> None:
        raise LogDirError("no", because="run b (pid 7) holds its lock", hint="")

    journal = JournalWriter(path, next_seq=0, node=NODE, boot=BootId("b"), begin_again=begin_again)
    path.unlink()
    path.write_text("another's\n")
    journal.append(*a_story().steps[0])
    assert journal.trouble == "journal not written: run b (pid 7) holds its lock"
    journal.close()
    assert path.read_text() == "another's\n"


def test_where_another_run_has_the_name_of_a_moved_log_dir_the_journal_goes_on_where_it_is(
    tmp_path: Path,
) -> None:
    path, moved, story = tmp_path / "log" / "journal.jsonl", tmp_path / "archived", a_story()
    path.parent.mkdir()

    def begin_again() -> None:
        raise LogDirError("no", because="run b (pid 7) holds its lock", hint="")

    journal = JournalWriter(path, next_seq=0, node=NODE, boot=BootId("b"), begin_again=begin_again)
    journal.append(*story.steps[0])
    path.parent.rename(moved)
    path.parent.mkdir()
    path.write_text("another's\n")
    for event, step in story.steps[1:]:
        journal.append(event, step)
    assert (journal.keep_place(), journal.folder) == (False, moved)
    assert journal.trouble == (
        f"the log_dir was moved to {moved}, and cannot be made again: run b (pid 7) holds its lock; "
        "its journal goes on there"
    )
    journal.close()
    assert path.read_text() == "another's\n"
    assert replay(moved / "journal.jsonl", START).state == story.state


def test_where_no_thread_is_to_be_had_the_disk_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = writer(path)
    for event, step in a_story().steps:
        journal.append(event, step)
        with no_more_threads():
            journal.sync_soon()
    journal.close()
    assert journal.trouble == ""
    assert len(path.read_bytes().splitlines()) == len(a_story().steps)


def syncing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "faultrun-journal"]


def test_lines_for_which_nobody_waits_cost_one_write_of_the_disk_and_none_outlives_the_journal(
    tmp_path: Path,
) -> None:
    journal = writer(tmp_path / "journal.jsonl", soon_s=60.0)  # longer than the loop takes anywhere
    for event, step in a_story().steps:
        journal.append(event, step)
        journal.sync_soon()
        assert len(syncing()) == 1
    journal.close()
    assert syncing() == []


def test_what_the_disk_did_not_take_is_said_though_nobody_waited_and_later_lines_are_taken() -> None:
    journal = writer(Path(os.devnull))  # which takes what is written, and cannot be synced
    (event, step), *_ = a_story().steps
    journal.append(event, step)
    journal.sync_soon()
    for thread in syncing():
        thread.join(20)
    journal.append(event, step)
    assert journal.trouble == f"journal not synced: {os.strerror(errno.EINVAL)}"
    journal.close()


def test_two_writers_one_after_the_other_never_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    event = SpawnFailed(at_s=0, incarnation=0, rank=0, errno=2, why="w")
    for number in range(3):
        journal = writer(path, next_seq=number)
        journal.append(event, Step(state=START, why="noted"))
        journal.close()
    assert [json.loads(line)["seq"] for line in path.read_text().splitlines()] == [0, 1, 2]


KEPT = sorted((DATA / "journals").glob("*.jsonl"))
PREEMPTED = next(path for path in KEPT if path.stem == "a_fault_then_two_preemptions")


def replayed(lines: list[str], folder: Path) -> Past:
    journal = folder / "journal.jsonl"
    journal.write_text("".join(lines))
    return replay(journal, new_run(2))


@pytest.mark.long
@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_every_line_is_understood_and_leads_where_it_led(kept: Path, tmp_path: Path) -> None:
    lines = kept.read_text().splitlines(keepends=True)
    for count, line in enumerate(lines, start=1):
        past, told = replayed(lines[:count], tmp_path), json.loads(line)
        assert past.torn == ""
        assert past.state.phase is Phase(told["phase"]), line
        assert past.state.incarnation == told["incarnation"] or told["why"].startswith("stale"), line


def test_a_stopped_run_of_an_earlier_version_is_gone_on_with_a_finished_one_is_not(tmp_path: Path) -> None:
    lines = PREEMPTED.read_text().splitlines(keepends=True)
    ends = [
        number for number, line in enumerate(lines, start=1) if json.loads(line)["event"] == "RunFinished"
    ]
    states = [replayed(lines[:count], tmp_path).state for count in ends]
    assert [(state.exit_code, state.stop is not None) for state in states] == [
        (143, True), (143, True), (0, False),
    ]  # fmt: skip
    assert [state.incidents for state in states] == [1, 1, 1]
    assert states[0].run.high_step == 6
