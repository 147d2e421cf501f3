"""``stop``, ``prestop`` and ``checkpoint-now``: talking to a running supervisor over its socket.

It is found through its log_dir, never by grepping processes.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil

from faultrun.cli.console import answer, say
from faultrun.cli.options.assume_option import assume_option
from faultrun.cli.options.settings import Settings
from faultrun.cli.status.savings_so_far import SavedSoFar
from faultrun.cli.verbs import example, log_dir_option
from faultrun.errors import LogDirError
from faultrun.journal.logdir import read_record, recorded_as, which_log_dir
from faultrun.journal.supervised import sockets_of, supervisor_of
from faultrun.locks import Busy
from faultrun.model.spec.windows import Windows
from faultrun.model.wire import SOCKET_VARIABLE, WINDOW_WORD, message, parse
from faultrun.unix_sockets import short

_SCHEMA = 1
_NOBODY = "no supervisor of this run is running any more"
_CONNECT_S, _REAP_S, _LEAVES_S, _LAST_WORD_S = 5.0, 15.0, 10.0, 5.0
_NO_PROCESS = 1 << 30
_MADE_AGAIN_S, _LOOK_AGAIN_S = 6.0, 0.2
"""A supervisor makes a socket again that was removed, within two looks of two seconds."""


@click.command(epilog=example("faultrun stop --log_dir=faultrun_log"))
@log_dir_option()
@click.option("--timeout", type=float, help="Seconds to wait for its end.  [its window and 15 s]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object about its end.")
@assume_option()
def stop(log_dir: str, timeout: float | None, as_json: bool, assume: str | None) -> int:
    """End the run of LOG_DIR: its workers save, then it exits 143. Returns when it has ended."""
    folder = Path(log_dir)
    reach, saved = reached(log_dir, os.environ), SavedSoFar(folder, assume)
    saved.look(read_record(folder))  # what is wrong with --assume is better told before
    line = _end(reach, "cli", timeout)
    savings = saved.look(read_record(folder))
    if as_json:
        answer(json.dumps({"schema": _SCHEMA, "ended": bool(line), "line": line, "savings": savings}))
        return 0 if line else 1
    say(line or "the run is still ending: the time to wait is over (--timeout)")
    if line and savings is not None and savings["text"]:
        say(savings["text"])
    return 0 if line else 1


@click.command(epilog=example("faultrun prestop --timeout=100"))
@log_dir_option()
@click.option("--timeout", type=float, help="Seconds to wait at most.  [the run's window and 15 s]")
@click.option("--strict", is_flag=True, help="Exit 1 when nothing runs or the run did not end in time.")
def prestop(log_dir: str, timeout: float | None, strict: bool) -> int:
    """Kubernetes preStop hook: have the workers save, wait until the run has ended, say so in one line.

    Exits 0 even when nothing runs: a hook that fails is noise. The SIGTERM that follows changes nothing.
    """
    try:
        line = _end(reached(log_dir, os.environ), "prestop", timeout, late_s=_age_s())
    except LogDirError as error:
        say(f"nothing to stop: {error.because}")
        return int(strict)
    say(line or "not ended when the hook's time was over; SIGTERM follows")
    return int(strict and not line)


@click.command("checkpoint-now", epilog=example("faultrun checkpoint-now --timeout=120"))
@log_dir_option()
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds that a save may take.")
def checkpoint_now(log_dir: str, timeout: float) -> int:
    """Ask every worker that uses faultrun's SDK to save now and go on training; print what each did.

    Exits 0 when all of them saved, 1 otherwise.
    """
    reach = reached(log_dir, os.environ)
    try:
        with closing(Conversation(reach, within_s=timeout + _LAST_WORD_S)) as talk:
            talk.ask("save", **{WINDOW_WORD: timeout})
            return _tell_saves(talk)
    except NobodyListens:
        lives = supervisor_of(reach.folder, reach.record)
        say(_NOBODY if lives is None else f"{_unheard(reach, lives)}: try again in some seconds")
    except TimeoutError:
        say(f"some ranks had not saved after {timeout:g} s")
    return 1


class NobodyListens(Exception):
    """No supervisor answers, and in ``_MADE_AGAIN_S`` none of one that lives was made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How to reach the run of a log_dir: what its record says, and the sockets at which it may listen."""

    folder: Path
    record: Mapping[str, Any]
    sockets: tuple[str, ...]


def reached(log_dir: str, environ: Mapping[str, str]) -> Reach:
    """The run of ``log_dir``; without a record there, the one whose socket ``FAULTRUN_SOCKET`` names.

    LogDirError when neither names a run.
    """
    folder = Path(log_dir)
    record, named = read_record(folder), environ.get(SOCKET_VARIABLE)
    known = bool(record) or supervisor_of(folder, record) is not None
    if not known and not named:
        variable = Settings.log_dir.variable
        because = f"there is no {folder / 'run.json'} that names one"
        hint = f"{which_log_dir(folder)}, or {variable}=DIR"
        raise LogDirError(f"no run is known in {log_dir}", because=because, hint=hint)
    sockets = tuple(sockets_of(folder, record)) if known else (str(named),)
    return Reach(folder=folder, record=record, sockets=sockets)


class Conversation:
    """One connection: a request out, lines in until a deadline. NobodyListens when there is no other side."""

    def __init__(self, reach: Reach, *, within_s: float) -> None:
        self.wait_at_most(within_s)
        until_s = time.monotonic() + min(within_s, _MADE_AGAIN_S)
        while (connected := self._connected(reach.sockets)) is None:
            if supervisor_of(reach.folder, reach.record) is None or time.monotonic() > until_s:
                raise NobodyListens
            time.sleep(_LOOK_AGAIN_S)
        self._socket = connected

    @staticmethod
    def _connected(places: tuple[str, ...]) -> socket.socket | None:
        for place in places:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(_CONNECT_S)
            try:
                with short(place) as address:
                    connection.connect(address)
            except OSError:
                connection.close()
                continue
            return connection
        return None

    def ask(self, kind: str, **fields: Any) -> None:
        """Send one request."""
        try:
            self._socket.sendall(message(kind, **fields))
        except OSError as error:
            raise NobodyListens from error

    def wait_at_most(self, within_s: float) -> None:
        """Set, or move, the moment at which ``answers`` gives up."""
        self._deadline = time.monotonic() + within_s

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield what is answered until the other side hangs up; TimeoutError at the deadline."""
        unread = b""
        while True:
            self._socket.settimeout(max(0.001, self._deadline - time.monotonic()))
            try:
                data = self._socket.recv(65536)
            except ConnectionError:
                return
            if not data:
                return
            *lines, unread = (unread + data).split(b"\n")
            yield from (said for line in lines if (said := parse(line)) is not None)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def hang_up_at_exit(self) -> None:
        """Have the kernel hang up when this process has ended: the other side may wait for that."""
        self._socket.detach()


