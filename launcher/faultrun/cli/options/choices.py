"""Words of which one must be chosen: the reader of such an option, and what a misspelt word meant."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, TypeVar

E = TypeVar("E", bound=Enum)
T = TypeVar("T")


def likely(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that ``name`` was probably meant to be; ``cutoff`` is difflib's, 1 for equal."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(names), n=1, cutoff=cutoff)), None)


def meant(text: str, known: Sequence[str]) -> str:
    """``; did you mean X?`` for the one of ``known`` that is nearly ``text``, or nothing."""
    by_lower = {one.lower(): one for one in known}
    match = likely(text.strip().lower(), by_lower)
    return f"; did you mean {by_lower[match]}?" if match else ""


def none_of(text: str, known: Sequence[str]) -> str:
    """The phrase for a ``text`` that is none of ``known``, with the one that was probably meant."""
    return f"{text!r} is none of {', '.join(known)}{meant(text, known)}"


class DryRun(Enum):
    """How much of the plan ``--dry-run`` prints; ``NONE``: the run is started."""

    NONE = "none"
    SHORT = "short"
    FULL = "full"


class OneOf(Generic[T]):
    """A reader of the words in ``known``, whatever their case; ``means`` gives a word its meaning.

    Raises ValueError, as every reader of an option does.
    """

    def __init__(self, known: Sequence[str], means: Callable[[str], T]) -> None:
        self.known = tuple(known)
        self._means = means

    def __call__(self, text: str) -> T:
        """The meaning of ``text``."""
        if (word := text.strip().lower()) not in self.known:
            raise ValueError(none_of(text, self.known))
        return self._means(word)


def one_of(kind: type[E]) -> OneOf[E]:
    """A reader of the values of ``kind``."""
    return OneOf([member.value for member in kind], kind)


def one_of_or_auto(kind: type[E]) -> OneOf[E | None]:
    """A reader of the values of ``kind`` and of ``auto``, which is read as None."""
    known = ["auto", *(member.value for member in kind)]
    return OneOf(known, lambda word: None if word == "auto" else kind(word))


def word(*known: str) -> OneOf[str]:
    """A reader of one of these words."""
    return OneOf(known, str)
