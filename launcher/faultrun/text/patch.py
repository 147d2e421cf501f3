"""Replacing pieces of a text by position. Positions are characters, lines are counted from 1."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_BREAK = re.compile(r"\r\n|\n|\r")


class MalformedText(Exception):
    """The text is not in its format; ``line`` says where."""

    def __init__(self, because: str, line: int) -> None:
        super().__init__(because)
        self.because, self.line = because, line


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """``text[start:end]`` becomes ``new``."""

    start: int
    end: int
    new: str


def patched(text: str, patches: Iterable[Patch]) -> str:
    """``text`` with ``patches``, which lie apart, in any order; those of one place as they are given."""
    pieces: list[str] = []
    position = 0
    for patch in sorted(patches, key=lambda one: (one.start, one.end)):
        pieces += [text[position : patch.start], patch.new]
        position = patch.end
    return "".join([*pieces, text[position:]])


def line_of(text: str, index: int) -> int:
    """Number of the line that holds ``text[index]``."""
    return len(_BREAK.findall(text, 0, index)) + 1


def line_break(text: str) -> str:
    r"""The line end this file uses, judged by its first; ``\n`` when it has none."""
    found = _BREAK.search(text)
    return found.group() if found else "\n"


def line_end(text: str, index: int) -> int:
    """Position of the line break that ends the line of ``index``; the text's length if there is none."""
    found = _BREAK.search(text, index)
    return found.start() if found else len(text)


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
