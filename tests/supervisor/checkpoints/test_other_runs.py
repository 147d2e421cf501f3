"""Who else keeps checkpoints in a folder; real folders, locks and processes."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from faultrun.checkpoints.formats.faultrun_manifest import beside
from faultrun.locks import LEASE_S, hold
from faultrun.supervisor.checkpoints.other_runs import OtherRuns
from support.machine.processes import PATIENCE_S

ANOTHER = """
import sys
from faultrun.supervisor.checkpoints.other_runs import OtherRuns
there = OtherRuns([sys.argv[1]], sys.argv[2], apart=sys.argv[3])
print(there.others(), flush=True)
sys.stdin.read()
"""


class Another:
    """Run ``name`` of another process, until it is killed."""

    def __init__(self, root: Path, name: str = "another", apart: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ANOTHER, str(root), name, apart],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.saw = self.process.stdout.readline().strip()

    def killed(self) -> None:
        self.process.kill()
        self.process.communicate()


def root_in(folder: Path) -> Path:
    (folder / "ckpt").mkdir()
    return folder / "ckpt"


def test_each_sees_the_other_whoever_came_first(tmp_path: Path) -> None:
    root = root_in(tmp_path)
    mine = OtherRuns([str(root)], "mine")
    assert mine.others() == ()
    another = Another(root)
    (seen,) = mine.others()
    later = OtherRuns([str(root)], "later").others()
    another.killed()
    assert "run mine" in another.saw
    assert seen.startswith(f"run another (pid {another.process.pid} ")
    assert len(later) == 2


def test_a_run_that_saves_below_is_known_by_its_folder_also_when_it_is_gone(tmp_path: Path) -> None:
    root = root_in(tmp_path)
    for name in ("gone", "empty", "a/b"):
        (root / name).mkdir(parents=True)
    Another(root / "gone").killed()
    mine = OtherRuns([str(root)], "mine")
    assert mine.folders_below() == ()
    another = Another(root / "a/b")
    living = mine.folders_below()
    another.killed()
    assert living == mine.folders_below() == (str(root / "a/b"),)


def test_a_run_is_seen_while_one_of_its_nodes_is_there_whichever_came_first(tmp_path: Path) -> None:
    root = root_in(tmp_path)
    first = Another(root, apart="2379")
    second = OtherRuns([str(root)], "another", apart="2379", several=True)
    assert second.others() == ()
    first.killed()
    assert second.others() == ()
    (seen,) = OtherRuns([str(root)], "later").others()
    assert seen.startswith(f"run another (pid {os.getpid()} ")


@pytest.mark.parametrize("several", [False, True])
def test_two_runs_with_one_id_are_told_of_each_other(tmp_path: Path, several: bool) -> None:
    root = root_in(tmp_path)
    mine = OtherRuns([str(root)], "job", apart="first", several=several)
    assert mine.others() == ()
    other = Another(root, "job", "second")
    assert f"run job (pid {os.getpid()} " in other.saw
    (seen,) = mine.others()
    assert seen.startswith(f"run job (pid {other.process.pid} ")
    assert list(mine.namesakes) == ["job@second"]
    Another(root, "job2", "second").killed()
    other.killed()
    mine.others()
    assert list(mine.namesakes) == []


def test_the_next_supervisor_of_a_run_is_no_other_run(tmp_path: Path) -> None:
    root = root_in(tmp_path)
    Another(root, "job", "first").killed()
    again = OtherRuns([str(root)], "job", apart="first")
    assert (again.others(), again.namesakes) == ((), ())


def test_what_a_lost_machine_held_under_this_id_is_waited_for(tmp_path: Path) -> None:
    """Its lease is renewed no more: a pod that was rescheduled is not told of itself."""
    root = root_in(tmp_path)
    lease = beside(str(root)) / "job@lost.lease"
    lease.parent.mkdir()
    lease.touch()
    renewed_s = lease.stat().st_mtime - 1.5 * LEASE_S + 1.0  # it is over in a second
    os.utime(lease, (renewed_s, renewed_s))
    again = OtherRuns([str(root)], "job", apart="new")
    assert (again.others(), again.namesakes) == ((), ())


def test_a_name_that_cannot_be_had_is_asked_for_once_each_time(tmp_path: Path) -> None:
    root = root_in(tmp_path)
    (tmp_path / ".ckpt.faultrun").mkdir()
    (tmp_path / ".ckpt.faultrun" / "mine@").mkdir()
    mine = OtherRuns([str(root)], "mine")
    assert [mine.others() for _ in range(3)] == [()] * 3
    (tmp_path / ".ckpt.faultrun" / "mine@").rmdir()
    assert mine.others() == ()
    (seen,) = OtherRuns([str(root)], "later").others()
    assert seen.startswith(f"run mine (pid {os.getpid()} ")


def test_who_came_while_we_were_there_has_left_files_although_it_is_gone(tmp_path: Path) -> None:
    root = root_in(tmp_path)
    mine = OtherRuns([str(root)], "mine")
    assert mine.others() == ()
    Another(root).killed()
    assert mine.others() == ("run another",)
    assert mine.others() == ("run another",)


def test_who_is_gone_when_we_come_is_nobody(tmp_path: Path) -> None:
    root = root_in(tmp_path)
    Another(root).killed()
    assert OtherRuns([str(root)], "mine").others() == ()


def test_who_was_there_when_we_came_is_nobody_once_it_is_gone(tmp_path: Path) -> None:
    """A lock that a file server held on to for a machine that was lost."""
    root = root_in(tmp_path)
    another = Another(root)
    mine = OtherRuns([str(root)], "mine")
    assert len(mine.others()) == 1
    another.killed()
    assert mine.others() == ()


def test_a_folder_of_checkpoints_stays_as_empty_as_it_is_and_is_not_made(tmp_path: Path) -> None:
    absent, empty = tmp_path / "later/ckpt", root_in(tmp_path)
    mine = OtherRuns([str(absent), str(empty)], "mine")
    assert mine.others() == ()
    assert list(empty.iterdir()) == []
    assert not (tmp_path / "later").exists()
    absent.mkdir(parents=True)
    assert mine.others() == ()
    assert (tmp_path / "later/.ckpt.faultrun/mine@").exists()


def test_where_nobody_may_write_nobody_is_seen_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / ".ckpt.faultrun").write_text("in the way")
    assert OtherRuns([str(root_in(tmp_path))], "mine").others() == ()


def test_who_only_looks_for_a_moment_is_no_living_run(tmp_path: Path) -> None:
    root = root_in(tmp_path)
    stale = beside(str(root)) / "gone"
    stale.parent.mkdir()
    holds = Event()

    def looks() -> None:
        lock = hold(stale)
        holds.set()
        time.sleep(0.05)
        lock.release()

    other = Thread(target=looks)
    other.start()
    assert holds.wait(PATIENCE_S)
    assert OtherRuns([str(root)], "mine", moment_s=PATIENCE_S).others() == ()
    other.join()


def test_where_there_is_no_flock_leases_are_seen_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("faultrun.locks.Flock.take", refused)
    root = root_in(tmp_path)
    dead = beside(str(root)) / "dead.lease"
    dead.parent.mkdir()
    dead.write_text("")
    os.utime(dead, (1, 1))
    one, other = OtherRuns([str(root)], "one"), OtherRuns([str(root)], "other")
    assert one.others() == ()
    for _ in range(2):
        assert other.others() == ("run one (its lease is renewed)",)
        assert one.others() == ("run other (its lease is renewed)",)
