"""``faultrun recipes``: which training codes are known, and what is known of one."""

import click

from faultrun.cli.console import answer


@click.group(invoke_without_command=True)
@click.pass_context
def recipes(ctx: click.Context) -> int:
    """List the recipes for --recipe, one line each."""
    if ctx.invoked_subcommand is not None:
        return 0
    from faultrun.configs.recipe import read_recipe, recipe_file, recipe_names

    names = recipe_names()
    width = max(map(len, names), default=0)
    for name in names:
        answer(f"{name.ljust(width)}  {read_recipe(recipe_file(name)).summary}")
    return 0


@recipes.command()
@click.argument("name", metavar="NAME|FILE")
def show(name: str) -> int:
    """Print the recipe as it is written, to be copied and changed: --recipe=./mine.yaml."""
    from faultrun.configs.recipe import read_recipe, recipe_file

    file = recipe_file(name)
    read_recipe(file)
    answer(file.read_text(encoding="utf-8").rstrip("\n"))
    return 0
