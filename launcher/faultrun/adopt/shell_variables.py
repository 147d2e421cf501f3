"""What a word of a shell script comes to, as far as the script tells: assignments, defaults, its own folder.

Nothing is run. What is not known stays as it is written, ``$GPUS``, and a shell will fill it in.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_NAME = re.compile(r"\$(?:(\w+|[@*#?])|\{(\w+|[@*])(\[[@*]\])?(?::?([-=])([^{}]*))?\})")
_OWN_FOLDER = re.compile(r"""dirname\s+(?:--\s+)?["']?\$(?:0|\{0\}|\{?BASH_SOURCE)""")
_UPWARDS = re.compile(r"/\.\.")
_MOST_CHARACTERS = 1 << 17
_QUOTED_ESCAPES = '"\\$`'

Variables = Mapping[str, tuple[str, ...]]
"""The words that each variable stands for; several of an array, or of the arguments."""


@dataclass(slots=True)
class _Fields:
    """The words so far. A value that doubles at every line is cut: no command line is as long."""

    done: list[str] = field(default_factory=list)
    open: str | None = None
    room: int = _MOST_CHARACTERS

    def add(self, text: str) -> None:
        self.open = (self.open or "") + text[: max(0, self.room)]
        self.room -= len(text)

    def end(self) -> None:
        if self.open is not None:
            self.done.append(self.open)
        self.open = None

    def spread(self, words: tuple[str, ...]) -> None:
        """Several words, of which the first continues what is open."""
        for number, word in enumerate(words):
            if number:
                self.end()
            self.add(word)


def expanded(text: str, variables: Variables, folder: str) -> tuple[str, ...]:
    """The words that one written word stands for; ``folder`` is that of the script itself."""
    fields = _Fields()
    at = 0
    while at < len(text):
        behind = _quoted if text[at] == '"' else _plain
        at = behind(text, at, fields, variables, folder)
    fields.end()
    return tuple(fields.done)


def _plain(text: str, at: int, fields: _Fields, variables: Variables, folder: str) -> int:
    if (mark := text[at]) == "'":
        end = text.find("'", at + 1)
        end = len(text) if end < 0 else end
        fields.add(text[at + 1 : end])
        return end + 1
    if mark == "\\":
        if text[at + 1 : at + 2] != "\n":
            fields.add(text[at + 1 : at + 2])
        return at + 2
    if mark in "$`":
        words, end = _filled(text, at, variables, folder)
        if words is None:
            fields.add(text[at:end])
            return end
        # Outside of quotes a value is split into words.
        parts = tuple(part for word in words for part in word.split()) if words else ()
        fields.spread(parts)
        return end
    fields.add(mark)
    return at + 1


def _quoted(text: str, at: int, fields: _Fields, variables: Variables, folder: str) -> int:
    """Pass over ``"..."``; what is in it stays one word, but for the words of an array."""
    fields.add("")
    at += 1
    while at < len(text) and text[at] != '"':
        if text[at] == "\\" and text[at + 1 : at + 2] in _QUOTED_ESCAPES:
            fields.add(text[at + 1 : at + 2])
            at += 2
        elif text[at] in "$`":
            words, end = _filled(text, at, variables, folder)
            if words is None:
                fields.add(text[at:end])
            else:
                fields.spread(words)
            at = end
        else:
            fields.add(text[at])
            at += 1
    return at + 1


def _filled(text: str, at: int, variables: Variables, folder: str) -> tuple[tuple[str, ...] | None, int]:
    """The words of an expansion, None if unknown, and the position behind it."""
    if text[at] == "`" or text.startswith("$(", at):
        end = _behind(text, at)
        if _OWN_FOLDER.search(inside := text[at:end]):
            return (folder + "/.." * len(_UPWARDS.findall(inside)),), end
        return None, end
    if (found := _NAME.match(text, at)) is None:
        end = text.find("}", at) + 1 if text.startswith("${", at) else at + 1
        return None, end or len(text)
    name = found[1] or found[2]
    if name in ("0", "BASH_SOURCE"):
        return None, found.end()
    if (known := variables.get(name)) is None and found[4]:
        known = expanded(found[5], variables, folder)
    return known, found.end()


def _behind(text: str, at: int) -> int:
    """Position behind ``$(...)`` or backquotes."""
    if text[at] == "`":
        return len(text) if (end := text.find("`", at + 1)) < 0 else end + 1
    depth = 0
    for place in range(at + 1, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    return len(text)
