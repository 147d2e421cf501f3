"""Where every value of a TOML text stands, for a text that ``tomllib`` has already accepted.

Format: https://toml.io/en/v1.0.0. Names in dotted keys, headers and inline tables
become one path each; arrays and ``[[tables]]`` add positions.
"""

import json
import re
from dataclasses import dataclass, field

from faultrun.model.edit import ScalarKind

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"(?:\\.|[^"\\])*"')
_LITERAL = re.compile(r"'[^']*'")
_MULTI_BASIC = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL)
_MULTI_LITERAL = re.compile(r"'''.*?'{3,5}", re.DOTALL)
_ATOM = re.compile(r"[^,\]}#\r\n]*[^,\]}#\s]")
_INTEGER = re.compile(r"[+-]?(?:0x[0-9A-Fa-f_]+|0o[0-7_]+|0b[01_]+|[0-9_]+)")
_FLOAT = re.compile(r"[+-]?(?:[0-9_]+(?:\.[0-9_]+)?(?:[eE][+-]?[0-9_]+)?|inf|nan)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A value that is neither array nor table."""

    path: Path
    start: int
    end: int
    spelled: str

    @property
    def kind(self) -> ScalarKind:
        """Its type; dates count as strings."""
        if self.spelled in {"true", "false"}:
            return ScalarKind.BOOL
        if _INTEGER.fullmatch(self.spelled):
            return ScalarKind.INT
        return ScalarKind.FLOAT if _FLOAT.fullmatch(self.spelled) else ScalarKind.STR


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """An array or inline table: ``end`` is behind its closing bracket, ``last`` behind its last value."""

    path: Path
    inline: bool
    start: int
    end: int
    last: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """``key = value``: where it starts and ends, and the section it stands in."""

    path: Path
    section: Path
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """``[path]`` or one of ``[[path]]``."""

    path: Path
    start: int
    end: int


@dataclass(slots=True, kw_only=True)
class Layout:
    """Everything in a text, in order."""

    leaves: list[Leaf] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    headers: list[Header] = field(default_factory=list)

    def inside(self, path: Path) -> list[Path]:
        """Paths that lie below ``path``."""
        named = [leaf.path for leaf in self.leaves] + [group.path for group in self.groups]
        named += [header.path for header in self.headers]
        return [other for other in named if len(other) > len(path) and other[: len(path)] == path]


def layout(text: str) -> Layout:
    """Find everything in ``text``, which is valid TOML."""
    return _Scanner(text).run()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found = Layout()
        self._counts: dict[Path, int] = {}

    def run(self) -> Layout:
        section: Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            start = self._at
            if self._text.startswith("[", start):
                section = self._header()
                self._found.headers.append(Header(path=section, start=start, end=self._at))
            else:
                path = self._placed(section, self._names())
                self._at += 1
                self._skip(_SPACE)
                self._value(path)
                self._found.statements.append(
                    Statement(path=path, section=section, start=start, end=self._at)
                )
            self._skip(_BLANK)
        return self._found

    def _header(self) -> Path:
        double = self._text.startswith("[[", self._at)
        self._at += 1 + double
        names = self._names()
        self._at += 1 + double
        if not double:
            return self._placed((), names)
        path = (*self._placed((), names[:-1]), names[-1])
        self._counts[path] = self._counts.get(path, -1) + 1
        return (*path, self._counts[path])

    def _placed(self, section: Path, names: list[str]) -> Path:
        """``names`` below ``section``; a name of an array of tables means its latest table."""
        path = section
        for name in names:
            path = (*path, name)
            if path in self._counts:
                path = (*path, self._counts[path])
        return path

    def _names(self) -> list[str]:
        names: list[str] = []
        while True:
            self._skip(_SPACE)
            names.append(self._name())
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return names
            self._at += 1

    def _name(self) -> str:
        for pattern in (_BASIC, _LITERAL, _BARE):
            if found := pattern.match(self._text, self._at):
                self._at = found.end()
                return _unquoted(found.group())
        raise AssertionError(f"tomllib accepted a key that is none at {self._at}")

    def _value(self, path: Path) -> None:
        match self._text[self._at]:
            case "[":
                self._group(path, "]")
            case "{":
                self._group(path, "}")
            case _:
                start = self._at
                self._skip(self._pattern())
                spelled = self._text[start : self._at]
                self._found.leaves.append(Leaf(path=path, start=start, end=self._at, spelled=spelled))

    def _pattern(self) -> "re.Pattern[str]":
        ahead = self._text[self._at : self._at + 3]
        for opening, pattern in (
            ('"""', _MULTI_BASIC),
            ("'''", _MULTI_LITERAL),
            ('"', _BASIC),
            ("'", _LITERAL),
        ):
            if ahead.startswith(opening):
                return pattern
        return _ATOM

    def _group(self, path: Path, closing: str) -> None:
        start, count = self._at, 0
        last: int | None = None
        self._at += 1
        self._skip(_BLANK)
        while self._text[self._at] != closing:
            if closing == "}":
                inner = (*path, *self._names())
                self._at += 1
                self._skip(_BLANK)
            else:
                inner = (*path, count)
            self._value(inner)
            last, count = self._at, count + 1
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_BLANK)
        self._at += 1
        self._found.groups.append(
            Group(path=path, inline=closing == "}", start=start, end=self._at, last=last)
        )

    def _skip(self, pattern: "re.Pattern[str]") -> None:
        if found := pattern.match(self._text, self._at):
            self._at = found.end()


def _unquoted(name: str) -> str:
    if name.startswith("'"):
        return name[1:-1]
    if not name.startswith('"'):
        return name
    long = re.sub(r"\\U([0-9A-Fa-f]{8})", lambda found: chr(int(found.group(1), 16)), name)
    return str(json.loads(long))
