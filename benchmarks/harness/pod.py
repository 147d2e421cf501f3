"""A pod without a cluster: a PID namespace of its own, in which the launcher is process 1.

As from a container runtime, signals come from outside the namespace, hooks
are started inside, and the end of process 1 is the end of everything in it.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from benchmarks.harness.benchmark import NotMeasured
from benchmarks.harness.launched import clean_environ

_UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
_NOT_YET = (b"", b"unshare", b"env")
_EXEC_S = 60.0

HOLD_SIGNALS = ("env", "--block-signal=TERM,INT,HUP,USR1,USR2")
"""Starts the command behind it with these signals held back: process 1 cannot lose them (coreutils 8.31)."""


def can_be_made() -> bool:
    """Whether this machine lets us make PID namespaces, and has an ``env`` that holds signals back."""
    try:
        made = subprocess.run([*_UNSHARE, *HOLD_SIGNALS, "true"], capture_output=True, check=False)
    except OSError:
        return False
    return made.returncode == 0


class Pod:
    """One launcher as process 1, from its ``exec`` on; ``pid`` is what it is called out here."""

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = {**clean_environ(), **environ}
        self._console = folder / "console.txt"
        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                [*_UNSHARE, *HOLD_SIGNALS, *command],
                cwd=folder,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._until_exec()
        self.began_s = time.monotonic()

    def __enter__(self) -> "Pod":  # noqa: PYI034  typing.Self is younger than our oldest Python
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # and with it, by --kill-child, process 1 and all others
        self._process.wait()

    @property
    def console(self) -> str:
        """What the launcher has said so far."""
        return self._console.read_text(encoding="utf-8", errors="replace")

    def signal(self, signum: signal.Signals) -> None:
        """Send it to process 1, as a container runtime does; one that has ended has no use for it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signum)

    def hook(self, command: Sequence[str]) -> "subprocess.Popen[str]":
        """Start a command inside, as the kubelet starts a preStop hook."""
        inside = ("nsenter", f"--target={self.pid}", "--pid", "--mount")
        return subprocess.Popen(
            [*inside, *command],
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ends_within(self, wait_s: float) -> int | None:
        """The exit code, 128+n for signal n; None when it runs on."""
        try:
            code = self._process.wait(max(0.0, wait_s))
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def _until_exec(self) -> int:
        """Wait, awake, for the moment at which process 1 has become the launcher."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        deadline_s = time.monotonic() + _EXEC_S
        while time.monotonic() < deadline_s and self._process.poll() is None:
            with suppress(OSError, IndexError):
                pid = int(children.read_text().split()[0])
                if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] not in _NOT_YET:
                    return pid
        self._process.kill()
        self._process.wait()
        raise NotMeasured(f"process 1 never became the launcher: {self.console}")


def ended(hook: "subprocess.Popen[str]", within_s: float) -> bool:
    """Whether the hook ends in time."""
    with suppress(subprocess.TimeoutExpired, ProcessLookupError):
        pidfd = os.pidfd_open(hook.pid)
        try:
            return bool(select.select([pidfd], [], [], max(0.0, within_s))[0])
        finally:
            os.close(pidfd)
    return True
