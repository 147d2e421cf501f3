"""``faultrun run``: from what was asked to a running supervisor, here or in the background, and its end."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from faultrun import __version__
from faultrun.cli.console import say, settle, stamp_lines
from faultrun.cli.options.choices import DryRun
from faultrun.cli.options.settings import Asked, Settings, collect_for_run
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.resolve.platform import SERVER_LIST, awaited_table, rank_table_named, server_list_path
from faultrun.cli.resolve.spec import Resolved, resolve
from faultrun.configs.argv import check_template, pointed
from faultrun.core import template
from faultrun.errors import FaultrunError
from faultrun.journal.logdir import make
from faultrun.model.printable import printable
from faultrun.model.spec.output import Logs
from faultrun.model.spec.run_spec import RunSpec
from faultrun.model.stop import STOP_EXIT_CODES, StopSource
from faultrun.platforms.rank_table.wait import NotFinished, Patience, await_file
from faultrun.terminal import BottomRow, is_terminal
from faultrun.workers import signals

_BUG = 70
_TERMINATION_BYTES = 4096
_WORKERS_RUN = b"+"
_OUTPUT = "faultrun.log"
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StoppedWaiting(Exception):
    """We were told to stop by the signal ``signum`` before there was anything to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def run(asked: Asked) -> int:
    """Do what was asked; return the exit code. Raises FaultrunError before anything is started."""
    around = ProcessContext(
        environ=dict(os.environ), python=sys.executable, import_path=tuple(sys.path), pid=os.getpid(),
        at_terminal=is_terminal(1),
    )  # fmt: skip
    settings = collect_for_run(asked, around.environ)
    try:
        resolved = resolve_when_ready(settings, around, say)
    except StoppedWaiting as stopped:
        return _never_began(settings, stopped)
    except NotFinished as error:
        _write_termination_message(settings.termination_log, f"{error.what}: {error.because}")
        raise
    from faultrun.cli.run.outlets import speak

    spec = resolved.spec
    row = speak(spec, around.environ) if resolved.dry_run is DryRun.NONE else None
    for note in resolved.notes:
        say(note)
    for doubt in check_recovery(spec, around.environ):
        say(doubt)
    if resolved.dry_run is not DryRun.NONE:
        from faultrun.cli.run.dry_run import show

        return show(spec, around, resolved.dry_run)
    if not spec.supervision.join:
        return in_background(spec, lambda ready: _supervise(spec, around, ready, row))
    return _supervise(spec, around, lambda: None, row)


def resolve_when_ready(settings: Settings, around: ProcessContext, say: Callable[[str], None]) -> Resolved:
    """Resolve, with what the platform writes waited for and read until it stood still.

    Raises what ``resolve`` does, NotFinished after the wait, and StoppedWaiting. A dry run waits for nothing.
    """
    if settings.dry_run is not DryRun.NONE:
        return resolve(settings, around)
    try:
        ready = _ready(settings, around, Patience(within_s=0.0, pause=_pause, say=say))
    except NotFinished:
        # A typing error should not be told after minutes of waiting.
        with suppress(NotFinished):
            resolve(settings, around)
        ready = _ready(settings, around, Patience(within_s=settings.rank_table_wait, pause=_pause, say=say))
    return resolve(settings, ready)


def check_recovery(spec: RunSpec, environ: Mapping[str, str]) -> list[str]:
    """Prove that every rewrite and template will work when a recovery needs it; what may be misspelt.

    Raises ConfigError.
    """
    doubts: list[str] = []
    if spec.recovery.rewrites:
        from faultrun.configs.apply import check
        from faultrun.configs.target import doubtful_keys

        results = check(spec.recovery.rewrites, originals=Path(spec.logs.log_dir).absolute() / "original")
        copies = [result.copy for result in results if result.copy is not None]
        pointed(spec.command.script_args, environ, copies)
        doubts = [f"--rewrite: {line}" for line in doubtful_keys(results)]
    for text in spec.recovery.resume_args:
        template.parse(text)
        check_template(text)
    return doubts


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
    signals.unblock()  # this wait may be interrupted; the supervisor goes on
    os.wait()
    said = b""
    while chunk := os.read(read_end, 64):
        said += chunk
        if said.startswith(_WORKERS_RUN):
            stamp_lines("")
            say("supervising in the background")
            say(f"  follow:  faultrun logs -f --log_dir {log_dir}")
            say(f"  status:  faultrun status --log_dir {log_dir}")
            say(f"  stop:    faultrun stop --log_dir {log_dir}")
            return 0
    return int(said or b"1")


