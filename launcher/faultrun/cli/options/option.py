"""What an option is: its spelling, unit, default and the words that explain it. The table is ``options``."""

from dataclasses import dataclass
from enum import Enum


class Takes(Enum):
    """What follows the name of an option."""

    VALUE = "a value"
    LIST = "a value, and may be given again"
    NOTHING = "nothing"
    SWITCH = "True or False, or nothing for True"

    @property
    def shows_value(self) -> bool:
        """Whether a value is written after the name."""
        return self is not Takes.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. ``name`` is its key in the config file and, in capitals, its ``FAULTRUN_`` variable.

    ``example`` is a use that works, for the "try" line of an error.
    ``torch`` options are also read from torchrun's ``PET_`` variables.
    """

    name: str
    metavar: str
    help: str
    example: str
    takes: Takes = Takes.VALUE
    short: str = ""
    dashes: bool = False
    torch: bool = False
    default: str = ""

    @property
    def spelled(self) -> str:
        """The name as the documentation writes it; ``_`` and ``-`` are the same to us."""
        return "--" + (self.name.replace("_", "-") if self.dashes else self.name)

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"FAULTRUN_{self.name.upper()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Options that are shown together."""

    title: str
    options: tuple[Option, ...]
