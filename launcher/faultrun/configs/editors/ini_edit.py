"""One value of an INI text changed, as ``configparser`` reads it; every other character stays.

KEY is ``section.option``; in a text without sections, ``option``. Options are compared as configparser
compares them, in lower case. INI has no quotes and no comment behind a value: a value is the rest of its
line, and of the indented lines that follow. One that would read back differently is refused. Quotes around
the old value are its reader's own convention and are kept. ``%`` is doubled, as Python's default reader wants
it, unless the file itself has a single one.
"""

import configparser
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from faultrun.configs.editors.edited import (
    Edited,
    EditRefused,
    edited,
    no_parent,
    only_document,
    replaced,
    twice,
)
from faultrun.configs.editors.value_types import as_spelled, plain
from faultrun.model.edit import Key, Scalar
from faultrun.text.patch import Patch, appended, line_break, line_of, next_line

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")
_HEADER = re.compile(r"\[(?P<name>.+)\]")
_OPTION = re.compile(r"(?P<name>.*?)(?P<separator>\s*[=:]\s*)(?P<value>.*)", re.DOTALL)
_QUOTED = re.compile(r"(?P<mark>[\"']).*(?P=mark)", re.DOTALL)
_NO_SECTION = "faultrun has put this section around options without one"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """``start`` and ``end`` are those of the value; ``separator`` is empty for an option without one."""

    section: str
    name: str
    at: int
    start: int
    end: int
    separator: str


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set ``key`` to ``value``; EditRefused with the reason where that cannot be done safely."""
    if key.document:
        raise only_document("INI")
    before = _read(text)
    ends, options = _scan(text)
    section, name = _address(key, ends, options)
    found = [option for option in options if (option.section, option.name.lower()) == (section, name.lower())]
    if len(found) > 1:
        raise twice([line_of(text, option.at) for option in found])
    old = text[found[0].start : found[0].end] if found else ""
    spelled = _percents(text, _in_quotes(old, value))
    if found and spelled == before[section][name.lower()]:
        return replaced(text, found[0].start, found[0].end, old)
    written = spelled.replace("\n", line_break(text) + "\t")
    if found:
        patch = Patch(start=found[0].start, end=found[0].end, new=_lead(found[0], old) + written)
        result = edited(text, [patch], before=old, after=written)
    else:
        separators = [option.separator for option in options if option.section == section]
        entry = f"{name}{(separators or [''])[-1] or ' = '}{written}"
        result = edited(text, [appended(text, ends.get(section, 0), entry)], before=None, after=spelled)
    before.setdefault(section, {})[name.lower()] = spelled
    if _read(result.text) != before:
        hint = "use a path without line breaks and without spaces at its ends"
        raise EditRefused(f"INI cannot hold {spelled!r}: it would read back differently", hint=hint)
    return result


def _lead(option: _Option, old: str) -> str:
    """What goes between an option and its first value."""
    if not option.separator:
        return " = "
    return " " if not old and option.separator[0] == " " and option.separator[-1] != " " else ""


def _address(key: Key, sections: Iterable[str], options: Sequence[_Option]) -> tuple[str, str]:
    """Section and option that ``key`` names; section names may hold dots themselves."""
    steps = [str(step) for step in key.steps]
    splits = [(".".join(steps[:at]), ".".join(steps[at:])) for at in range(1, len(steps))]
    whole = (_NO_SECTION, ".".join(steps))
    known = {(option.section, option.name.lower()) for option in options}
    names = set(sections) - {_NO_SECTION}
    there = [split for split in (*splits, whole) if (split[0], split[1].lower()) in known]
    if len(there) == 1:
        return there[0]
    if len(there) > 1:
        hint = 'quote a name that holds dots: "a.b".c'
        raise EditRefused(f"{key.text} may mean several options", hint=hint)
    homes = [split for split in splits if split[0] in names or split[0] == configparser.DEFAULTSECT]
    if homes:
        return homes[0]
    if not names and len(steps) == 1:
        return whole
    elsewhere = [option.section for option in options if option.name.lower() == steps[-1].lower()]
    if len(steps) == 1 and elsewhere:
        raise EditRefused("an option is named with its section", hint=f"use {elsewhere[0]}.{steps[0]}")
    raise no_parent(steps[0], sorted(names))


def _scan(text: str) -> tuple[dict[str, int], list[_Option]]:
    """Where each section ends, and every option, by configparser's rules for delimiters and comments."""
    ends = {_NO_SECTION: 0}
    options: list[_Option] = []
    section, open_option, indent = _NO_SECTION, False, 0
    for line in _LINE.finditer(text):
        content = line.group().rstrip()
        stripped = content.lstrip()
        depth = len(content) - len(stripped)
        if not stripped or stripped[0] in "#;":
            continue
        end = line.start() + len(content)
        if open_option and depth > indent:
            options[-1] = replace(options[-1], end=end)
        else:
            indent = depth
            header = _HEADER.match(stripped)
            open_option = header is None
            if header:
                section = header["name"]
            else:
                options.append(_option(section, line.start() + depth, stripped))
        ends[section] = next_line(text, end)
    return ends, options


def _option(section: str, at: int, stripped: str) -> _Option:
    found = _OPTION.match(stripped)
    name, separator = (found["name"], found["separator"]) if found else (stripped, "")
    start = at + len(name) + len(separator)
    end = at + len(stripped)
    return _Option(section=section, name=name, at=at, start=start, end=end, separator=separator)


def _in_quotes(old: str, value: Scalar) -> str:
    if isinstance(value, bool):
        return as_spelled(value, old)
    text = plain(value)
    if not (quoted := _QUOTED.fullmatch(old)):
        return text
    if (mark := quoted["mark"]) in text:
        mark = "'" if mark == '"' else '"'
    if mark in text:
        hint = "remove the quotes around the old value"
        raise EditRefused("the value holds both kinds of quotes", hint=hint)
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


def _read(text: str) -> dict[str, dict[str, str | None]]:
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
