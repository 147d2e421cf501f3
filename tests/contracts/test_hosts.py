"""What tests of several nodes stand on: hosts that die, freeze and lose links."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.harness.netns import refused

from support.machine.processes import PATIENCE_S, end_all, lives, marked, wait_until
from support.nodes.hosts import Host, Network, network

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(refused()), reason=f"hosts have no links here: {refused()}"),
]

_SETTLED_S = 0.3
_SERVER = """
import os, signal, socket
server = socket.create_server(("", 7))
if os.fork() == 0:
    os.setsid()
    os.execvp("sleep", ["sleep", "1000"])
connection, _ = server.accept()
connection.sendall(b"hello")
signal.pause()
"""
_TEST = """
import sys, pathlib
from support.nodes.hosts import network
with network("a") as hosts:
    log = pathlib.Path(sys.argv[1])
    hosts["a"].start(["sh", "-c", "setsid sleep 1000 & sleep 1000 & wait"], log=log)
    print(hosts["a"].mark, hosts["a"].address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hosts() -> Iterator[Network]:
    with network("a", "b") as made:
        yield made


def datagrams(host: Host) -> socket.socket:
    with host.inside():
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("", 7))
    return own


def connection(hosts: Network, to: Host, log: Path) -> socket.socket:
    """To a server on a host that has said hello, and whose grandchild lives in a session of its own."""
    to.start([sys.executable, "-S", "-c", _SERVER], log=log)

    def connected() -> socket.socket | None:
        with hosts.desk.inside():
            try:
                return socket.create_connection((to.address, 7), timeout=_SETTLED_S)
            except OSError:
                return None

    found = wait_until(connected, what="the server")
    found.settimeout(PATIENCE_S)
    assert found.recv(5) == b"hello"
    found.settimeout(_SETTLED_S)
    wait_until(lambda: len(to.pids) == 2, what="its child")
    return found


def test_a_host_has_an_address_and_a_name_of_its_own(hosts: Network) -> None:
    with hosts["a"].inside():
        assert socket.gethostname() == "a"
    assert socket.gethostname() != "a"
    with closing(datagrams(hosts["a"])) as a, closing(datagrams(hosts["b"])) as b:
        a.sendto(b"from a", (hosts["b"].address, 7))
        assert b.recvfrom(99) == (b"from a", (hosts["a"].address, 7))


def test_packets_are_lost_one_way(hosts: Network) -> None:
    a, b = hosts["a"], hosts["b"]
    with closing(datagrams(a)) as at_a, closing(datagrams(b)) as at_b:
        hosts.lose(a, to=b)
        at_a.sendto(b"lost", (b.address, 7))
        at_b.sendto(b"heard", (a.address, 7))
        assert at_a.recv(99) == b"heard"
        hosts.heal()
        at_a.sendto(b"heard", (b.address, 7))
        assert at_b.recv(99) == b"heard"


def test_two_groups_are_parted_and_each_still_reaches_the_desk(hosts: Network) -> None:
    a, b = hosts["a"], hosts["b"]
    with closing(datagrams(a)) as at_a, closing(datagrams(b)) as at_b, closing(datagrams(hosts.desk)) as desk:
        hosts.part([a], [b])
        at_a.sendto(b"lost", (b.address, 7))
        at_b.sendto(b"lost", (a.address, 7))
        for own in (at_a, at_b):
            own.sendto(b"heard", (hosts.desk.address, 7))
            assert desk.recv(99) == b"heard"
        hosts.heal()
        at_a.sendto(b"healed", (b.address, 7))
        assert at_b.recv(99) == b"healed"


def test_a_cut_link_is_silent_and_connections_outlive_it(hosts: Network, tmp_path: Path) -> None:
    with closing(connection(hosts, hosts["a"], tmp_path / "log")) as open_one:
        hosts.cut(hosts["a"])
        with hosts.desk.inside(), pytest.raises(OSError):
            socket.create_connection((hosts["a"].address, 7), timeout=_SETTLED_S)
        with pytest.raises(TimeoutError):
            open_one.recv(1)
        hosts.heal()
        hosts["a"].kill()
        open_one.settimeout(PATIENCE_S)
        assert open_one.recv(1) == b""


def test_killed_processes_close_their_connections_and_a_host_without_power_does_not(
    hosts: Network, tmp_path: Path
) -> None:
    for host in hosts.hosts.values():
        with closing(connection(hosts, host, tmp_path / host.name)) as open_one:
            if host.name == "a":
                host.kill()
                open_one.settimeout(PATIENCE_S)
                assert open_one.recv(1) == b""
            else:
                hosts.power_off(host)
                with pytest.raises(TimeoutError):
                    open_one.recv(1)
        assert host.pids == []


def test_a_frozen_host_does_nothing_and_goes_on(hosts: Network, tmp_path: Path) -> None:
    with closing(connection(hosts, hosts["a"], tmp_path / "log")):
        hosts["a"].freeze()
        wait_until(lambda: states(hosts["a"]) == {"T"}, what="the stop of all")
        hosts["a"].thaw()
        wait_until(lambda: "T" not in states(hosts["a"]), what="their going on")


def states(host: Host) -> set[str]:
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in host.pids}


@pytest.mark.parametrize("bare", [False, True], ids=["namespaces", "loopback"])
def test_nothing_is_left_when_the_test_itself_is_killed(tmp_path: Path, bare: bool) -> None:
    without = shutil.which("setpriv")
    if bare and without is None:
        pytest.skip("there is no program setpriv")
    command = [sys.executable, "-c", _TEST, str(tmp_path / "log")]
    if bare:
        command = [str(without), "--bounding-set=-all", "--inh-caps=-all", *command]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as test:
        assert test.stdout is not None
        mark, address = test.stdout.readline().split()
        assert address.startswith("127.0.1.") is bare
        wait_until(lambda: len(marked(f"FAULTRUN_TEST_HOST={mark}")) == 3, what="sh and both of its children")
        test.send_signal(signal.SIGKILL)
    wait_until(lambda: not marked(f"FAULTRUN_TEST_HOST={mark}"), what="the end of all")
    assert not lives(test.pid)
    assert end_all(f"FAULTRUN_TEST_HOST={mark}", within_s=0) == []
