"""The command line as a whole: verbs, errors as three lines, exit codes."""

import os
import sys
from typing import Any

import click

from faultrun import __version__
from faultrun.cli.console import write
from faultrun.cli.options.command import FaultrunGroup, run_command
from faultrun.cli.options.settings import Asked
from faultrun.cli.verbs import VERBS, verb_command
from faultrun.errors import FaultrunError, OutOfRoom
from faultrun.files import DISK_FULL
from faultrun.workers import signals

_INTERRUPTED = 130
_NAME = "faultrun"
"""However it is started: the shells' completion is asked for by it."""


def run_program() -> None:
    """Parse, do, and end the process with the exit code of CONTRACT §5."""
    try:
        code = program().main(prog_name=_NAME, standalone_mode=False)
    except FaultrunError as error:
        write(f"faultrun: {error}")
        code = error.exit_code
    except click.exceptions.Exit as end:
        code = end.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except BrokenPipeError:
        _say_no_more()
        code = 0
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        _say_no_more()
        full = OutOfRoom(
            "the answer could not be written",
            because=f"standard output: {error.strerror}",
            hint="df -h; then again, to a file system with room",
        )
        write(f"faultrun: {full}")
        code = full.exit_code
    sys.exit(code if isinstance(code, int) else 0)


def _say_no_more() -> None:
    """What is still to be written to standard output would fail again when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def program() -> FaultrunGroup:
    """The whole command line; a verb's module is imported when it is used: PID 1 pays for none of them."""
    whole = FaultrunGroup(run_command(_run), version=__version__)
    for name, verb in VERBS.items():
        whole.add_command(_Later(name, short_help=verb.summary))
    return whole


def _run(asked: Asked) -> int:
    from faultrun.cli.run.command import run

    return run(asked)


class _Later(click.Command):
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        signals.unblock()
        return verb_command(str(self.name)).make_context(info_name, args, parent=parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        return ctx.command.invoke(ctx)
