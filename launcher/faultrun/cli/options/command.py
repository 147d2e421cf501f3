"""From words on the command line to ``Asked``: which options were given, and what is left for SCRIPT.

Nothing is interpreted here: values stay the texts they were typed as. The help page is written here, and what
click says of a wrong command line becomes what · because · try.
"""

import re
from collections.abc import Callable, Mapping

import click
from click.shell_completion import CompletionItem

from faultrun.cli.options.option import Takes
from faultrun.cli.options.settings import OPTIONS, SECTIONS, Asked
from faultrun.cli.options.values import likely
from faultrun.errors import UsageError

RUN = "run"
"""The verb that may be left out."""

_WIDTH = 100
_NAME_COLUMN = 32
_USAGE = "[OPTIONS] SCRIPT [SCRIPT_ARGS...]"
_INTRODUCTION = (
    "Start N training workers and watch them. When one fails, the others save, everything stops cleanly, the "
    "newest whole checkpoint is chosen and all train again from there.",
    "SCRIPT ending in .py runs with this Python, unbuffered; python, bash, pytest or an executable runs as "
    "written. Everything after SCRIPT belongs to it.",
)
_VALUES = (
    "TIME is 250ms, 30s, 5m, 1h or seconds. Names work with _ and with -. An option that is not given is "
    "taken from its variable (FAULTRUN_MAX_RESTARTS=5; lists are separated by ;), then from torchrun's PET_ "
    "variable, then from --config. A TEMPLATE may hold {checkpoint} {checkpoint_file} {checkpoint_dir} "
    "{checkpoint_name} {epoch} {step} {global_step} {rank} {run_id} {incarnation}."
)
_HELP = "faultrun --help lists every option; options of the script come after SCRIPT"
_RUN_OR_PROGRAM = ("run", "faultrun", None)
_LITERALS = frozenset({"true", "false", "1", "0"})