def _ready(settings: Settings, around: ProcessContext, patience: Patience) -> ProcessContext:
    named, listed = rank_table_named(settings, around), server_list_path(around)
    with suppress(ValueError):  # it is finished and wrong: resolve says how, and what that means
        if named is not None:
            return replace(
                around, rank_table=await_file(awaited_table(settings, around), named.path, patience)
            )
        if listed:
            return replace(around, servers=await_file(SERVER_LIST, listed, patience))
    return around


def _pause(seconds: float) -> None:
    """Wait, or raise StoppedWaiting when a stop signal is there.

    Signals are blocked since the first instruction; taken singly, a stop ends the wait at once, as PID 1 too.
    """
    signals.block()
    # nohup starts us with SIGHUP ignored; blocked, it would be kept for us all the same.
    ignored = {one for one in _STOPS if signal.getsignal(one) is signal.SIG_IGN}
    if (told := signal.sigtimedwait(set(_STOPS) - ignored, seconds)) is not None:
        raise StoppedWaiting(told.si_signo)


def _become_daemon(log_dir: Path, write_end: int, supervise: Callable[[Callable[[], None]], int]) -> None:
    """In the grandchild: supervise, with stderr kept for the errors that come before the workers run."""
    code = _BUG
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(log_dir / _OUTPUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    terminal = os.dup(2)
    os.set_inheritable(write_end, False)

    def tell(word: bytes) -> None:
        """Tell the command that waits for us, if it still does."""
        with suppress(BrokenPipeError):
            os.write(write_end, word)

    def ready() -> None:
        nonlocal terminal
        if terminal >= 0:
            tell(_WORKERS_RUN)
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
            tell(str(code).encode())
    finally:
        settle()
        os._exit(code)


def _supervise(
    spec: RunSpec, around: ProcessContext, ready: Callable[[], None], row: BottomRow | None
) -> int:
    from faultrun.cli.run.composition import Supervisor
    from faultrun.cli.run.start_and_end import report_at_end
    from faultrun.workers.process import require_pidfd

    require_pidfd()
    running = Supervisor(spec, around, say, ready, row)
    try:
        code, line = running.run()
    except Exception as error:
        if isinstance(error, FaultrunError) and not running.began:  # what a person must see to
            _write_termination_message(spec.logs.termination_log, error.what)
            raise
        code, line = _BUG, _bug(running.log_dir, running.journal)
    finally:
        running.close()
    _write_termination_message(spec.logs.termination_log, line)
    report_at_end(spec, running.log_dir, say, stopped=running.stopped)
    code, line = running.leave(code)
    if line:
        _write_termination_message(spec.logs.termination_log, line)
    return code


def _never_began(settings: Settings, stopped: StoppedWaiting) -> int:
    source = StopSource[signal.Signals(stopped.signum).name]
    asked = settings.exit_code_on_stop
    code = STOP_EXIT_CODES[source] if asked is None else asked
    line = f"stopped by {source.value} while waiting for the platform; nothing was started; exit code {code}"
    say(line)
    _write_termination_message(settings.termination_log, line)
    return code


def _bug(log_dir: Path, journal: Path) -> str:
    import traceback

    text = traceback.format_exc()
    where = str(log_dir / "faultrun_traceback.txt")
    try:
        Path(where).write_text(f"faultrun {__version__}\n{printable(text)}")
    except OSError as error:
        where = f"these lines alone ({error.strerror})"
    say(text.rstrip())
    line = f"a bug in faultrun ended the run; traceback in {where}, journal in {journal}"
    say(line)
    return line


def _write_termination_message(file: str, line: str) -> None:
    """What Kubernetes shows as the container's reason; only where its file is, it is not ours to make."""
    if file == Logs().termination_log and not Path(file).exists():
        return
    with suppress(OSError):
        Path(file).write_bytes(printable(line).encode(errors="backslashreplace")[:_TERMINATION_BYTES])
