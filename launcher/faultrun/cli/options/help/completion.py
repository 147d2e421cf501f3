"""What a shell offers behind an option or verb: names, words, files, folders.

The protocol is click's (``_FAULTRUN_COMPLETE=bash_source faultrun``); nothing is read but names.
"""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from faultrun.cli.options.choices import OneOf
from faultrun.cli.options.option import Option, Takes
from faultrun.cli.options.settings import Settings

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@add_completion_class
class EqualsInBash(BashComplete):
    """bash gives ``--recipe=x`` as three words; click would take the ``=`` for the value."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the incomplete one, and that."""
        args, incomplete = super().get_completion_args()
        return [one for one in args if one != "="], incomplete


def folders(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Folders, which the shell lists."""
    return [CompletionItem(incomplete, type="dir")]


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, which the shell lists."""
    return [CompletionItem(incomplete, type="file")]


def names(known: Callable[[], Iterable[str]]) -> Completer:
    """Names that are looked up when a shell asks."""

    def offered(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in known() if name.startswith(incomplete)]

    return offered


def recipes() -> tuple[str, ...]:
    """The packaged recipes."""
    from faultrun.configs.recipes.packaged import recipe_names

    return recipe_names()


def completer(option: Option[object]) -> Completer | None:
    """What is offered as the value of an option of a run; None where nothing is known of it."""
    if option.name == Settings.recipe.name:
        return names(recipes)
    if isinstance(option.reads, OneOf):
        known = option.reads.known
        return names(lambda: known)
    if option.name == Settings.dry_run.name:
        return None  # the next word is SCRIPT: its only value is written behind a =
    if option.takes is Takes.SWITCH:
        return names(lambda: ("True", "False"))
    words = [word for word in option.metavar.split("|") if word.isalpha() and word.islower()]
    place = folders if "DIR" in option.metavar else files if "FILE" in option.metavar else None
    if not words:
        return place
    # Paths first: what bash is told behind them is offered before they are.
    both = (names(lambda: words),) if place is None else (place, names(lambda: words))
    return lambda ctx, param, incomplete: [one for of in both for one in of(ctx, param, incomplete)]
