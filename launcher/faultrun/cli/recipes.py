"""``faultrun recipes``: which training codes are known, and what is known of one."""

import json
from typing import TYPE_CHECKING

import click

from faultrun.cli.console import answer
from faultrun.cli.options.help.completion import names
from faultrun.cli.options.help.completion import recipes as known_recipes
from faultrun.cli.verbs import example

if TYPE_CHECKING:
    from faultrun.model.recipe import Recipe


@click.group(
    invoke_without_command=True, epilog=example("faultrun recipes", "faultrun recipes show transformers")
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_context
def recipes(ctx: click.Context, as_json: bool) -> int:
    """List the recipes for --recipe: what each is for, and a command as an example."""
    if ctx.invoked_subcommand is not None:
        return 0
    from faultrun.configs.recipes.packaged import recipe_file, recipe_names
    from faultrun.configs.recipes.recipe import read_recipe

    known = [read_recipe(recipe_file(name)) for name in recipe_names()]
    if as_json:
        answer(json.dumps([_object(recipe) for recipe in known], indent=2))
        return 0
    width = max((len(recipe.name) for recipe in known), default=0)
    for recipe in known:
        any_number = " (loads into any number of workers)" if recipe.resharded else ""
        answer(f"{recipe.name.ljust(width)}  {recipe.summary}{any_number}")
        if recipe.example:
            answer(f"{' ' * width}  {recipe.example}")
    return 0


def _object(recipe: "Recipe") -> dict[str, object]:
    return {
        "name": recipe.name,
        "summary": recipe.summary,
        "example": recipe.example,
        "framework": recipe.framework.value if recipe.framework else None,
        "detect": list(recipe.detect),
        "world_size": "any" if recipe.resharded else "same",
    }


@recipes.command(epilog=example("faultrun recipes show mindspore-resnet > mine.yaml"))
@click.argument("name", metavar="NAME|FILE", shell_complete=names(known_recipes))
def show(name: str) -> int:
    """Print the recipe as it is written, to be copied and changed: --recipe=./mine.yaml."""
    from faultrun.configs.recipes.packaged import recipe_file
    from faultrun.configs.recipes.recipe import read_recipe

    file = recipe_file(name)
    read_recipe(file)
    answer(file.read_text(encoding="utf-8").rstrip("\n"))
    return 0
