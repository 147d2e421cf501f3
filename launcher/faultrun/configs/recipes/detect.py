"""Which packaged recipe fits a script, by the names that it imports. Only recipes that may fit are read."""

import re
from collections.abc import Iterable, Iterator

from faultrun.configs.recipes.recipe import read_recipe, recipe_file, recipe_names
from faultrun.model.recipe import Recipe

_BENEATH = "torch."
"""What the others are built on: a script that has both is one of the others."""


def recipe_for(imported: Iterable[str]) -> tuple[Recipe, str] | None:
    """The recipe that knows most of the dotted names ``imported``, and the first of them that it knows.

    A name counts if it is imported, or something below it is.
    """
    used = frozenset(prefix for name in imported for prefix in _prefixes(name))
    fitting = [(recipe, known) for recipe in _that_may_fit(used) if (known := _known(recipe, used))]
    if not fitting:
        return None
    recipe, known = min(fitting, key=lambda one: (one[1][0].startswith(_BENEATH), -len(one[1])))
    return recipe, known[0]


def _known(recipe: Recipe, used: frozenset[str]) -> list[str]:
    return [name for name in recipe.detect if name in used]


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1) if parts[0])


def _that_may_fit(used: frozenset[str]) -> Iterator[Recipe]:
    """Reading YAML takes milliseconds a file, which most runs can be spared."""
    listed = re.compile(r"^\s*(?:detect:|-)\s+([\w.]+)\s*$", re.MULTILINE)
    for name in recipe_names():
        file = recipe_file(name)
        if used.intersection(listed.findall(file.read_text(encoding="utf-8"))):
            yield read_recipe(file)
