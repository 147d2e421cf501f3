"""Replacing pieces of a text by position, and the two ways an editor can end without a result."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_BREAK = re.compile(r"\r\n|\n|\r")


class Refused(Exception):
    """An edit that cannot be done as asked; becomes a ConfigError once the file's name is known."""

    def __init__(self, because: str, *, hint: str) -> None:
        super().__init__(because)
        self.because = because
        self.hint = hint


class NoParent(Refused):
    """A nested key whose surroundings are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """``text[start:end]`` becomes ``new``; character positions."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A text after one edit. ``before`` is the old value as spelled, None when the key was absent."""

    text: str
    line: int
    before: str | None
    after: str


def edited(text: str, patches: Sequence[Patch], *, before: str | None, after: str) -> Edited:
    """Put ``patches``, ascending and apart, into ``text``."""
    pieces: list[str] = []
    position = 0
    for patch in patches:
        pieces += [text[position : patch.start], patch.new]
        position = patch.end
    pieces.append(text[position:])
    lead = len(patches[0].new) - len(patches[0].new.lstrip("\r\n")) if patches else 0
    start = patches[0].start if patches else 0
    whole = "".join(pieces)
    return Edited(text=whole, line=line_of(whole, start + lead), before=before, after=after)


def unchanged(text: str, at: int, spelled: str) -> Edited:
    """The text already holds the wanted value, spelled so at position ``at``."""
    return Edited(text=text, line=line_of(text, at), before=spelled, after=spelled)


def line_of(text: str, index: int) -> int:
    """1-based number of the line that holds ``text[index]``."""
    return len(_BREAK.findall(text, 0, index)) + 1


def line_break(text: str) -> str:
    r"""The line end this file uses, judged by its first; ``\n`` when it has none."""
    found = _BREAK.search(text)
    return found.group() if found else "\n"


def next_line(text: str, index: int) -> int:
    """Position after the line break that ends the line of ``index``; the text's length if there is none."""
    found = _BREAK.search(text, index)
    return found.end() if found else len(text)


def appended(text: str, at: int, entry: str) -> Patch:
    """Put ``entry`` on a line of its own at ``at``, which is the start of a line or the end of the text."""
    newline = line_break(text)
    if at > 0 and text[at - 1] not in "\r\n":
        return Patch(start=at, end=at, new=newline + entry)
    return Patch(start=at, end=at, new=entry + newline)


def twice(lines: Sequence[int]) -> Refused:
    """Refuse a key that is there more than once: readers disagree which one counts."""
    times = "twice" if len(lines) == 2 else f"{len(lines)} times"
    apart = sorted(set(lines))
    where = f"line {apart[0]}" if len(apart) == 1 else "lines " + ", ".join(str(line) for line in apart)
    return Refused(f"it is there {times}: {where}", hint="leave one of them, or name it by a longer KEY")


def not_a_value(what: str, names: Sequence[str]) -> Refused:
    """Refuse to put one value in the place of a whole list or mapping."""
    if not names:
        return Refused(
            f"it holds {what}, not a value", hint="name a value inside it, such as KEY.NAME or KEY[0]"
        )
    return Refused(f"it holds {what}, not a value", hint=f"name a value inside it: {', '.join(names[:5])}")


def no_parent(name: str, names: Sequence[str]) -> NoParent:
    """Refuse a nested key whose surroundings are not there to put it into."""
    known = ", ".join(list(names)[:8])
    return NoParent(
        f"there is no {name!r} to look into",
        hint=f"one of: {known}" if known else "check the KEY's first part",
    )


def prove(same: Callable[[], bool], line: int) -> None:
    """Refuse a result unless it reads back as the old file with one value changed."""
    try:
        proved = same()
    except Refused:
        proved = False
    if not proved:
        raise Refused(
            f"changing line {line} would change something else as well",
            hint="simplify that line by hand, for example to: KEY: VALUE",
        )
