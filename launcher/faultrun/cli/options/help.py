"""The help page: the option table in sections that fit a person and 100 columns."""

import click

from faultrun.cli.options.option import Option, Takes
from faultrun.cli.options.table import SECTIONS

WIDTH = 100
_NAME_COLUMN = 32

USAGE = "[OPTIONS] SCRIPT [SCRIPT_ARGS...]"

INTRODUCTION = (
    "Start N training workers and watch them. When one fails, the others save, everything stops cleanly, the "
    "newest whole checkpoint is chosen and all train again from there."
)

_SCRIPT = (
    "SCRIPT ending in .py runs with this Python, unbuffered; python, bash, pytest or an executable runs as "
    "written. Everything after SCRIPT belongs to it."
)
_VALUES = (
    "TIME is 250ms, 30s, 5m, 1h or seconds. Names work with _ and with -. An option that is not given is "
    "taken from its variable (FAULTRUN_MAX_RESTARTS=5; lists are separated by ;), then from torchrun's PET_ "
    "variable, then from --config. A TEMPLATE may hold {checkpoint} {checkpoint_dir} {epoch} {step} "
    "{global_step} {rank} {run_id} {incarnation}."
)


def write_introduction(formatter: click.HelpFormatter) -> None:
    """What the tool does and what SCRIPT may be."""
    for text in (INTRODUCTION, _SCRIPT):
        formatter.write_paragraph()
        formatter.write_text(text)


def write_options(formatter: click.HelpFormatter) -> None:
    """Every option by section, each with its unit and default."""
    for section in SECTIONS:
        rows = [(_term(option), _meaning(option)) for option in section.options]
        if section is SECTIONS[-1]:
            rows += [
                ("--version", "Print the version and exit."),
                ("-h, --help", "Print this page and exit."),
            ]
        with formatter.section(section.title):
            formatter.write_dl(rows, col_max=_NAME_COLUMN)
    formatter.write_paragraph()
    formatter.write_text(_VALUES)


def _term(option: Option) -> str:
    short = f"-{option.short}, " if option.short else ""
    return f"{short}{option.spelled} {option.metavar}".rstrip()


def _meaning(option: Option) -> str:
    again = "  (repeatable)" if option.takes is Takes.LIST else ""
    default = f"  [{option.default}]" if option.default else ""
    return f"{option.help}{again}{default}"
