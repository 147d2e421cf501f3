"""``faultrun stop`` and ``faultrun prestop``: end a run with a gasp, and wait until it has ended."""

import os
import time
from pathlib import Path

import click

from faultrun.cli.console import say
from faultrun.cli.control.client import LOG_DIR_VARIABLE, Address, Conversation, NobodyListens, address_of
from faultrun.errors import LogDirError

_REAP_S = 15.0
_LOG_DIR = click.option(
    "--log_dir",
    "--log-dir",
    default="faultrun_log",
    envvar=LOG_DIR_VARIABLE,
    show_default=True,
    help=f"The run's log_dir; also {LOG_DIR_VARIABLE}.",
)


@click.command()
@_LOG_DIR
@click.option("--timeout", type=float, help="Seconds to wait for its end.  [its window and 15 s]")
def stop(log_dir: str, timeout: float | None) -> int:
    """End the run of LOG_DIR: its workers save, then it exits 143. Returns when it has ended."""
    line = _end(address_of(log_dir, os.environ), "cli", timeout)
    say(line or "it had not ended when the time to wait was over")
    return 0 if line else 1


@click.command()
@_LOG_DIR
@click.option("--timeout", type=float, help="Seconds to wait at most.  [the run's window and 15 s]")
@click.option("--strict", is_flag=True, help="Exit 1 when nothing runs or the run did not end in time.")
def prestop(log_dir: str, timeout: float | None, strict: bool) -> int:
    """Kubernetes preStop hook: ask for the gasp, wait until the run has saved and ended, say so in one line.

    Exits 0 even when nothing runs: a hook that fails is noise. The SIGTERM that follows changes nothing.
    """
    try:
        line = _end(address_of(log_dir, os.environ), "prestop", timeout, late_s=_age_s())
    except LogDirError as error:
        say(f"nothing to stop: {error.because}")
        return int(strict)
    say(line or "not ended when the hook's time was over; SIGTERM follows")
    return int(strict and not line)


def _age_s() -> float:
    """How long this process has lived: the kubelet's clock began when it started the hook."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    began_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)


def _end(address: Address, source: str, timeout: float | None, late_s: float = 0.0) -> str:
    """Ask for the end and wait for it; the run's last line, empty when the time was over."""
    try:
        talk = Conversation(address, within_s=_REAP_S if timeout is None else timeout)
        talk.ask("stop", source=source, late_s=round(late_s, 3))
    except NobodyListens:
        return "the run has already ended"
    try:
        for said in talk.answers():
            if said["kind"] == "ended":
                return str(said.get("line", "the run has ended"))
            if said["kind"] == "stopping" and timeout is None:
                talk.wait_at_most(float(said.get("window_s", 0.0)) + _REAP_S)
    except TimeoutError:
        return ""
    finally:
        talk.close()
    return "the run has ended"
