"""Where everything of a TOML text stands, for a text that ``tomllib`` has already accepted.

Names, dotted keys, headers and arrays of tables are left to ``tomllib``: each value is replaced by
a mark, each header and inline table is given one, and the tree then read tells whose they are.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from faultrun.text.patch import Patch, patched

KeyPath = tuple[str | int, ...]

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+|\#[^\n]*)
    |(?P<mark>[\[\]{},=])
    |(?P<word>\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\])*"|'[^']*'
        |[^\s\[\]{},=\#"']+(?:[ ][0-9][0-9:.Zz+-]*)?)""",
    re.VERBOSE | re.DOTALL,
)
_MARK = "\0"
_TOP = -1


@dataclass(slots=True, kw_only=True)
class TomlPlace:
    """A value, or the header of a table, which belongs to no statement.

    ``section`` is the number of the header above, ``statement`` the place of the whole ``key = value``.
    ``last`` is where an array's or inline table's last value ends, None if it is empty.
    """

    start: int
    end: int = 0
    section: int = _TOP
    statement: "TomlPlace | None" = None
    opening: str = ""
    last: int | None = None


class Places:
    """Every place of ``text``, which ``loads`` reads."""

    def __init__(self, text: str, loads: Callable[[str], object]) -> None:
        self._places: list[TomlPlace] = []
        self._marks: list[Patch] = []
        self._open: list[TomlPlace] = []
        self._section = _TOP
        self._statement: TomlPlace | None = None
        self._wanted = False
        for token in _TOKEN.finditer(text):
            if token.lastgroup != "blank":
                self._take(token)
        self._tree = loads(patched(text, self._marks))

    def of(self, path: KeyPath) -> TomlPlace | None:
        """The value at ``path``, or what opens the table there; None for one without a header of its own."""
        number = _own(at(self._tree, path))
        return None if number is None else self._places[number]

    def last_statement(self, path: KeyPath) -> tuple[TomlPlace, int] | None:
        """The last statement for the table at ``path``, and how many steps lead to the section it is in.

        None if there is none but under headers of the table's own tables.
        """
        depths = {_own(at(self._tree, path[:depth])): depth for depth in range(1, len(path) + 1)} | {_TOP: 0}
        inside = (self._places[number] for number in _inside(at(self._tree, path)))
        found = [(place.statement, depths[place.section]) for place in inside if place.section in depths]
        known = [(statement, depth) for statement, depth in found if statement is not None]
        return max(known, key=lambda one: one[0].start, default=None)

    def _take(self, token: "re.Match[str]") -> None:
        """A header's bracket, a value or a piece of one; everything else begins or continues a key.

        The names in a header begin a statement, too: it ends with the header, and nothing refers to it.
        """
        spelled, group = token.group(), self._open[-1] if self._open else None
        if group and spelled in {"]", "}"} and not (self._wanted and group.opening != "["):
            self._close(token.end())
        elif self._wanted or (spelled == "[" and self._statement is None):
            self._begin(token)
        elif self._statement is None:
            self._statement = TomlPlace(start=token.start(), section=self._section)
        else:
            in_array = group is not None and group.opening == "["
            self._wanted = spelled == "=" or (spelled == "," and in_array)

    def _begin(self, token: "re.Match[str]") -> None:
        place = TomlPlace(start=token.start(), section=self._section, statement=self._statement)
        if token.group() in {"[", "{"}:
            place.opening = token.group()
            self._open.append(place)
            self._wanted = place.opening == "[" and self._statement is not None
        else:
            self._marks.append(Patch(start=place.start, end=token.end(), new=""))
            self._mark(place, at=token.end(), form='"{}"')
            self._end(place, token.end())

    def _close(self, end: int) -> None:
        place = self._open.pop()
        if place.statement is None:
            if not self._open:
                self._section = place.section = len(self._places)
                self._mark(place, at=end, form='\n"{}" = 0')
        elif place.opening == "{":
            self._mark(place, at=place.start + 1, form='"{}" = 0' + ("" if place.last is None else ","))
        elif place.last is None:
            self._mark(place, at=place.start + 1, form='"{}"')
        self._end(place, end)

    def _end(self, place: TomlPlace, end: int) -> None:
        """A value ends here, and with it perhaps the statement."""
        place.end, self._wanted = end, False
        if self._open:
            self._open[-1].last = end
        elif self._statement is not None:
            self._statement.end, self._statement = end, None

    def _mark(self, place: TomlPlace, *, at: int, form: str) -> None:
        self._marks.append(Patch(start=at, end=at, new=form.format(f"\\u0000{len(self._places)}")))
        self._places.append(place)


def at(tree: Any, path: KeyPath) -> Any:
    """What stands at ``path``; None if nothing does."""
    for step in path:
        match tree:
            case dict():
                tree = tree.get(step)
            case list() if isinstance(step, int) and step < len(tree):
                tree = tree[step]
            case _:
                return None
    return tree


def _own(node: object) -> int | None:
    names = node if isinstance(node, dict) else [node]
    return next((int(name[1:]) for name in names if isinstance(name, str) and name[:1] == _MARK), None)


def _inside(node: object) -> Iterator[int]:
    match node:
        case str():
            yield int(node[1:])
        case list():
            for item in node:
                yield from _inside(item)
        case dict():
            for name, item in node.items():
                yield from _inside(name if name[:1] == _MARK else item)
