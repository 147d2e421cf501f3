"""``faultrun etcd``: serves until it is told to end, and says in three lines why it cannot."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faultrun.cli.app import program
from faultrun.errors import UsageError
from support.machine.free_port import free_port
from support.machine.processes import PATIENCE_S, lives, wait_until
from support.nodes.etcd_cluster import programs

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not programs(), reason="no etcd in PATH, and faultrun[etcd] is not installed"),
]


@contextmanager
def serving(folder: Path) -> Iterator["tuple[subprocess.Popen[str], str]"]:
    """The verb, and the first line that it said."""
    listen = f"127.0.0.1:{free_port()}"
    words = (sys.executable, "-m", "faultrun", "etcd", f"--listen={listen}", f"--data-dir={folder}")
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as verb:
        assert verb.stderr is not None
        try:
            said = verb.stderr.readline()
            assert verb.stderr.readline().startswith("faultrun: on every node: --rdzv-backend=etcd ")
            yield verb, said
        finally:
            verb.kill()


def own_etcd(verb: int) -> int:
    (pid,) = Path(f"/proc/{verb}/task/{verb}/children").read_text().split()
    return int(pid)


def other_etcd(verb: int, first: int) -> int | None:
    """Another child of the verb that is etcd already."""
    pids = Path(f"/proc/{verb}/task/{verb}/children").read_text().split()
    return next((int(pid) for pid in pids if int(pid) != first), None)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_serves_until_it_is_told_to_end(tmp_path: Path, signum: signal.Signals, code: int) -> None:
    with serving(tmp_path / "etcd") as (verb, said):
        assert said.startswith("faultrun: etcd serves at 127.0.0.1:")
        assert said.endswith(f", its data is in {tmp_path / 'etcd'}\n")
        pid = own_etcd(verb.pid)
        verb.send_signal(signum)
        assert verb.wait(PATIENCE_S) == code
        assert not lives(pid)


def test_one_that_ends_by_itself_is_started_again_and_if_in_vain_ends_the_verb(tmp_path: Path) -> None:
    with serving(tmp_path / "etcd") as (verb, _):
        assert verb.stderr is not None
        first = own_etcd(verb.pid)
        os.kill(first, signal.SIGKILL)
        assert verb.stderr.readline() == "faultrun: etcd ended by itself and is started again: it ended\n"
        os.kill(wait_until(lambda: other_etcd(verb.pid, first), what="another etcd"), signal.SIGKILL)
        assert verb.wait(PATIENCE_S) == 69
        assert "no etcd serves at 127.0.0.1:" in verb.stderr.read()


@pytest.mark.parametrize("listen", ["nowhere.invalid:1", "127.0.0.1:port", ":1"])
def test_a_place_that_cannot_be_is_64(listen: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        program().main(["etcd", f"--listen={listen}", f"--data_dir={tmp_path}"], standalone_mode=False)
    assert error.value.what == f"--listen={listen} cannot be used"