def _age_s() -> float:
    """How long this process has lived: the kubelet's clock began when it started the hook."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    began_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)


def _end(reach: Reach, source: str, timeout: float | None, late_s: float = 0.0) -> str:
    """Ask for the end and wait for it; the run's last line, empty when the time was over."""
    try:
        with closing(Conversation(reach, within_s=_REAP_S if timeout is None else timeout)) as talk:
            talk.ask("stop", source=source, late_s=round(late_s, 3))
            for said in talk.answers():
                if said["kind"] == "ended":
                    _see_it_leave(reach, talk)
                    return str(said.get("line", "the run has ended"))
                if said["kind"] == "stopping" and timeout is None:
                    talk.wait_at_most(float(said.get("window_s", 0.0)) + _REAP_S)
    except NobodyListens:
        return _end_unheard(reach, timeout, heard=False)
    except TimeoutError:
        return ""
    return _end_unheard(reach, timeout, heard=True)


def _see_it_leave(reach: Reach, talk: Conversation) -> None:
    """Wait, bounded, until its process is gone, too, and its lock free for the next start.

    Who was sent into a container does not: a PID 1 that ended first would have it killed, with its pod.
    """
    if all(one.pid != 1 for one in psutil.Process().parents()):
        talk.hang_up_at_exit()
        return
    talk.close()
    _leaves(reach, _LEAVES_S)


def _leaves(reach: Reach, within_s: float) -> bool:
    until_s = time.monotonic() + within_s
    while supervisor_of(reach.folder, reach.record) is not None:
        if time.monotonic() > until_s:
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True


def _end_unheard(reach: Reach, timeout: float | None, *, heard: bool) -> str:
    """Wait for the end of a supervisor that does not answer; by SIGTERM, unless it has ``heard`` of it."""
    if (lives := supervisor_of(reach.folder, reach.record)) is None:
        return "the run has ended" if heard else _NOBODY
    if not heard:
        told = "its end is waited for"
        with suppress(OSError):
            os.kill(lives.pid or _NO_PROCESS, signal.SIGTERM)
            told = f"it was sent SIGTERM, and {told}"
        say(f"{_unheard(reach, lives)}: {told}")
    windows = recorded_as(reach.record, Windows, "spec", "supervision", "windows")
    gone = _leaves(reach, windows.stop_grace_s + _REAP_S if timeout is None else timeout)
    return "the run has ended" if gone else ""


def _unheard(reach: Reach, lives: Busy) -> str:
    run_id = reach.record.get("run_id", "?")
    return f"run {run_id} lives ({lives.holder}), but does not answer at {reach.sockets[0]}"


def _tell_saves(talk: Conversation) -> int:
    awaited: set[int] = set()
    code = 0
    for said in talk.answers():
        rank = int(said.get("rank") or 0)
        match said["kind"]:
            case "saving":
                if not (awaited := set(said.get("ranks", ()))):
                    say("no worker uses faultrun.sdk, so none can be asked to save")
                    return 1
            case "saved":
                say(f"rank {rank} saved step {said.get('step')}: {said.get('path')}")
                awaited.discard(rank)
            case "failed":
                say(f"rank {rank} could not save: {said.get('why')}")
                awaited.discard(rank)
                code = 1
            case _:
                continue
        if not awaited:
            return code
    return 1
