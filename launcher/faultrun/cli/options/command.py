"""From words on the command line to ``Asked``: which options were given, and what is left for SCRIPT.

Nothing is interpreted here: values stay the texts they were typed as.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import click
from click.shell_completion import CompletionItem

from faultrun.cli.options.errors import as_usage_error
from faultrun.cli.options.help import USAGE, WIDTH, write_introduction, write_options
from faultrun.cli.options.option import Takes
from faultrun.cli.options.table import BY_NAME, every_option

RUN = "run"
"""The verb that may be left out."""

_SETTINGS: dict[str, object] = {
    "allow_interspersed_args": False,
    "help_option_names": ["-h", "--help"],
    "max_content_width": WIDTH,
}
_LITERALS = frozenset({"true", "false", "1", "0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options that were typed, as texts by name, and SCRIPT with its arguments."""

    options: Mapping[str, tuple[str, ...]]
    words: tuple[str, ...]


class RunCommand(click.Command):
    """``faultrun run``: reads the options of the table up to SCRIPT and leaves the rest alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, once a switch without a value has got one."""
        return super().parse_args(ctx, _spell_out_switches(args))

    def format_help_text(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the tool does."""
        write_introduction(formatter)

    def format_options(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their sections."""
        write_options(formatter)


def run_command(start: Callable[[Asked], object]) -> RunCommand:
    """The ``run`` verb; ``start`` is called with what was asked and its answer is returned."""

    def callback(words: tuple[str, ...], **values: object) -> object:
        return start(Asked(options=_as_texts(values), words=words))

    return RunCommand(
        RUN,
        callback=callback,
        params=[*_parameters(), _script_argument()],
        context_settings=_SETTINGS | {"token_normalize_func": _same_spelling},
        short_help="Start workers and keep them training (the verb may be left out).",
        options_metavar="[OPTIONS]",
    )


class FaultrunGroup(click.Group):
    """The whole program: a first word that is no verb is the beginning of ``run``."""

    def __init__(self, run: RunCommand, *, version: str) -> None:
        super().__init__(
            "faultrun",
            context_settings=_SETTINGS | {"token_normalize_func": _same_spelling},
            params=[_version_option(version)],
            subcommand_metavar=USAGE,
        )
        run.params.append(_version_option(version))
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
            raise as_usage_error(error) from None

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both forms: the run, and the other verbs."""
        formatter.write_usage(ctx.command_path, USAGE)
        if len(self.commands) > 1:
            formatter.write_usage(ctx.command_path, "VERB [OPTIONS]", prefix="       ")

    def format_help_text(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the tool does."""
        write_introduction(formatter)

    def format_options(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs, then the options of ``run``."""
        rows = [
            (name, command.get_short_help_str(limit=WIDTH))
            for name, command in self.commands.items()
            if not command.hidden
        ]
        with formatter.section("Verbs (faultrun VERB --help)"):
            formatter.write_dl(rows)
        write_options(formatter)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Verbs in the order in which they were added: the common ones first."""
        return list(self.commands)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs, files and the options of ``run``: any of them may be the first word."""
        run_ctx = click.Context(self.run, parent=ctx, info_name=RUN)
        return [*super().shell_complete(ctx, incomplete), *self.run.shell_complete(run_ctx, incomplete)]


def _parameters() -> list[click.Parameter]:
    made: list[click.Parameter] = []
    for option in every_option():
        names = [f"--{option.name}", option.name]
        if option.short:
            names.insert(0, f"-{option.short}")
        if option.takes is Takes.NOTHING:
            made.append(click.Option(names, is_flag=True, default=None))
        else:
            made.append(click.Option(names, type=str, default=None, multiple=option.takes is Takes.LIST))
    return made


def _script_argument() -> click.Argument:
    def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]

    return click.Argument(
        ["words"],
        nargs=-1,
        type=click.UNPROCESSED,
        metavar="SCRIPT [SCRIPT_ARGS...]",
        shell_complete=files,
    )


def _version_option(version: str) -> click.Option:
    def show(ctx: click.Context, _param: click.Parameter, value: bool | None) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(f"faultrun {version}")
            ctx.exit()

    return click.Option(["--version"], is_flag=True, expose_value=False, is_eager=True, callback=show)


def _same_spelling(name: str) -> str:
    return name.replace("-", "_")


def _as_texts(values: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    texts: dict[str, tuple[str, ...]] = {}
    for name, value in values.items():
        if isinstance(value, tuple):
            if value:
                texts[name] = tuple(str(entry) for entry in value)
        elif value is not None:
            texts[name] = (str(value),)
    return texts


def _spell_out_switches(args: list[str]) -> list[str]:
    """Turn ``--join train.py`` into ``--join=True train.py``, and ``--join False`` into ``--join=False``.

    click would take SCRIPT for the switch's value, so our own words are walked first.
    """
    done: list[str] = []
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--"):
        word = args[at]
        name = _same_spelling(word[2:]) if word.startswith("--") else ""
        option = BY_NAME.get(name)
        follower = args[at + 1].lower() if at + 1 < len(args) else ""
        if option is not None and option.takes is Takes.SWITCH:
            literal = follower in _LITERALS
            done.append(f"{word}={follower if literal else 'True'}")
            at += 2 if literal else 1
        else:
            width = 2 if _wants_next_word(word) else 1
            done += args[at : at + width]
            at += width
    return done + args[at:]


def _wants_next_word(word: str) -> bool:
    """Whether an option's value is the word after it: ``--log_dir D``, ``-t 3`` and ``-mt 3``."""
    if word.startswith("--"):
        option = BY_NAME.get(_same_spelling(word[2:]))
        return option is not None and option.takes in (Takes.VALUE, Takes.LIST)
    valued = {option.short for option in every_option() if option.short and option.takes is not Takes.NOTHING}
    for place, letter in enumerate(word[1:], start=1):
        if letter in valued:
            return place == len(word) - 1
    return False
