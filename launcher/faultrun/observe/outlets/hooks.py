"""Tells the world: ``--on_event CMD`` gets JSON on its stdin, ``--webhook URL`` in a POST. Runs as a sidecar.

One thing at a time, each within a limit; what goes wrong is a line in ``on_event.log`` and nothing else.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from faultrun.files import readable
from faultrun.journal.lines import JournalLine
from faultrun.model.printable import printable
from faultrun.observe.outlets.messages import Announcer
from faultrun.observe.outlets.sidecar import Work

_LOG = "on_event.log"
_COMMAND = "FAULTRUN_ON_EVENT"
_COMMAND_S, _WEBHOOK_S, _HURRY_S = 10.0, 3.0, 1.5
_LAST_S = 3.0
_MOST_WAITING = 200


class EventHooks(Work):
    """Announces what is decided from line ``begins_at`` on: supervisors before us told theirs."""

    interval_s = 0.25

    def __init__(
        self, lifeline: int, announcer: Announcer, log_dir: Path, hooks: tuple[str, str], begins_at: int
    ) -> None:
        """``hooks`` are the command and the address, either may be empty."""
        # Handlers, because ignored or blocked signals would be inherited by the command.
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(signum, _nothing)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._lifeline, self._announcer = lifeline, announcer
        self._log_dir = log_dir
        self._command, self._webhook = hooks
        self._begins_at = begins_at
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_MOST_WAITING)
        self._log = (log_dir / _LOG).open("ab", buffering=0)

    def take(self, line: JournalLine) -> None:
        """Queue what is to be announced of this line, from line ``begins_at`` on."""
        said = list(self._announcer.take(line))
        if line.seq >= self._begins_at:
            self._waiting.extend(said)

    def tick(self) -> None:
        """Announce the oldest thing that waits."""
        if self._waiting:
            self._tell(self._waiting.popleft())

    def end(self) -> None:
        """Announce what still waits, within the few seconds that are left."""
        deadline = time.monotonic() + _LAST_S
        while self._waiting and time.monotonic() < deadline:
            self._tell(self._waiting.popleft())

    def _tell(self, said: Mapping[str, Any]) -> None:
        body = json.dumps(said).encode()
        if self._command:
            self._try(f"command for {said['kind']}", lambda: self._run(said, body))
        if self._webhook:
            self._try(f"webhook for {said['kind']}", lambda: _post(self._webhook, body))

    def _try(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  whatever a command or a server does, the next is told all the same
            stamp = datetime.now(timezone.utc).isoformat(timespec="seconds")
            why = f"{type(error).__name__}: {printable(str(error))}"
            why = why.replace(self._webhook, "(its address)") if self._webhook else why
            with suppress(OSError):
                self._log.write(f"{stamp} {what}: {why}\n".encode(errors="replace"))

    def _run(self, said: Mapping[str, Any], body: bytes) -> None:
        about = {_COMMAND: self._command, "FAULTRUN_EVENT": said["kind"], "FAULTRUN_RUN_ID": said["run_id"]}
        process = subprocess.Popen(
            ["/bin/sh", "-c", f'eval "${_COMMAND}"'],  # every user of the machine may read an argument
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **about, "FAULTRUN_LOG_DIR": str(self._log_dir)},
            start_new_session=True,
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(body)  # less than a pipe holds: this does not wait for a reader
            process.stdin.close()
        pidfd = os.pidfd_open(process.pid)
        in_time = self._ends_in_time(pidfd)
        os.close(pidfd)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # not reaped yet: the number still means its group
        code = process.wait()
        if not in_time:
            raise TimeoutError("killed: it was not done when its time was over")
        if code:
            raise RuntimeError(f"ended with {code}")

    def _ends_in_time(self, pidfd: int) -> bool:
        """Whether the command ends by itself; when the run ends it has to hurry."""
        ready = readable(_COMMAND_S, pidfd, self._lifeline)
        return pidfd in (readable(_HURRY_S, pidfd) if ready and pidfd not in ready else ready)


def _post(url: str, body: bytes) -> None:
    import urllib.request  # noqa: PLC0415  it brings ssl and http along: only for those who ask

    headers = {"Content-Type": "application/json", "User-Agent": f"faultrun (Python {sys.version_info[0]})"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=_WEBHOOK_S) as answer:
        answer.read(1 << 16)


def _nothing(signum: int, frame: object) -> None:
    """A handler is not inherited by what is executed; being ignored is."""
