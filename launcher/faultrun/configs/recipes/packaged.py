"""The recipes that come with faultrun, by name, and those of them that may fit a script."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from faultrun.errors import ConfigError


def templates_folder() -> Path:
    """The folder of manifests and recipes: inside the installed wheel, else in the checkout."""
    package = Path(__file__).resolve().parents[2]
    packaged = package / "_templates"
    return packaged if packaged.is_dir() else package.parent.parent / "templates"


def recipe_names() -> tuple[str, ...]:
    """Names of the packaged recipes, in alphabetical order."""
    return tuple(sorted(path.stem for path in (templates_folder() / "recipes").glob("*.yaml")))


def recipe_file(name: str) -> Path:
    """The file that ``--recipe`` means: a packaged NAME, or a path if it holds a slash or ends in .yaml.

    ConfigError for a NAME that is not packaged. Whether a path exists is seen when it is read.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    names = recipe_names()
    if name in names:
        return templates_folder() / "recipes" / f"{name}.yaml"
    from difflib import get_close_matches  # noqa: PLC0415  for a mistake only

    close = get_close_matches(name, names, n=1)
    because = "the recipes are " + ", ".join(names)
    hint = f"--recipe={close[0]}" if close else "faultrun recipes, or --recipe=./mine.yaml for your own"
    raise ConfigError(f"there is no recipe {name!r}", because=because, hint=hint)


def imported_prefixes(imported: Iterable[str]) -> Iterator[str]:
    """Each dotted name of ``imported``, and what it is below."""
    for name in imported:
        parts = name.split(".")
        yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1) if parts[0])


def files_that_may_fit(used: frozenset[str]) -> Iterator[Path]:
    """The recipes with a line that is one of the names ``used``.

    Reading YAML takes milliseconds a file, and its reader half a megabyte: most runs can be spared both.
    """
    listed = re.compile(r"^\s*(?:detect:|-)\s+([\w.]+)\s*$", re.MULTILINE)
    for name in recipe_names():
        file = recipe_file(name)
        if used.intersection(listed.findall(file.read_text(encoding="utf-8"))):
            yield file
