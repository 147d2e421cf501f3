"""TEMPLATE of ``--rewrite`` and ``--resume_arg``: text with the recovery point's fields in braces.

``{{`` and ``}}`` are literal braces. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faultrun.errors import ConfigError

if TYPE_CHECKING:
    from faultrun.model.edit import Scalar

FIELDS: Mapping[str, str] = {
    "checkpoint": "path of the checkpoint, a file or a directory",
    "checkpoint_file": "the same, where it is a file; a directory is refused",
    "checkpoint_dir": "the directory that holds it; the checkpoint itself where that is a directory",
    "checkpoint_name": "the last part of its path: global_step1200",
    "epoch": "epoch the checkpoint was written in",
    "step": "step within that epoch",
    "global_step": "optimizer updates since the very first start",
    "rank": "global rank of the worker",
    "run_id": "id of the run",
    "incarnation": "life of the worker group, from 0",
}
INTEGERS = frozenset({"epoch", "step", "global_step", "rank", "incarnation"})
"""A template that is one of these alone means a number, where a file leaves the choice."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,30})")
_FLOAT = re.compile(r"[+-]?[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A place to fill in."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A parsed template: literal text and fields in turn. ``text`` is what was written."""

    text: str
    parts: tuple[str | Field, ...]

    @property
    def fields(self) -> frozenset[str]:
        """Names of the fields it needs."""
        return frozenset(part.name for part in self.parts if isinstance(part, Field))


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What the fields stand for in one incarnation; None is unknown, or differs between those who read it.

    ``is_directory``: ``checkpoint`` is one, so no further directory holds it.
    """

    checkpoint: str
    run_id: str
    incarnation: int
    epoch: int | None = None
    step: int | None = None
    global_step: int | None = None
    rank: int | None = None
    is_directory: bool = False

    @property
    def checkpoint_file(self) -> str | None:
        """``checkpoint`` if it is a file: which file of a directory would be meant, is unknown."""
        return None if self.is_directory else self.checkpoint

    @property
    def checkpoint_dir(self) -> str:
        """The directory part of ``checkpoint``, '.' if it has none; all of it if it is a directory."""
        if self.is_directory:
            return self.checkpoint
        head, slash, _ = self.checkpoint.rstrip("/").rpartition("/")
        return head or (slash or ".")

    @property
    def checkpoint_name(self) -> str:
        """The last part of ``checkpoint``."""
        return self.checkpoint.rstrip("/").rpartition("/")[2]


def parse(text: str) -> Template:
    """Read a template. ConfigError for an unknown field or a single brace."""
    parts: list[str | Field] = []
    literal, position = "", 0
    for token in _TOKEN.finditer(text):
        literal += text[position : token.start()]
        position = token.end()
        if token.group() in {"{{", "}}"}:
            literal += token.group()[0]
        else:
            parts += [literal, Field(name=_known(text, token))]
            literal = ""
    parts.append(literal + text[position:])
    return Template(text=text, parts=tuple(part for part in parts if part != ""))


def render(template: Template, values: Values) -> str:
    """The text with its fields filled in. ConfigError if one of them is unknown here."""
    return "".join(one if isinstance(one, str) else _filled(template, one, values) for one in template.parts)


def rendered_value(template: Template, values: Values) -> "Scalar":
    """Fill in the template; the value has the type that the template means on its own.

    A number for an integer field alone (``{epoch}``); for a template without fields, the boolean, integer or
    float it spells (``true``, ``1``, ``0.5``); else text. A checkpoint that is named ``7`` stays text.
    """
    text = render(template, values)
    match template.parts:
        case (Field(name=name),) if name in INTEGERS:
            return int(text)
        case (str(),):
            return literal(text)
        case _:
            return text


def literal(text: str) -> "Scalar":
    """The boolean, integer or float that a person's ``text`` spells, else the text."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _known(text: str, token: "re.Match[str]") -> str:
    if (name := token.group(1)) is None:
        because = f"the brace at position {token.start() + 1} stands alone"
        hint = "double a brace that is meant literally: {{ or }}"
        raise ConfigError(f"{text!r} is not a template", because=because, hint=hint)
    if name not in FIELDS:
        hint = "use " + " ".join(f"{{{known}}}" for known in FIELDS)
        raise ConfigError(f"{text!r} is not a template", because=f"there is no field {{{name}}}", hint=hint)
    return name


def _filled(template: Template, field: Field, values: Values) -> str:
    value: object = getattr(values, field.name)
    if value is None and field.name == "checkpoint_file":
        because = f"the checkpoint {values.checkpoint} is a directory"
        hint = "{checkpoint} is the directory, which is what its code loads"
        raise ConfigError(f"{template.text!r} cannot be filled in", because=because, hint=hint)
    if value is None:
        because = f"{{{field.name}}} is not known here"
        hint = "use a field that the checkpoint tells: faultrun ckpt list"
        raise ConfigError(f"{template.text!r} cannot be filled in", because=because, hint=hint)
    return str(value)
