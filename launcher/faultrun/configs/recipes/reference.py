"""References of a recipe to what the user gave: ``{arg:config_path}``, ``{config:output_path|=./out}``.

=================  ====================================================================
``{arg:NAME}``     the script's argument ``--NAME``, the last one if it is there twice
``{default:NAME}`` what its default is, by the script's source
``{config:KEY}``   a value of the file that the recipe's ``config`` names
``{env:NAME}``     a variable of our own environment, if it is not empty
``{code:WHAT}``    a literal value of the script's source (``configs/recipes/source_value.py``)
``{option:NAME}``  the option ``--NAME`` as the script's source spells it
``{script}``       the path of the script
``{script_dir}``   the folder that holds it
``{=TEXT}``        TEXT itself: what is meant when the alternatives before it are missing
=================  ====================================================================

``|`` separates alternatives, the first that is known counts. ``{{`` and ``}}`` are braces. All
other fields (``{checkpoint}``) belong to ``core/template.py`` and stay. Pure: who looks up is the caller's.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_ALTERNATIVE = re.compile(
    r"(?P<kind>arg|default|config|env|code|option):(?P<name>[^|]+)|(?P<place>script|script_dir)|=(?P<text>[^|]*)"
)
_MISSING = {
    "arg": "the script is not given --{name}",
    "default": "the script's source has no default of --{name}",
    "config": "the training configuration has no value {name}",
    "env": "the environment has no {name}",
    "code": "no call in the script's source has a literal {name}",
    "option": "the script's source has no option --{name}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One alternative. ``kind`` is arg, default, config, env, code, option, script, script_dir or text."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        """Say in words what is missing, for an error."""
        return _MISSING.get(self.kind, "it is not known which file the script is").format(name=self.name)


LookUp = Callable[[Reference], str | None]
"""The value of a reference, None where it is missing."""

LookUpAll = Callable[[tuple[Reference, ...]], Sequence[str]]
"""Every value that the first known of some alternatives may have; none where all are missing."""


class Unknown(Exception):
    """None of a reference's alternatives is known; ``missing`` says which are."""

    def __init__(self, missing: tuple[Reference, ...]) -> None:
        super().__init__("; ".join(str(one) for one in missing))
        self.missing = missing


def filled(text: str, look_up: LookUp) -> str:
    """``text`` with its references and doubled braces replaced. Raises Unknown."""
    return _replaced(text, lambda alternatives: _first_known(alternatives, look_up), braces=1)


def every_filled(text: str, look_up: LookUpAll) -> tuple[str, ...]:
    """``filled``, once for each combination of values that its references may have. Raises Unknown."""
    parts: list[Sequence[str]] = []
    end = 0
    for found in _BRACES.finditer(text):
        parts.append([text[end : found.start()]])
        end = found.end()
        alternatives = None if found.group(1) is None else _references(found.group(1))
        if alternatives is None:
            parts.append([found.group() if found.group(1) is not None else found.group()[:1]])
            continue
        parts.append(look_up(alternatives))
        if not parts[-1]:
            raise Unknown(alternatives)
    return tuple("".join(words) for words in itertools.product(*parts, [text[end:]]))


def filled_template(text: str, look_up: LookUp) -> str:
    """Replace the references of a TEMPLATE; what was looked up can bring in no field. Raises Unknown."""

    def known(alternatives: tuple[Reference, ...]) -> str:
        return _first_known(alternatives, look_up).replace("{", "{{").replace("}", "}}")

    return _replaced(text, known, braces=2)


def fields(text: str) -> tuple[str, ...]:
    """What stands in single braces and is no reference."""
    inner = (found.group(1) for found in _BRACES.finditer(text))
    return tuple(name for name in inner if name is not None and _references(name) is None)


def options(text: str) -> tuple[str, ...]:
    """The options, in their usual spelling, that a TEMPLATE can be about by its ``{option:...}``."""
    inner = (found.group(1) for found in _BRACES.finditer(text) if found.group(1) is not None)
    named = (one for alternatives in inner for one in _references(alternatives) or () if one.kind == "option")
    return tuple(f"--{one.name}" for one in named)


def as_sample(text: str) -> str:
    """The TEMPLATE with every reference replaced by some text, to try it out."""
    return filled_template(text, lambda _: "x")


def _replaced(text: str, known: Callable[[tuple[Reference, ...]], str], *, braces: int) -> str:
    def replacement(found: "re.Match[str]") -> str:
        if found.group(1) is None:
            return found.group()[:braces]
        alternatives = _references(found.group(1))
        return found.group() if alternatives is None else known(alternatives)

    return _BRACES.sub(replacement, text)


def _references(inner: str) -> tuple[Reference, ...] | None:
    """The alternatives between two braces; None when it is something else."""
    found = [_ALTERNATIVE.fullmatch(part) for part in inner.split("|")]
    if None in found:
        return None
    return tuple(
        Reference(kind=one["kind"] or one["place"] or "text", name=one["name"] or one["text"] or "")
        for one in found
        if one is not None
    )


def _first_known(alternatives: tuple[Reference, ...], look_up: LookUp) -> str:
    for one in alternatives:
        value = one.name if one.kind == "text" else look_up(one)
        if value is not None:
            return value
    raise Unknown(alternatives)
