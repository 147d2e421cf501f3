"""Logs of many ranks and lives as one text: found, put in order, read from their ends, cut or growing."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.observe.console.worker_output import (
    GrowingLog,
    WorkerLog,
    begin_of_last,
    in_order,
    last,
    lives,
    logs_of,
    time_of,
    whole,
)
from faultrun.workers.logs.log_rotation import rotate


def log_of(folder: Path, rank: int, text: str, life: int = 0) -> WorkerLog:
    place = folder / f"incarnation_{life}"
    place.mkdir(exist_ok=True)
    path = place / f"worker_{rank}.log"
    path.write_text(text)
    return WorkerLog(life, rank, path)


def texts(lines: object) -> list[str]:
    return [line.text.decode() for line in lines]  # type: ignore[attr-defined]


def test_lives_and_logs_are_found_whatever_the_workers_logs_are_called(tmp_path: Path) -> None:
    logs = "w_node7_10.log w_node7_9.log w_node7_9.err.log scheduler.log filtered_stdout.log"
    for name in logs.split():
        (tmp_path / "incarnation_10").mkdir(exist_ok=True)
        (tmp_path / "incarnation_10" / name).touch()
    (tmp_path / "incarnation_9").mkdir()
    assert lives(tmp_path) == [9, 10]
    assert lives(tmp_path / "nowhere") == []
    found = logs_of(tmp_path, 10)
    assert [(log.rank, log.path.name) for log in found] == [
        (9, "w_node7_9.err.log"), (9, "w_node7_9.log"), (10, "w_node7_10.log"),
    ]  # fmt: skip
    assert [log.rank for log in logs_of(tmp_path, 10, [10])] == [10]


def test_lines_with_times_are_in_their_order_and_those_without_stay_behind_theirs(tmp_path: Path) -> None:
    zero = log_of(tmp_path, 0, "a\n2026-11-22 10:00:01,5 b\nTraceback:\n  c\n2026-11-22T10:00:09Z d\n")
    one = log_of(tmp_path, 1, "[WARNING] ME(9:7):2026-11-22-10:00:02.123.456 [x.py:1] e\nf\n")
    assert [line.split()[-1] for line in texts(in_order([whole(zero), whole(one)]))] == [
        "a", "b", "Traceback:", "c", "e", "f", "d",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("2026-11-22 10:00:01 x", "2026-11-22 10:00:01.000000"),
        ("[2026-11-22 10:00:01,123] [INFO] x", "2026-11-22 10:00:01.123000"),
        ("[rank0]:W1122 10:00:01.5 12 torch/x.py:1] x", "1122"),
        ("loss 0.1 at 10:00:01", ""),
        (f"{'x' * 100}2026-11-22 10:00:01", ""),
    ],
)
def test_the_usual_times_are_known(line: str, time: str, tmp_path: Path) -> None:
    log = log_of(tmp_path, 0, "")
    os.utime(log.path, (1795300000, 1795300000))  # in November 2026
    wanted = "2026-11-22 10:00:01.500000" if time == "1122" else time
    assert time_of(line.encode(), log.path) == wanted


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab", max_size=5), max_size=12), st.booleans(), st.integers(1, 14))
def test_the_last_lines_are_those_that_a_list_would_give(lines: list[str], ended: bool, count: int) -> None:
    path = Path("/dev/shm") / f"last_lines_{os.getpid()}"
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    path.write_text(text)
    try:
        begin, found = begin_of_last(path, count)
        known = text.removesuffix("\n").split("\n") if text else []
        end = "\n" if text.endswith("\n") else ""
        assert text[begin:] == "\n".join(known[-count:]) + end
        assert found == min(count, len(known))
    finally:
        path.unlink()


def test_the_last_lines_of_a_large_file_are_found_without_reading_it(tmp_path: Path) -> None:
    log = log_of(tmp_path, 0, "")
    with log.path.open("r+b") as file:
        file.truncate(1 << 40)  # a terabyte of nothing: who read it would never come back
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"".join(b"line %d\n" % n for n in range(50_000)))
    ((life, lines),) = last([log], 20_000)
    assert life == 0
    assert texts(lines) == [f"line {n}" for n in range(30_000, 50_000)]


def test_what_one_life_lacks_comes_from_the_one_before(tmp_path: Path) -> None:
    logs = [log_of(tmp_path, 0, "a\nb\nc\n", life=0), log_of(tmp_path, 0, "d\n", life=1)]
    assert [(life, texts(lines)) for life, lines in last(logs, 3)] == [(0, ["b", "c"]), (1, ["d"])]
    assert [(life, texts(lines)) for life, lines in last(logs, 1)] == [(1, ["d"])]


def test_a_log_that_was_cut_is_shown_with_its_first_and_newest_part(tmp_path: Path) -> None:
    log = log_of(tmp_path, 0, "".join(f"line {n:03}\n" for n in range(200)))
    assert rotate(log.path, 1000)
    with log.path.open("a") as file:
        file.write("after\n")
    shown = texts(whole(log))
    assert shown[0] == "line 000"
    assert "line 199" in shown
    assert "bytes were cut here" in shown[-2]
    assert shown[-1] == "after"
    assert len(shown) < 100
    ((_, lines),) = last([log], 3)
    assert texts(lines)[0] == "line 199"


def test_a_growing_log_gives_each_whole_line_once_also_when_it_is_cut(tmp_path: Path) -> None:
    log = log_of(tmp_path, 0, "a\nb")
    growing = GrowingLog(log)
    assert texts(growing.new_lines()) == ["a"]
    with log.path.open("a") as file:
        file.write("c\n")
    assert texts(growing.new_lines()) == ["bc"]
    os.truncate(log.path, 0)
    with log.path.open("a") as file:
        file.write("d\ne")
    assert texts(growing.new_lines()) == ["d"]
    assert texts(growing.last_lines()) == ["e"]
    assert texts(growing.last_lines()) == []


def test_a_log_that_has_gone_is_an_empty_one(tmp_path: Path) -> None:
    log = WorkerLog(0, 0, tmp_path / "incarnation_0" / "worker_0.log")
    assert list(whole(log)) == []
    assert GrowingLog(log).new_lines() == []
    assert begin_of_last(log.path, 3) == (0, 0)
