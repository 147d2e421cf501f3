"""Which folder of all formats is chosen where two ranks are started, and why the others are not."""

from pathlib import Path

from faultrun.checkpoints.registry import builtin_formats
from faultrun.core.recovery.choose import Chosen, NoneUsable
from faultrun.core.recovery.need import Need, World
from support.checkpoints.catalogs import survey_of

ALL = builtin_formats()
TWO = Need(world=World(size=2))


def chosen(root: Path, need: Need = TWO) -> str:
    """Its name."""
    choice = survey_of(root, need, ALL).choice
    assert isinstance(choice, Chosen), choice
    return Path(choice.point.path).name


def refusals(root: Path, need: Need = TWO) -> list[str]:
    """Name and reason of each that was refused."""
    choice = survey_of(root, need, ALL).choice
    assert isinstance(choice, Chosen | NoneUsable), choice
    return [f"{Path(one.path).name}: {one.why}" for one in choice.refused]
