"""Where the packaged templates lie, and which of them are recipes."""

from difflib import get_close_matches
from pathlib import Path

from faultrun.errors import ConfigError

_ENDINGS = (".yaml", ".yml")


def templates_folder() -> Path:
    """The folder of manifests and recipes: inside the installed wheel, else in the checkout."""
    package = Path(__file__).resolve().parent.parent
    packaged = package / "_templates"
    return packaged if packaged.is_dir() else package.parent.parent / "templates"


def recipe_names() -> tuple[str, ...]:
    """Names of the packaged recipes, in alphabetical order."""
    return tuple(sorted(path.stem for path in (templates_folder() / "recipes").glob("*.yaml")))


def recipe_file(name: str) -> Path:
    """The file that ``--recipe`` means: a packaged NAME, or a path if it holds a slash or ends in .yaml.

    ConfigError for a NAME that is not packaged. Whether a path exists is seen when it is read.
    """
    if "/" in name or name.endswith(_ENDINGS):
        return Path(name)
    names = recipe_names()
    if name in names:
        return templates_folder() / "recipes" / f"{name}.yaml"
    close = get_close_matches(name, names, n=1)
    raise ConfigError(
        f"there is no recipe {name!r}",
        because="the recipes are " + ", ".join(names),
        hint=f"--recipe={close[0]}" if close else "faultrun recipes, or --recipe=./mine.yaml for your own",
    )
