"""A real etcd that a node serves: kept running by its helper, ended with the supervisor, its data kept."""

import os
import socket
from pathlib import Path

import pytest

from support.machine.free_port import free_port
from support.machine.processes import marked, wait_until
from support.machine.scripts import Done, ended
from support.nodes.etcd_cluster import newest_program
from support.places import TESTS

pytestmark = pytest.mark.long

PROGRAM = """
import os, signal, sys
from pathlib import Path
from faultrun.nodes.agent.etcd_keeper import keep
from faultrun.nodes.agent.served_etcd import EtcdNotServed, ServedEtcd

listen, folder = sys.argv[1], Path(sys.argv[2])
try:
    etcd = ServedEtcd(lambda words, stop: keep(listen, folder, words, stop))
except EtcdNotServed as error:
    print(error.exit_code, error.what, flush=True)
    sys.exit()
"""


@pytest.fixture
def listen() -> str:
    newest_program()
    return f"127.0.0.1:{free_port()}"


def served(listen: str, folder: Path, code: str) -> Done:
    return ended(PROGRAM + code, listen, str(folder), environ=_environ(folder))


def _environ(folder: Path) -> dict[str, str]:
    tests = str(TESTS)
    path = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "TEST_ETCD": str(folder), "PYTHONPATH": path}


def test_it_serves_until_it_is_closed_and_its_data_outlives_it(listen: str, tmp_path: Path) -> None:
    write = """
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.store import read, transact
from faultrun.nodes.etcd.transactions import GuardedWrite, WriteKey
from faultrun.model.spec.nodes_spec import EtcdAccess
gateway = Gateway(EtcdAccess(endpoints=(listen,)), attempt_s=60)
"""
    kept = "GuardedWrite(then=(WriteKey(key='/test/key', value='kept'),))"
    put = f"transact(gateway, {kept}, within_s=60)\netcd.close()\n"
    assert served(listen, tmp_path, write + put).stderr == ""
    assert marked(f"TEST_ETCD={tmp_path}") == []
    found = "read(gateway, '/test/', within_s=60).keys.values()"
    again = f"print([kv.value for kv in {found}])\netcd.close()\n"
    assert served(listen, tmp_path, write + again).stdout == "['kept']\n"


def test_it_is_started_again_when_it_is_killed(listen: str, tmp_path: Path) -> None:
    code = """
from contextlib import suppress
from support.machine.processes import marked, wait_until
def pids():
    found = []
    for pid in marked(f"TEST_ETCD={folder}"):
        with suppress(OSError):  # it has ended since
            found += [pid] * (Path(f"/proc/{pid}/comm").read_text() == "etcd\\n")
    return found
(first,) = pids()
os.kill(first, signal.SIGKILL)
(second,) = wait_until(lambda: [pid for pid in pids() if pid != first] or None, what="another etcd")
etcd.close()
print(len(pids()))
"""
    assert served(listen, tmp_path, code).stdout == "0\n"


def test_it_ends_with_a_supervisor_that_is_killed(listen: str, tmp_path: Path) -> None:
    served(listen, tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    wait_until(lambda: not marked(f"TEST_ETCD={tmp_path}"), what="the end of etcd and of its helper")


def test_a_port_that_is_taken_is_told_with_what_to_do(listen: str, tmp_path: Path) -> None:
    host, _, port = listen.partition(":")
    with socket.create_server((host, int(port))):
        said = served(listen, tmp_path, "print('serves')").stdout
    assert said == f"69 no etcd can listen at {listen}\n"
