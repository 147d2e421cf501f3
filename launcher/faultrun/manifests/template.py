"""Templates: a documented head, ``#if``, ``#each`` and ``#end`` lines, and ``${name}`` in lower case.

``$NAME`` and ``${NAME}`` in capitals belong to the shell and stay. In YAML a placeholder is a scalar or
part of one: what is written there is quoted as its content needs, and a number stays a number. In every
other file it is one word of the shell.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from faultrun.text.patch import Patch, patched
from faultrun.text.yaml_reader import read
from faultrun.text.yaml_scalar import spelled
from faultrun.text.yaml_tree import ScalarNode, walk

Values = Mapping[str, str | int | bool | tuple[str, ...]]

_PLACEHOLDER = re.compile(r"\$\{(?P<name>[a-z][a-z0-9_]*)(?:\.(?P<item>[0-9]+))?\}")
_MARKER = re.compile(r"\s*#(if|each|end)(?:\s+(\S+))?\s*")
_TAME = re.compile(r"[A-Za-z0-9._/%@+=-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One template. ``first`` is a line that must stay the first (``#!``), or empty."""

    name: str
    yaml: bool
    first: str
    summary: str
    body: str

    @property
    def names(self) -> frozenset[str]:
        """The values that it takes, in placeholders and in conditions."""
        conditions = (_MARKER.fullmatch(line) for line in self.body.splitlines())
        asked = {match[2].partition("=")[0] for match in conditions if match and match[2]}
        return frozenset(match["name"] for match in _PLACEHOLDER.finditer(self.body)) | asked


def parse(name: str, text: str, *, yaml: bool) -> Template:
    """Take a template's text apart: the comment up to the first empty line is about the template."""
    lines = text.splitlines(keepends=True)
    first = lines.pop(0).rstrip() if lines and lines[0].startswith("#!") else ""
    end = next((at for at, line in enumerate(lines) if not line.strip()), len(lines))
    return Template(
        name=name,
        yaml=yaml,
        first=first,
        summary=lines[0].lstrip("# ").strip() if lines else "",
        body="".join(lines[end + 1 :]),
    )


def render(template: Template, values: Values, note: str) -> str:
    """Fill a template in; ``note`` becomes the comment at its head. ``values`` hold all of its names."""
    kept = "".join(_kept(template.body.splitlines(keepends=True), values))
    filled = _fill_yaml(kept, values) if template.yaml else _fill_shell(kept, values)
    head = f"{template.first}\n" if template.first else ""
    body = "\n".join(line.rstrip() for line in filled.splitlines())
    return f"{head}# {note}\n{body}\n"


def fill(text: str, values: Values) -> str:
    """Put values into a text as they are: for comments, and for defaults that refer to others."""
    return _PLACEHOLDER.sub(lambda match: _plain(_value(match, values)), text)


def _value(match: re.Match[str], values: Values) -> str | int | bool | tuple[str, ...]:
    value = values[match["name"]]
    return value[int(match["item"])] if isinstance(value, tuple) and match["item"] else value


def _kept(lines: list[str], values: Values) -> list[str]:
    """The lines whose conditions hold; those of an ``#each`` once for every item, ``${name.0}`` and so on."""
    done: list[str] = []
    at = 0
    while at < len(lines):
        marker = _MARKER.fullmatch(lines[at].rstrip("\n"))
        if marker is None:
            done.append(lines[at])
            at += 1
            continue
        end = _end_of(lines, at)
        inner = lines[at + 1 : end]
        match marker[1], marker[2]:
            case "if", condition if _holds(condition, values):
                done += _kept(inner, values)
            case "each", name:
                items = values[name]
                assert isinstance(items, tuple)
                for position in range(len(items)):
                    done += [line.replace(f"${{{name}}}", f"${{{name}.{position}}}") for line in inner]
        at = end + 1
    return done


def _end_of(lines: list[str], start: int) -> int:
    depth = 0
    for at in range(start, len(lines)):
        marker = _MARKER.fullmatch(lines[at].rstrip("\n"))
        if marker is not None:
            depth += -1 if marker[1] == "end" else 1
            if depth == 0:
                return at
    raise AssertionError(f"line {start + 1} of the template's body has no #end")


def _holds(condition: str, values: Values) -> bool:
    name, equals, wanted = condition.partition("=")
    value = values[name]
    return _plain(value) == wanted if equals else bool(value)


def _fill_yaml(text: str, values: Values) -> str:
    """Replace whole scalars, so that what a value needs by way of quotes is seen; the rest are comments."""
    patches: dict[int, Patch] = {}
    for scalar in _scalars(text):
        if _PLACEHOLDER.search(scalar.value):
            patches[scalar.start] = Patch(start=scalar.start, end=scalar.end, new=_scalar(scalar, values))
    inside = [range(patch.start, patch.end) for patch in patches.values()]
    for match in _PLACEHOLDER.finditer(text):
        if not any(match.start() in span for span in inside):
            new = _plain(_value(match, values))
            patches[match.start()] = Patch(start=match.start(), end=match.end(), new=new)
    return patched(text, patches.values())


def _scalars(text: str) -> Iterator[ScalarNode]:
    for root in read(text).roots:
        yield from (node for node in walk(root) if isinstance(node, ScalarNode))


def _scalar(scalar: ScalarNode, values: Values) -> str:
    """How a scalar is written with its values in it."""
    whole = _PLACEHOLDER.fullmatch(scalar.value)
    if whole and not scalar.style:
        value = _value(whole, values)
        return spelled(" ".join(value) if isinstance(value, tuple) else value)
    filled = fill(scalar.value, values)
    parts = [_plain(_value(match, values)) for match in _PLACEHOLDER.finditer(scalar.value)]
    if all(_TAME.fullmatch(part) for part in parts) and scalar.style in {"", '"', "'"}:
        return f"{scalar.style}{filled}{scalar.style}"
    return spelled(filled)


def _fill_shell(text: str, values: Values) -> str:
    """Comments, and the directives that look like them, take values as they are; commands take words."""

    def filled(line: str) -> str:
        if line.lstrip().startswith("#"):
            return fill(line, values)
        return _PLACEHOLDER.sub(lambda match: _word(_value(match, values)), line)

    return "".join(filled(line) for line in text.splitlines(keepends=True))


def _word(value: str | int | bool | tuple[str, ...]) -> str:
    return " ".join(map(shlex.quote, value)) if isinstance(value, tuple) else shlex.quote(_plain(value))


def _plain(value: str | int | bool | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return " ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
