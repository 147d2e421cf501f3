"""What is changed in a configuration, and what became of it, as values.

Nothing here reads a file or knows a format: ``configs/`` does.
"""

from dataclasses import dataclass
from enum import Enum

Scalar = str | int | float | bool
"""A value as the caller means it. Its type decides only where the file has none to keep."""


class By(Enum):
    """Who sets a value. A run takes back what it wrote; what a person wrote, a person takes back."""

    RUN = "run"
    HAND = "hand"


class ScalarKind(Enum):
    """What a value in a file is; it stays that when the new text can be read as one."""

    NULL = "null"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STR = "str"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Where a value lives: ``steps`` are names and 0-based positions, ``document`` is 0-based too.

    ``text`` is what the user wrote, for messages.
    """

    steps: tuple[str | int, ...]
    text: str
    document: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value to put into one file. ``format`` is empty when the file's name tells it."""

    file: str
    key: str
    value: Scalar
    format: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value that was set: ``before`` and ``after`` as the file spells them.

    ``before`` is None when the key was not there. ``line`` is 1-based, in the edited file.
    """

    key: str
    line: int
    before: str | None
    after: str

    @property
    def nothing(self) -> bool:
        """True when the file already held this value."""
        return self.before == self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedCopy:
    """A file that could not be replaced where it lies, and the edited copy to use in its stead.

    ``spellings`` are the ways in which a command line may name the original;
    ``reason`` completes the sentence "it was copied because it ...".
    """

    original: str
    path: str
    spellings: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EditResult:
    """What was done to one file; ``copy`` is None when the file itself was replaced."""

    file: str
    changes: tuple[Change, ...]
    copy: EditedCopy | None = None

    @property
    def path(self) -> str:
        """The file that now holds the values."""
        return self.copy.path if self.copy else self.file
