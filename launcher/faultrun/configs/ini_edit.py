"""One value of an INI text changed, as ``configparser`` reads it; every other character stays.

KEY is ``section.option``; in a text without sections, ``option``. Options are compared
as configparser compares them, in lower case. INI has no quotes and no comment behind a
value: a value is the rest of its line, and of the indented lines that follow. One that
would read back differently is refused. Quotes around the old value are its reader's own
convention and are kept. ``%`` is doubled, as Python's default reader wants it, unless
the file itself has a single one.
"""

import configparser
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from faultrun.configs.edited import Edited, EditRefused, edited, no_parent, twice, unchanged
from faultrun.configs.typed import as_spelled, plain
from faultrun.model.edit import Key, Scalar
from faultrun.text.patch import Patch, appended, line_break, line_of, next_line

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")
_HEADER = re.compile(r"\[(?P<name>.+)\]")
_OPTION = re.compile(r"(?P<name>.*?)(?P<gap>\s*)(?:(?P<sep>[=:])(?P<pad>\s*)(?P<value>.*))?$", re.DOTALL)
_QUOTED = re.compile(r"(?P<mark>[\"']).*(?P=mark)", re.DOTALL)
_NO_SECTION = "faultrun has put this section around options without one"

_Tree = dict[str, dict[str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """``start`` and ``end`` are those of the value; ``separator`` is empty for an option without one."""

    section: str
    name: str
    at: int
    start: int
    end: int
    separator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    name: str
    last: int


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    if key.document:
        raise EditRefused("INI has one document", hint="leave out the number before #")
    before = _read(text)
    sections, options = _scan(text)
    section, name = _address(key, sections, options)
    found = [option for option in options if (option.section, option.name.lower()) == (section, name.lower())]
    if len(found) > 1:
        raise twice([line_of(text, option.at) for option in found])
    if found:
        result, spelled = _replace(text, found[0], before[section][name.lower()], value)
    else:
        result, spelled = _insert(text, section, name, value, sections, options)
    before.setdefault(section, {})[name.lower()] = spelled
    if _read(result.text) != before:
        raise EditRefused(
            f"INI cannot hold {spelled!r}: it would read back differently",
            hint="use a path without line breaks and without spaces at its ends",
        )
    return result


def _replace(text: str, option: _Option, read: str | None, value: Scalar) -> tuple[Edited, str]:
    """``read`` is the old value as configparser gives it, without the indentation of its lines."""
    old = text[option.start : option.end]
    spelled = _percents(text, _in_quotes(old, value))
    written = spelled.replace("\n", line_break(text) + "\t")
    if spelled == read:
        return unchanged(text, option.start, old), spelled
    lead = " = "
    if option.separator:
        lead = " " if not old and option.separator[0] == " " and option.separator[-1] != " " else ""
    patch = Patch(start=option.start, end=option.end, new=lead + written)
    return edited(text, [patch], before=old, after=written), spelled


def _insert(
    text: str,
    section: str,
    name: str,
    value: Scalar,
    sections: Sequence[_Section],
    options: Sequence[_Option],
) -> tuple[Edited, str]:
    spelled = _percents(text, plain(value))
    neighbours = [option for option in options if option.section == section]
    separator = neighbours[-1].separator if neighbours else ""
    last = next((found.last for found in reversed(sections) if found.name == section), 0)
    entry = f"{name}{separator or ' = '}" + spelled.replace("\n", line_break(text) + "\t")
    patch = appended(text, last, entry)
    return edited(text, [patch], before=None, after=spelled), spelled


def _address(key: Key, sections: Sequence[_Section], options: Sequence[_Option]) -> tuple[str, str]:
    """Section and option that ``key`` names; section names may hold dots themselves."""
    steps = [str(step) for step in key.steps]
    splits = [(".".join(steps[:at]), ".".join(steps[at:])) for at in range(1, len(steps))]
    whole = (_NO_SECTION, ".".join(steps))
    known = {(option.section, option.name.lower()) for option in options}
    names = {section.name for section in sections if section.name != _NO_SECTION}
    there = [split for split in (*splits, whole) if (split[0], split[1].lower()) in known]
    if len(there) == 1:
        return there[0]
    if len(there) > 1:
        raise EditRefused(
            f"{key.text} may mean several options", hint='quote a name that holds dots: "a.b".c'
        )
    homes = [split for split in splits if split[0] in names or split[0] == configparser.DEFAULTSECT]
    if homes:
        return homes[0]
    if not names and len(steps) == 1:
        return whole
    elsewhere = [option.section for option in options if option.name.lower() == steps[-1].lower()]
    if len(steps) == 1 and elsewhere:
        raise EditRefused("an option is named with its section", hint=f"use {elsewhere[0]}.{steps[0]}")
    raise no_parent(steps[0], sorted(names))


def _scan(text: str) -> tuple[list[_Section], list[_Option]]:
    """Sections and options in order, by configparser's rules for its default delimiters and comments."""
    sections = [_Section(name=_NO_SECTION, last=0)]
    options: list[_Option] = []
    section, open_option, indent = _NO_SECTION, False, 0
    for line in _LINE.finditer(text):
        content = line.group().rstrip("\r\n")
        stripped = content.strip()
        depth = len(content) - len(content.lstrip())
        if not stripped or stripped[0] in "#;":
            continue
        end = line.start() + len(content.rstrip())
        if open_option and depth > indent:
            options[-1] = replace(options[-1], end=end)
            sections = _grown(sections, next_line(text, end))
            continue
        indent = depth
        header = _HEADER.match(stripped)
        if header:
            section, open_option = header["name"], False
            sections.append(_Section(name=section, last=next_line(text, end)))
            continue
        options.append(_option(section, line.start() + depth, stripped))
        open_option = True
        sections = _grown(sections, next_line(text, end))
    return sections, options


def _option(section: str, at: int, stripped: str) -> _Option:
    found = _OPTION.match(stripped)
    assert found is not None, "every line matches"
    name = found["name"]
    if found["sep"] is None:
        name = stripped
        return _Option(
            section=section, name=name, at=at, start=at + len(name), end=at + len(name), separator=""
        )
    start = at + found.start("value")
    separator = found["gap"] + found["sep"] + found["pad"]
    return _Option(
        section=section, name=name, at=at, start=start, end=at + len(stripped), separator=separator
    )


def _grown(sections: list[_Section], last: int) -> list[_Section]:
    return [*sections[:-1], replace(sections[-1], last=last)]


def _in_quotes(old: str, value: Scalar) -> str:
    if isinstance(value, bool):
        return as_spelled(value, old)
    text = plain(value)
    quoted = _QUOTED.fullmatch(old)
    if not quoted:
        return text
    mark = quoted["mark"]
    if mark in text:
        mark = "'" if mark == '"' else '"'
    if mark in text:
        raise EditRefused(
            "the value holds both kinds of quotes", hint="remove the quotes around the old value"
        )
    return mark + text + mark


def _percents(text: str, value: str) -> str:
    """Double each ``%``, unless the file's other values prove that its reader takes them as they are."""
    reader = configparser.ConfigParser(strict=False, allow_no_value=True)
    reader.read_string(_headed(text))
    try:
        for name in reader.sections():
            reader.items(name)
    except configparser.InterpolationError:
        return value
    return value.replace("%", "%%")


def _read(text: str) -> _Tree:
    reader = configparser.RawConfigParser(strict=False, allow_no_value=True, default_section="\0")
    try:
        reader.read_string(_headed(text))
    except configparser.ParsingError as error:
        line, shown = error.errors[0]
        raise EditRefused(f"line {line - 1}: {shown}", hint="make it INI that configparser reads") from error
    return {name: dict(reader.items(name)) for name in reader.sections()}


def _headed(text: str) -> str:
    """``text`` as it comes out of a file opened as text, under a section for options without one."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return f"[{_NO_SECTION}]\n{lines}"
