"""``faultrun render``: a manifest, batch script or Dockerfile from a template and values."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultrun.cli.console import answer
from faultrun.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from faultrun.manifests.render import ManifestTemplate

_MOST_BYTES = 1 << 20


@click.command()
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A value.  (repeatable)")
@click.option(
    "-f", "--values", "files", multiple=True, metavar="FILE", help="Values from a YAML file.  (repeatable)"
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE.  [standard output]")
@click.option("--list", "explain", is_flag=True, help="Explain the values of NAME, as a file for -f.")
def render(
    name: str | None, settings: tuple[str, ...], files: tuple[str, ...], output: str | None, explain: bool
) -> int:
    """Write what template NAME makes of the values; without NAME, list the templates.

    --set comes before -f, and the last -f before the first. What is written
    passes `faultrun lint`, and names that must agree do.
    """
    from faultrun.cli.manifests.reader import read_requirements
    from faultrun.manifests import render as rendering

    if name is None:
        for line in _listed(_templates()):
            answer(line)
        return 0
    template = _template(name)
    if explain:
        click.echo(rendering.explained(template), nl=False)
        return 0
    given = [one for file in files for one in rendering.from_file(file, _content(file))]
    given += [rendering.from_option(text) for text in settings]
    text = rendering.write(template, given, read_requirements)
    if output is None:
        click.echo(text, nl=False)
    else:
        _save(Path(output), text)
    return 0


def _templates() -> dict[str, Path]:
    """The packaged templates by name, which is that of the file without its ending."""
    from faultrun.configs.recipe import templates_folder

    files = (path for path in sorted(templates_folder().iterdir()) if path.is_file() and path.suffix != ".md")
    return {path.stem: path for path in files}


def _template(name: str) -> "ManifestTemplate":
    from faultrun.manifests.render import load

    found = _templates()
    names = {known.lower(): known for known in found}
    known = names.get(name.lower())
    if known is None:
        close = get_close_matches(name.lower(), names, n=1)
        raise UsageError(
            f"there is no template {name!r}",
            because="the templates are " + ", ".join(found),
            hint=f"faultrun render {names[close[0]]}" if close else "faultrun render lists them",
        )
    return load(found[known])


def _listed(templates: dict[str, Path]) -> Iterable[str]:
    width = max(map(len, templates), default=0)
    for name in templates:
        yield f"{name.ljust(width)}  {_template(name).summary}"


def _content(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(_MOST_BYTES)
        return data.decode("utf-8-sig")
    except OSError as error:
        because = error.strerror or str(error)
    except UnicodeDecodeError as error:
        because = f"byte {error.start} is not UTF-8 text"
    raise ConfigError(
        f"cannot read the values of {file}", because=because, hint="faultrun render NAME --list"
    )


def _save(path: Path, text: str) -> None:
    """Write a new file, or one that was rendered before: a hand-written one is not ours to replace."""
    from faultrun.manifests.render import RENDERED

    try:
        if path.exists() and RENDERED not in path.read_text(encoding="utf-8", errors="replace"):
            raise UsageError(
                f"{path} is already there",
                because="it was not rendered by faultrun",
                hint="another -o FILE, or move it away",
            )
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path} could not be written", because=error.strerror or str(error), hint=f"ls -ld {path.parent}"
        ) from error
