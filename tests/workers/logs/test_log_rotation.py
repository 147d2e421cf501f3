"""Logs that would fill the disk: the first part and the newest are kept, the writer notices nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from faultrun.workers.logs.log_rotation import rotate
from support.machine.processes import wait_until

MAX = 4000
_FLOOD = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for number in range(int(sys.argv[2])):
    os.write(fd, b"line %09d\\n" % number)
print("written", flush=True)
sys.stdin.read()
os.write(fd, b"last line\\n")
"""
_SUPERVISOR = """
import sys
from pathlib import Path
from faultrun.workers.logs.log_rotation import Rotator
rotator = Rotator(int(sys.argv[2]))
rotator.watch([Path(sys.argv[1])])
sys.stdin.read()
rotator.close()
"""


def numbers(path: Path) -> list[int]:
    lines = path.read_text().splitlines()
    return [int(line[5:]) for line in lines if line.startswith("line ") and len(line) == 14]


def test_a_log_within_its_size_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "w.log"
    log.write_bytes(b"x" * MAX)
    assert rotate(log, MAX) == 0
    assert log.stat().st_size == MAX
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.log"]


def test_the_first_part_is_kept_for_good_and_the_newest_each_time(tmp_path: Path) -> None:
    log = tmp_path / "w.log"
    log.write_bytes(b"a" * 2000 + b"b" * 3000)
    assert rotate(log, MAX) == 5000
    assert (tmp_path / "w.log.first").read_bytes() == b"a" * 1000
    assert (tmp_path / "w.log.1").read_bytes() == b"b" * 1000
    said = "faultrun: 5000 bytes were cut here; the first of all: w.log.first, the last: w.log.1\n"
    assert log.read_text() == said
    with log.open("ab") as file:
        file.write(b"c" * 5000)
    assert rotate(log, MAX) == 5000 + len(said)
    assert (tmp_path / "w.log.first").read_bytes() == b"a" * 1000
    assert (tmp_path / "w.log.1").read_bytes() == b"c" * 1000


@pytest.mark.long
def test_a_flood_leaves_a_bounded_log_with_its_beginning_and_its_end(tmp_path: Path) -> None:
    log, max_bytes, lines = tmp_path / "w.log", 1 << 20, 600_000
    log.touch()
    keeper = subprocess.Popen(
        [sys.executable, "-c", _SUPERVISOR, str(log), str(max_bytes)], stdin=subprocess.PIPE
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", _FLOOD, str(log), str(lines)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"written\n"
    newest = tmp_path / "w.log.1"
    wait_until(lambda: log.stat().st_size <= max_bytes and newest.exists(), within_s=60)
    writer.communicate(timeout=60)
    keeper.communicate(timeout=60)
    assert keeper.returncode == 0
    assert b"last line\n" in newest.read_bytes() + log.read_bytes(), "written while the file was being cut"
    assert numbers(tmp_path / "w.log.first")[0] == 0
    assert max(numbers(tmp_path / "w.log.first")) < min(numbers(newest) + numbers(log))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * max_bytes
    assert writer.returncode == 0


def test_the_logs_of_hundreds_of_ranks_are_all_looked_after(tmp_path: Path) -> None:
    ranks = 700
    folder = tmp_path / ("a name as long as those of a shared folder are " * 3)
    folder.mkdir()
    watched = f"[Path(sys.argv[1]) / f'worker_{{rank}}.log' for rank in range({ranks})]"
    code = _SUPERVISOR.replace("[Path(sys.argv[1])]", watched)
    keeper = subprocess.Popen([sys.executable, "-c", code, str(folder), str(MAX)], stdin=subprocess.PIPE)
    last = folder / f"worker_{ranks - 1}.log"
    wait_until(last.exists)
    with last.open("ab") as file:
        file.write(b"x" * 2 * MAX)
    wait_until(lambda: last.stat().st_size < MAX)
    keeper.communicate(timeout=60)
    assert keeper.returncode == 0