def _same_spelling(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


_CONTEXT: dict[str, object] = {
    "allow_interspersed_args": False,
    "help_option_names": ["-h", "--help"],
    "max_content_width": _WIDTH,
    "token_normalize_func": _same_spelling,
}


class RunCommand(click.Command):
    """``faultrun run``: reads the options of the table up to SCRIPT and leaves the rest alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, once a switch without a value has got one."""
        return super().parse_args(ctx, _spell_out_switches(args))

    def format_help_text(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the tool does."""
        _write_texts(formatter, *_INTRODUCTION)

    def format_options(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every option by section, each with its unit and default."""
        *_, last = SECTIONS
        for title, options in SECTIONS.items():
            rows = [(option.term, option.meaning) for option in options]
            if title == last:
                rows.append(("--version", "Print the version and exit."))
                rows.append(("-h, --help", "Print this page and exit."))
            with formatter.section(title):
                formatter.write_dl(rows, col_max=_NAME_COLUMN)
        _write_texts(formatter, _VALUES)


def run_command(start: Callable[[Asked], object]) -> RunCommand:
    """The ``run`` verb; ``start`` is called with what was asked and its answer is returned."""

    def callback(words: tuple[str, ...], **values: object) -> object:
        return start(Asked(options=_as_texts(values), words=words))

    return RunCommand(
        RUN,
        callback=callback,
        params=[*_parameters(), _script_argument()],
        context_settings=_CONTEXT,
        short_help="Start workers and keep them training (the verb may be left out).",
        options_metavar="[OPTIONS]",
    )


class FaultrunGroup(click.Group):
    """The whole program: a first word that is no verb is the beginning of ``run``."""

    def __init__(self, run: RunCommand, *, version: str) -> None:
        version_option = _version_option(version)
        super().__init__(
            "faultrun", context_settings=_CONTEXT, params=[version_option], subcommand_metavar=_USAGE
        )
        run.params.append(version_option)
        self.run = run
        self.add_command(run)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the verb ``run`` before anything that is neither a verb nor about the program itself."""
        ours = {"--version", *ctx.help_option_names, *self.commands}
        typed = bool(args) or not ctx.resilient_parsing
        if typed and not (args and args[0] in ours):
            args = [RUN, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb; what click says of its options becomes a ``UsageError`` in three lines."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _as_usage_error(error) from None

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both forms: the run, and the other verbs."""
        formatter.write_usage(ctx.command_path, _USAGE)
        if len(self.commands) > 1:
            formatter.write_usage(ctx.command_path, "VERB [OPTIONS]", prefix="       ")

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the tool does."""
        self.run.format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs, then the options of ``run``."""
        shown = {name: verb for name, verb in self.commands.items() if not verb.hidden}
        with formatter.section("Verbs (faultrun VERB --help)"):
            formatter.write_dl(
                [(name, verb.get_short_help_str(limit=_WIDTH)) for name, verb in shown.items()]
            )
        self.run.format_options(ctx, formatter)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Verbs in the order in which they were added: the common ones first."""
        return list(self.commands)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs, files and the options of ``run``: any of them may be the first word."""
        run_ctx = click.Context(self.run, parent=ctx, info_name=RUN)
        return [*super().shell_complete(ctx, incomplete), *self.run.shell_complete(run_ctx, incomplete)]


def _write_texts(formatter: click.HelpFormatter, *texts: str) -> None:
    for text in texts:
        formatter.write_paragraph()
        formatter.write_text(text)


def _parameters() -> list[click.Parameter]:
    made: list[click.Parameter] = []
    for option in OPTIONS.values():
        names = [*([f"-{option.short}"] if option.short else []), f"--{option.name}", option.name]
        if option.takes is Takes.NOTHING:
            made.append(click.Option(names, is_flag=True, default=None))
        else:
            made.append(click.Option(names, type=str, default=None, multiple=option.takes is Takes.LIST))
    return made


def _script_argument() -> click.Argument:
    return click.Argument(
        ["words"],
        nargs=-1,
        type=click.UNPROCESSED,
        metavar="SCRIPT [SCRIPT_ARGS...]",
        shell_complete=lambda _ctx, _param, incomplete: [CompletionItem(incomplete, type="file")],
    )


def _version_option(version: str) -> click.Option:
    def show(ctx: click.Context, _param: click.Parameter, value: bool | None) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(f"faultrun {version}")
            ctx.exit()

    return click.Option(["--version"], is_flag=True, expose_value=False, is_eager=True, callback=show)


def _as_texts(values: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    texts = {name: value if isinstance(value, tuple) else (value,) for name, value in values.items()}
    return {name: tuple(map(str, some)) for name, some in texts.items() if some not in ((), (None,))}


def _spell_out_switches(args: list[str]) -> list[str]:
    """Turn ``--join train.py`` into ``--join=True train.py``, and ``--join False`` into ``--join=False``.

    click would take SCRIPT for the switch's value, so our own words are walked first.
    """
    done: list[str] = []
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--"):
        word = args[at]
        takes = _takes(word)
        if takes is Takes.SWITCH:
            follower = args[at + 1].lower() if at + 1 < len(args) else ""
            literal = follower in _LITERALS
            done.append(f"{word}={follower if literal else 'True'}")
            at += 2 if literal else 1
        else:
            width = 2 if takes in (Takes.VALUE, Takes.LIST) else 1
            done += args[at : at + width]
            at += width
    return done + args[at:]


def _takes(word: str) -> Takes | None:
    """What the next word is to ``--log_dir``, ``-t`` and ``-mt``; None for ``--log_dir=D`` and ``-t3``."""
    if word.startswith("--"):
        option = OPTIONS.get(_same_spelling(word))
        return None if option is None else option.takes
    valued = "".join(one.short for one in OPTIONS.values() if one.takes is not Takes.NOTHING)
    return Takes.VALUE if re.fullmatch(f"-[^{valued}]*[{valued}]", word) else None


def _as_usage_error(error: click.UsageError) -> UsageError:
    """The same complaint in our three lines."""
    said = error.format_message().rstrip(".")
    because = said[:1].lower() + said[1:]
    about_run = error.ctx is None or error.ctx.command.name in _RUN_OR_PROGRAM
    command = error.ctx.command_path if error.ctx is not None else ""
    if isinstance(error, click.NoSuchOption):
        return _unknown_option(error.option_name) if about_run else _unknown_of_verb(error, command)
    if not about_run:
        return UsageError(f"`{command}` is written wrongly", because=because, hint=f"{command} --help")
    if isinstance(error, click.BadOptionUsage):
        key = _same_spelling(error.option_name)
        hint = OPTIONS[key].use if key in OPTIONS else _HELP
        return UsageError(f"--{key} is written wrongly", because=because, hint=hint)
    return UsageError("the command line is wrong", because=because, hint=_HELP)


def _unknown_option(typed: str) -> UsageError:
    key = _same_spelling(typed)
    match = likely(key, list(OPTIONS))
    hint = f"did you mean {OPTIONS[match].spelled}?  (e.g. {OPTIONS[match].use})" if match else _HELP
    because = "neither faultrun nor msrun nor torchrun has it"
    return UsageError(f"unknown option {typed}", because=because, hint=hint)


def _unknown_of_verb(error: click.NoSuchOption, command: str) -> UsageError:
    match = likely(error.option_name, error.possibilities or [])
    return UsageError(
        f"unknown option {error.option_name}",
        because=f"`{command}` does not have it",
        hint=f"did you mean {match}?" if match else f"{command} --help",
    )
