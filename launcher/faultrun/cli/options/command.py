"""From words on the command line to ``Asked``: which options were given, and what is left for SCRIPT.

Nothing is interpreted here: values stay the texts they were typed as. The help pages are written here: the
short one, and the one with everything.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from faultrun.cli.options.help.completion import completer, files
from faultrun.cli.options.help.usage_errors import as_usage_error, same_spelling
from faultrun.cli.options.option import Option, Takes
from faultrun.cli.options.settings import OPTIONS, SECTIONS, Asked, Settings

RUN = "run"
"""The verb that may be left out."""

_WIDTH = 100
_NAME_COLUMN = 32
_USAGE = "[OPTIONS] SCRIPT [SCRIPT_ARGS...]"
_ABOUT_ITSELF = (
    ("--version", "Print the version and exit."),
    ("-h, --help", "Print the short help and exit."),
    ("--help-all", "Print this page and exit."),
)
_INTRODUCTION = (
    "Start N training workers and watch them. When one fails, the others save, everything stops cleanly, the "
    "newest whole checkpoint is chosen and all train again from there.",
    "SCRIPT ending in .py runs with this Python, unbuffered; python, bash, pytest or an executable runs as "
    "written. Everything after SCRIPT belongs to it.",
)
_VALUES = (
    "TIME is 250ms, 30s, 5m, 1h, 2d or seconds. Names work with _ and with -. An option that is not given is "
    "taken from its variable (FAULTRUN_MAX_RESTARTS=5; lists are separated by ;), then from torchrun's PET_ "
    "variable, then from --config. A TEMPLATE may hold {checkpoint} {checkpoint_file} {checkpoint_dir} "
    "{checkpoint_name} {epoch} {step} {global_step} {rank} {run_id} {incarnation}."
)
_MORE = (
    "Every option: faultrun --help-all. A verb: faultrun VERB --help. The documentation: faultrun docs. "
    "Names work with _ and with -."
)
_HELP_ALL = "help_all"
_LITERALS = frozenset({"true", "false", "1", "0"})

_SCRIPT = "SCRIPT [SCRIPT_ARGS...]"
_CONTEXT: dict[str, object] = {
    "allow_interspersed_args": False,
    "help_option_names": ["-h", "--help"],
    "max_content_width": _WIDTH,
    "token_normalize_func": same_spelling,
}

EXAMPLE = (
    "faultrun --worker_num=4 --checkpoint_dir=ckpt \\",
    "  --resume_arg=--resume={checkpoint} train.py",
)
"""Lines to be typed as they stand."""
SENTENCE = (
    "Start N training workers and keep them training: when one fails, the others save, and all go on "
    "from the newest whole checkpoint."
)
_LONGEST_DEFAULT = 12
_ROWS: tuple[tuple[Option[Any], str, str], ...] = (
    (Settings.worker_num, "N", "Workers; without it one for each visible device."),
    (Settings.recipe, "NAME", "Settings for a known code: faultrun recipes."),
    (Settings.checkpoint_dir, "DIR", "Where the script saves its checkpoints."),
    (Settings.resume_arg, "TEMPLATE", "How it is told of one: --resume={checkpoint}."),
    (Settings.rewrite, "FILE:KEY", "Or: the value in its configuration to set."),
    (Settings.max_restarts, "N", f"Restarts for faults within {Settings.restart_window.default_text}."),
    (Settings.grace, "TIME", "Time to save after a peer died."),
    (Settings.hang_timeout, "TIME", "Replace a rank without a step for so long."),
    (Settings.standby, "N", "Spare processes that take over at once."),
    (Settings.log_dir, "DIR", "Logs, journal, cards and report."),
    (Settings.tee, "3", "Show the workers' output here, too."),
    (Settings.config, "FILE", "Options from FILE; else faultrun.yaml beside SCRIPT."),
    (Settings.dry_run, "", "Show what would be started; start nothing."),
)


class RunCommand(click.Command):
    """``faultrun run``: reads the options of the table up to SCRIPT and leaves the rest alone.

    ``own`` are those of a verb that takes others beside the table's.
    """

    own: Sequence[click.Option] = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, once a switch without a value has got one."""
        valued = {name for option in self.own if not option.is_flag for name in option.opts}
        return super().parse_args(ctx, _spell_out_switches(args, valued))

    def format_help_text(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the tool does, and a command that works."""
        write_texts(formatter, SENTENCE)
        with formatter.section("Example"):
            formatter.write("".join(f"  {line}\n" for line in EXAMPLE))

    def format_options(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that people use, and where the others are."""
        with formatter.section("Options of a run, before SCRIPT"):
            formatter.write_dl(everyday_rows(), col_max=_NAME_COLUMN)
        write_texts(formatter, _MORE)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Options before SCRIPT; whatever stands behind it is the script's, and may be a file."""
        if ctx.params.get("words"):
            return [CompletionItem(incomplete, type="file")]
        return super().shell_complete(ctx, incomplete)

    def format_everything(self, formatter: click.HelpFormatter) -> None:
        """Write every option by section, each with its unit and default."""
        *_, last = SECTIONS
        for title, options in SECTIONS.items():
            rows = [(option.term, option.meaning) for option in options]
            if title == last:
                rows += _ABOUT_ITSELF
            with formatter.section(title):
                formatter.write_dl(rows, col_max=_NAME_COLUMN)
        write_texts(formatter, _VALUES)


def run_command(start: Callable[[Asked], object]) -> RunCommand:
    """The ``run`` verb; ``start`` is called with what was asked and its answer is returned."""

    def callback(words: tuple[str, ...], **values: object) -> object:
        return start(Asked(options=_as_texts(values), words=words))

    script = click.Argument(
        ["words"], nargs=-1, type=click.UNPROCESSED, metavar=_SCRIPT, shell_complete=files
    )
    return RunCommand(
        RUN,
        callback=callback,
        params=[*_parameters(), script, _help_all_option()],
        context_settings=_CONTEXT,
        short_help="Start workers and keep them training (the verb may be left out).",
        options_metavar="[OPTIONS]",
    )


class FaultrunGroup(click.Group):
    """The whole program: a first word that is no verb is the beginning of ``run``."""

    def __init__(self, run: RunCommand, *, version: str) -> None:
        version_option = _version_option(version)
        super().__init__(
            "faultrun",
            context_settings=_CONTEXT,
            params=[version_option, *(one for one in run.params if one.name == _HELP_ALL)],
            subcommand_metavar=_USAGE,
        )
        run.params.append(version_option)
        self.run = run
        self.add_command(run)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the verb ``run`` before anything that is neither a verb nor about the program itself."""
        ours = {"--version", "--help-all", "--help_all", *ctx.help_option_names, *self.commands}
        typed = bool(args) or not ctx.resilient_parsing
        if args and args[0].replace("_", "-") in self.commands:
            args = [args[0].replace("_", "-"), *args[1:]]
        if typed and not (args and args[0] in ours):
            args = [RUN, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb; what click says of its options becomes a ``UsageError`` in three lines."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise as_usage_error(error, ctx.invoked_subcommand) from None

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both forms: the run, and the other verbs."""
        formatter.write_usage(ctx.command_path, _USAGE)
        if len(self.commands) > 1:
            formatter.write_usage(ctx.command_path, "VERB [OPTIONS]", prefix="       ")

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the tool does."""
        self.run.format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs in a line each, then the options that people use."""
        self._format_verbs(formatter, besides=(RUN,))
        self.run.format_options(ctx, formatter)

    def format_everything(self, formatter: click.HelpFormatter) -> None:
        """Write the verbs, then every option of ``run``."""
        self._format_verbs(formatter)
        self.run.format_everything(formatter)

    def _format_verbs(self, formatter: click.HelpFormatter, besides: tuple[str, ...] = ()) -> None:
        rows = [
            (name, verb.get_short_help_str(limit=_WIDTH))
            for name, verb in self.commands.items()
            if not verb.hidden and name not in besides
        ]
        if rows:
            with formatter.section("Verbs (faultrun VERB --help)"):
                formatter.write_dl(rows)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Verbs in the order in which they were added: the common ones first."""
        return list(self.commands)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """For a shell that asks what may come first: the options of ``run``, too."""
        options = [one for one in self.run.params if isinstance(one, click.Option)]
        ours = super().get_params(ctx)
        return [*ours, *(one for one in options if one not in ours)] if ctx.resilient_parsing else ours

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """A file, verbs and the options of ``run``: any of them may be the first word.

        The file first: what bash is told behind it is offered before files are.
        """
        script = [] if incomplete.startswith("-") else [CompletionItem(incomplete, type="file")]
        return [*script, *super().shell_complete(ctx, incomplete)]


def write_texts(formatter: click.HelpFormatter, *texts: str) -> None:
    """Write each of ``texts`` as a paragraph of its own."""
    for text in texts:
        formatter.write_paragraph()
        formatter.write_text(text)


def _parameters() -> list[click.Parameter]:
    made: list[click.Parameter] = []
    for option in OPTIONS.values():
        names = [*([f"-{option.short}"] if option.short else []), option.spelled, option.name]
        if option.takes is Takes.NOTHING:
            made.append(click.Option(names, is_flag=True, default=None))
        else:
            several = option.takes is Takes.LIST
            offers = completer(option)
            made.append(click.Option(names, type=str, default=None, multiple=several, shell_complete=offers))
    return made


def _help_all_option() -> click.Option:
    def show(ctx: click.Context, _param: click.Parameter, value: bool | None) -> None:
        command = ctx.command
        if value and not ctx.resilient_parsing and isinstance(command, RunCommand | FaultrunGroup):
            click.echo(everything(command, ctx))
            ctx.exit()

    return click.Option(
        ["--help-all", _HELP_ALL], is_flag=True, expose_value=False, is_eager=True, callback=show
    )


def everything(command: "RunCommand | FaultrunGroup", ctx: click.Context) -> str:
    """The page of ``--help-all``: verbs, and every option with its unit and default."""
    formatter = ctx.make_formatter()
    command.format_usage(ctx, formatter)
    write_texts(formatter, *_INTRODUCTION)
    command.format_everything(formatter)
    return formatter.getvalue().rstrip("\n")


def _version_option(version: str) -> click.Option:
    def show(ctx: click.Context, _param: click.Parameter, value: bool | None) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(f"faultrun {version}")
            ctx.exit()

    return click.Option(["--version"], is_flag=True, expose_value=False, is_eager=True, callback=show)


def _as_texts(values: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    texts = {name: value if isinstance(value, tuple) else (value,) for name, value in values.items()}
    return {name: tuple(map(str, some)) for name, some in texts.items() if some not in ((), (None,))}


def _spell_out_switches(args: list[str], valued: Collection[str]) -> list[str]:
    """Turn ``--join train.py`` into ``--join=True train.py``, and ``--join False`` into ``--join=False``.

    click would take SCRIPT for the switch's value, so our own words are walked first; ``valued`` are options
    beside those of the table that a value follows.
    """
    done: list[str] = []
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--"):
        word = args[at]
        if (takes := _takes(word)) is Takes.SWITCH:
            follower = args[at + 1].lower() if at + 1 < len(args) else ""
            literal = follower in _LITERALS
            done.append(f"{word}={follower if literal else 'True'}")
            at += 2 if literal else 1
        else:
            width = 2 if word in valued or takes in (Takes.VALUE, Takes.LIST) else 1
            done += args[at : at + width]
            at += width
    return done + args[at:]


def _takes(word: str) -> Takes | None:
    """What the next word is to ``--log_dir``, ``-t`` and ``-mt``; None for ``--log_dir=D`` and ``-t3``."""
    if word.startswith("--"):
        option = OPTIONS.get(same_spelling(word))
        return None if option is None else option.takes
    valued = "".join(one.short for one in OPTIONS.values() if one.takes is not Takes.NOTHING)
    return Takes.VALUE if re.fullmatch(f"-[^{valued}]*[{valued}]", word) else None


def everyday_rows() -> list[tuple[str, str]]:
    """The names with what follows them, and what they do, with a default that is short."""
    return [(_term(option, metavar), _with_default(option, says)) for option, metavar, says in _ROWS]


def _term(option: Option[Any], metavar: str) -> str:
    short = f"-{option.short}, " if option.short else ""
    return f"{short}{option.spelled} {metavar}".rstrip()


def _with_default(option: Option[Any], says: str) -> str:
    default = option.default_text
    shown = default not in ("", "none", "0") and len(default) <= _LONGEST_DEFAULT
    return f"{says}  [{default}]" if shown else says
