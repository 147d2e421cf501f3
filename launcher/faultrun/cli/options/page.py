"""``docs/options.md``, made from the tables of the code.

Written anew by ``python -m faultrun.cli.options.page > docs/options.md``.
"""

import importlib
from collections.abc import Iterator

import click

from faultrun.cli.options.option import Option, Takes
from faultrun.cli.options.page_worker import WORKER_VARIABLES
from faultrun.cli.options.table import SECTIONS
from faultrun.cli.verbs import MODULES, VERBS

_INTRODUCTION = """\
# Options and environment variables

Made from the code; a test compares. For each option of a run: its name (`_` and `-` are the same), its
variable, its default. A variable is used where the option is not typed, a key of `--config` where neither is
given. `TIME` is `250ms`, `30s`, `5m`, `1h` or seconds.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *_run(), *_verbs(), *_worker()]) + "\n"


def _run() -> Iterator[str]:
    for section in SECTIONS:
        yield f"## {section.title}"
        yield ""
        yield "| option | variable | default | |"
        yield "|---|---|---|---|"
        for option in section.options:
            again = " Repeatable." if option.takes is Takes.LIST else ""
            variable = "" if option.name in ("config", "dry_run") else f"`{option.variable}`"
            default = _cell(option.default)
            yield f"| `{_spelled(option)}` | {variable} | {default} | {_cell(option.help)}{again} |"
        yield ""


def _spelled(option: Option) -> str:
    short = f"-{option.short}, " if option.short else ""
    return _cell(f"{short}{option.spelled} {option.metavar}".rstrip())


def _verbs() -> Iterator[str]:
    yield "## The other verbs"
    yield ""
    yield "| verb | option | |"
    yield "|---|---|---|"
    for name in VERBS:
        module = importlib.import_module(f"faultrun.cli.{MODULES[name]}")
        found = getattr(module, name.replace("-", "_"))
        yield from _verb(name, found)
    yield ""


def _verb(name: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            yield from _verb(f"{name} {below}", one)
        return
    arguments = (one for one in command.params if isinstance(one, click.Argument))
    words = " ".join(one.make_metavar(click.Context(command)) for one in arguments)
    said = (command.help or "").strip().partition("\n\n")[0]
    yield f"| `{_cell(f'{name} {words}'.rstrip())}` | | {_cell(said)} |"
    for option in (one for one in command.params if isinstance(one, click.Option)):
        spelled = [one for one in option.opts if one.startswith("--")][:1] or option.opts
        yield f"| | `{spelled[0]}` | {_cell(option.help or '')} |"


def _worker() -> Iterator[str]:
    yield "## What a worker finds in its environment"
    yield ""
    yield "| variable | |"
    yield "|---|---|"
    for name, text in WORKER_VARIABLES.items():
        yield f"| `{name}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    click.echo(page(), nl=False)
