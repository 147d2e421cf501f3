"""``--join=False``: the supervisor goes on in the background, the command returns once workers run."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from faultrun.cli.console import say, settle
from faultrun.errors import FaultrunError
from faultrun.journal.logdir import make
from faultrun.model.spec import RunSpec
from faultrun.workers import signals

_READY = b"+"
_OUTPUT = "faultrun.log"


def in_background(spec: RunSpec, supervise: Callable[[Callable[[], None]], int]) -> int:
    """Fork twice, so that the supervisor belongs to no terminal; wait until it says that workers run.

    Returns 0 then, or the supervisor's own exit code if it ended before.
    LogDirError when its output has no place to go.
    """
    log_dir = Path(spec.logs.log_dir)
    make(log_dir)
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.close(read_end)
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        _become_daemon(log_dir, write_end, supervise)
    os.close(write_end)
    signals.unblock()  # whoever waits here may be interrupted; the supervisor goes on
    os.wait()
    said = b""
    while chunk := os.read(read_end, 64):
        said += chunk
        if said.startswith(_READY):
            return _tell_how(log_dir)
    return int(said or b"1")


def _become_daemon(log_dir: Path, write_end: int, supervise: Callable[[Callable[[], None]], int]) -> None:
    """In the grandchild: supervise, with stderr kept for the errors that come before the workers run."""
    code = 70
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(log_dir / _OUTPUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    terminal = os.dup(2)
    os.set_inheritable(write_end, False)

    def ready() -> None:
        nonlocal terminal
        if terminal >= 0:
            _report(write_end, _READY)
            settle()
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(terminal)
            terminal = -1

    try:
        try:
            code = supervise(ready)
        except FaultrunError as error:
            say(str(error))
            code = error.exit_code
        if terminal >= 0:
            _report(write_end, str(code).encode())
    finally:
        settle()
        os._exit(code)


def _report(write_end: int, word: bytes) -> None:
    """Tell the command that waits for us, if it still does."""
    with suppress(BrokenPipeError):
        os.write(write_end, word)


def _tell_how(log_dir: Path) -> int:
    say("supervising in the background")
    say(f"  follow:  tail -f {log_dir}/{_OUTPUT} {log_dir}/worker_0.log")
    say(f"  stop:    faultrun stop --log_dir {log_dir}")
    return 0
