"""``faultrun run``: from what was asked to a running supervisor, and its end."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from faultrun import __version__
from faultrun.cli.console import say
from faultrun.cli.options.settings import Asked, Settings, collect
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.resolve.spec import Resolved
from faultrun.cli.run.await_platform import StoppedWaiting, resolve_when_ready
from faultrun.configs.apply import check
from faultrun.configs.argv import check_template, pointed
from faultrun.core import template
from faultrun.core.agree import STOP_EXIT_CODES
from faultrun.errors import ConfigError
from faultrun.model.printable import printable
from faultrun.model.spec import RunSpec
from faultrun.model.stop import StopSource
from faultrun.platforms.rank_table_wait import NotFinished

_BUG = 70
_TERMINATION_BYTES = 4096


def run(asked: Asked) -> int:
    """Do what was asked; return the exit code. Raises FaultrunError before anything is started."""
    around = ProcessContext(
        environ=dict(os.environ), python=sys.executable, import_path=tuple(sys.path), pid=os.getpid()
    )
    settings = collect(asked, around.environ)
    try:
        resolved = resolve_when_ready(settings, around, say)
    except StoppedWaiting as stopped:
        return _never_began(settings, stopped)
    except NotFinished as error:
        _write_termination_message(Path(settings.termination_log), f"{error.what}: {error.because}")
        raise
    from faultrun.cli.run.composition_view import speak

    speak(resolved.spec)
    for note in resolved.notes:
        say(note)
    check_recovery(resolved.spec, around.environ)
    if resolved.dry_run:
        from faultrun.cli.run.dry_run import show

        return show(resolved.spec, around)
    if not resolved.spec.supervision.join:
        from faultrun.cli.run.background import in_background

        return in_background(resolved.spec, lambda ready: _supervise(resolved, around, ready))
    return _supervise(resolved, around, _nobody_waits)


def check_recovery(spec: RunSpec, environ: Mapping[str, str]) -> None:
    """Prove that every rewrite and template will work when a recovery needs it. Raises ConfigError."""
    originals = Path(spec.logs.log_dir).absolute() / "original"
    results = check(spec.recovery.rewrites, originals=originals)
    copies = [result.copy for result in results if result.copy is not None]
    pointed(spec.command.script_args, environ, copies)
    for text in spec.recovery.resume_args:
        template.parse(text)
        check_template(text)
    named = bool(spec.recovery.rewrites or spec.recovery.resume_args)
    if named and not spec.recovery.checkpoint_dirs:
        raise ConfigError(
            "a recovery point shall be written, and nobody says where checkpoints are",
            because="--rewrite or --resume_arg is given without --checkpoint_dir",
            hint="--checkpoint_dir=DIR, the folder that the training saves into",
        )


def _supervise(resolved: Resolved, around: ProcessContext, ready: Callable[[], None]) -> int:
    from faultrun.cli.run.composition import Supervisor
    from faultrun.cli.run.report_at_end import report_at_end

    running = Supervisor(resolved.spec, around, say, ready)
    try:
        code, line = running.run()
    except Exception:  # noqa: BLE001  a bug of ours: workers must not outlive it, and its traceback must be kept
        code, line = _BUG, _bug(running)
    finally:
        running.close()
    _write_termination_message(Path(resolved.spec.logs.termination_log), line)
    report_at_end(resolved.spec, running.log_dir, say, stopped=running.stopped)
    running.mark_end(code)
    return code


def _never_began(settings: Settings, stopped: StoppedWaiting) -> int:
    """Told to stop before there was anything to stop."""
    source = StopSource[signal.Signals(stopped.signum).name]
    asked = settings.exit_code_on_stop
    code = STOP_EXIT_CODES[source] if asked is None else asked
    line = f"stopped by {source.value} while waiting for the platform; nothing was started; exit code {code}"
    say(line)
    _write_termination_message(Path(settings.termination_log), line)
    return code


def _bug(running: "Running") -> str:  # type: ignore[name-defined]  # noqa: F821  imported where it is needed
    text = traceback.format_exc()
    where = str(running.log_dir / "faultrun_traceback.txt")
    try:
        Path(where).write_text(f"faultrun {__version__}\n{printable(text)}")
    except OSError as error:
        where = f"these lines alone ({error.strerror})"
    say(text.rstrip())
    line = f"a bug in faultrun ended the run; traceback in {where}, journal in {running.journal}"
    say(line)
    return line


def _write_termination_message(path: Path, line: str) -> None:
    """What Kubernetes shows as the container's reason; only where its file is, it is not ours to make."""
    if path == Path("/dev/termination-log") and not path.exists():
        return
    with suppress(OSError):
        path.write_bytes(printable(line).encode(errors="backslashreplace")[:_TERMINATION_BYTES])


def _nobody_waits() -> None:
    """The foreground has nobody to tell that workers run."""
