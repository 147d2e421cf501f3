"""``faultrun rehearse``: the real script, trained for minutes, through one fault after the other."""

import json
import os
import signal
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from faultrun.cli.console import answer, say
from faultrun.cli.options.command import RunCommand, run_command, write_texts
from faultrun.cli.options.settings import Asked, collect_for_run
from faultrun.cli.verbs import example
from faultrun.errors import UsageError

if TYPE_CHECKING:
    from faultrun.cli.rehearse.run_rehearsal import Wishes
    from faultrun.cli.resolve.spec import Resolved
    from faultrun.rehearse.outcome import Trial

_NOT_SURVIVED = 1
_CHANGED = 2
_LONGEST_MINUTES, _SHORTEST_MINUTES = 24 * 60, 0.1
_INTRODUCTION = (
    "Proof before the night run: train SCRIPT for a few minutes, do one fault after the other to it, and "
    "tell what it survived, what was lost, and whether it trained on as if nothing had happened.",
    "It sees your files and writes to a scratch copy: checkpoints, configurations and log_dir are exactly as "
    "before. Exit code 0: every fault was tried and survived; 1: not; 2: a file of yours changed meanwhile.",
    "Takes every option of `faultrun run` (faultrun --help-all), and these:",
)


class RehearseCommand(RunCommand):
    """The options of ``run``, and the rehearsal's own before them."""

    def format_help_text(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the verb does."""
        write_texts(formatter, *_INTRODUCTION)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write our own options; those of ``run`` are on its page."""
        rows = [row for option in self.own if (row := option.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(rows)


def _command() -> RehearseCommand:
    asking = run_command(lambda asked: asked)
    own = [
        click.Option(
            ["--minutes"],
            type=click.FloatRange(_SHORTEST_MINUTES, _LONGEST_MINUTES),
            default=3.0,
            show_default=True,
            help="Time for all of it; what is not reached is named as not tried.",
        ),
        click.Option(
            ["--faults"],
            metavar="NAME,...",
            help="Which faults: rank, rank0, stop, supervisor, torn, freeze.  [all]",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, for CI."),
        click.Option(["--diff"], is_flag=True, help="Print only the proposed changes, for `git apply`."),
        click.Option(
            ["--scratch"],
            metavar="DIR",
            help="Where what it writes is kept meanwhile; room for its checkpoints.  [$TMPDIR]",
        ),
        click.Option(
            ["--isolation"],
            type=click.Choice(["auto", "view", "copy"]),
            default="auto",
            show_default=True,
            help="How your files are kept as they are: in a private view of the file system, or, where none "
            "is allowed, in a copy of the working directory outside of which nothing can be written.",
        ),
    ]

    def callback(words: tuple[str, ...], **values: Any) -> int:
        from faultrun.cli.rehearse.run_rehearsal import Wishes

        wishes = Wishes(**{one.name: values.pop(one.name) for one in fields(Wishes)})
        assert asking.callback is not None
        return _rehearse(asking.callback(words=words, **values), wishes)

    made = RehearseCommand(
        "rehearse",
        callback=callback,
        params=[*own, *asking.params],
        context_settings=asking.context_settings,
        short_help="Prove in minutes that a training survives every fault.",
        options_metavar="[OPTIONS]",
        epilog=example("faultrun rehearse --minutes=3 --worker_num=2 --checkpoint_dir=ckpt train.py"),
    )
    made.own = own
    return made


def _rehearse(asked: Asked, wishes: "Wishes") -> int:
    from faultrun.cli.rehearse.run_rehearsal import rehearsed
    from faultrun.model.wire import CHECK_VARIABLE
    from faultrun.rehearse.result_page import as_json, page

    os.environ.setdefault(CHECK_VARIABLE, "1")  # of the trainings that it starts
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _interrupted)
    resolved = _resolved(asked)
    try:
        found, changes = rehearsed(asked, resolved, _trials(wishes.faults, resolved), wishes)
    except _ToldToStop as end:
        say(
            f"the rehearsal was ended by {end.name} and says nothing: its processes are gone, "
            "and so is what the training wrote"
        )
        raise
    if wishes.as_json:
        answer(json.dumps({**as_json(found), "proposed": changes}, indent=2))
    elif wishes.diff:
        answer(changes)
    else:
        answer(page(found))
        if changes:
            answer(f"\nproposed changes (alone with --diff, for `git apply`):\n\n{changes}")
    if found.changed:
        return _CHANGED
    return 0 if found.survived else _NOT_SURVIVED


class _ToldToStop(SystemExit):
    """By a signal; the exit code is the shell's for it."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.name = signal.Signals(signum).name


def _interrupted(signum: int, _frame: object) -> None:
    raise _ToldToStop(signum)


def _resolved(asked: Asked) -> "Resolved":
    """What would be run; every mistake in it is told before anything is started."""
    from faultrun.cli.resolve.context import ProcessContext
    from faultrun.cli.resolve.spec import resolve
    from faultrun.cli.run.command import check_recovery

    around = ProcessContext(
        environ=dict(os.environ), python=sys.executable, import_path=tuple(sys.path), pid=os.getpid()
    )
    resolved = resolve(collect_for_run(asked, os.environ), around)
    check_recovery(resolved.spec, around.environ)
    return resolved


def _trials(faults: str | None, resolved: "Resolved") -> "tuple[Trial, ...]":
    from faultrun.cli.rehearse.run_rehearsal import every_trial
    from faultrun.rehearse.outcome import Trial

    if faults is None:
        return every_trial(resolved)
    known = {trial.value: trial for trial in Trial}
    named = [name.strip() for name in faults.split(",") if name.strip()]
    unknown = [name for name in named if name not in known]
    if unknown or not named:
        because = f"there is no fault {unknown[0]}" if unknown else "it names none"
        hint = f"--faults={','.join(known)}"
        raise UsageError(f"--faults={faults} cannot be used", because=because, hint=hint)
    return tuple(dict.fromkeys(known[name] for name in named))


rehearse = _command()
