"""``--framework``: named by the user or a recipe, else read from imports, else told by an option of msrun."""

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from faultrun.cli.options.errors import likely
from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.process_context import Notes
from faultrun.cli.resolve.program import Program
from faultrun.cli.resolve.recovery import Chosen
from faultrun.core.secrets import without_secret_words
from faultrun.model.spec import Framework

E = TypeVar("E", bound=Enum)

_MSRUN_ONLY = ("cluster_time_out", "sim_level", "sim_rank_id", "ms_scheduler")
"""Nobody but MindSpore's workers makes use of these."""


def resolve_framework(settings: Settings, notes: Notes, program: Program, recipe: Chosen | None) -> Framework:
    """What the workers train with; how it was found is said where it is not plain to see."""
    named = settings.read("framework", _framework_or_auto)
    if named is not None:
        return named
    if recipe is not None and recipe.recipe.framework is not None and "framework" not in settings.given:
        return recipe.recipe.framework
    found = _imported(program)
    if found is not Framework.PLAIN:
        return found
    implied = next((name for name in _MSRUN_ONLY if name in settings.given), None)
    if implied is not None:
        notes.add(f"framework mindspore, because {settings.where(implied)} is given (override: --framework)")
        return Framework.MINDSPORE
    shown = without_secret_words(program.command.shown)
    notes.add(
        f"no torch, MindSpore or TensorFlow import found; treating {shown} as plain "
        "(override: --framework=torch)"
    )
    return Framework.PLAIN


def _imported(program: Program) -> Framework:
    """What the program imports, or the first Python file that it is a wrapper of."""
    from faultrun.frameworks.detect import detect
    from faultrun.frameworks.program_files import python_files

    if program.source is not None:
        found = detect(program.source, program.search).framework
        if found is not Framework.PLAIN:
            return found
    for file in python_files((*program.command.prefix, *program.command.script_args)):
        found = detect(file, (file.parent,)).framework
        if found is not Framework.PLAIN:
            return found
    return Framework.PLAIN


def _framework_or_auto(text: str) -> Framework | None:
    return None if text == "auto" else one_of(Framework, "auto")(text)


def one_of(kind: type[E], *others: str) -> Callable[[str], E]:
    """A reader of the values of ``kind``; ``others`` are only named in the error."""

    def read(text: str) -> E:
        known = [member.value for member in kind]
        if text not in known:
            match = likely(text, known)
            meant = f"; did you mean {match}?" if match else ""
            raise ValueError(f"{text!r} is none of {', '.join([*others, *known])}{meant}")
        return kind(text)

    return read
