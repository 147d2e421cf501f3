"""References of a recipe to what the user gave: ``{arg:config_path}``, ``{config:output_path|=./out}``.

=================  ====================================================================
``{arg:NAME}``     the script's argument ``--NAME``, the last one if it is there twice
``{config:KEY}``   a value of the file that the recipe's ``config`` names
``{env:NAME}``     a variable of our own environment, if it is not empty
``{script}``       the path of the script
``{script_dir}``   the folder that holds it
``{=TEXT}``        TEXT itself: what is meant when the alternatives before it are missing
=================  ====================================================================

``|`` separates alternatives, the first that is known counts. ``{{`` and ``}}`` are braces. All
other fields (``{checkpoint}``) belong to ``core/template.py`` and stay. Pure: who looks up is the caller's.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_ALTERNATIVE = re.compile(
    r"(?P<kind>arg|config|env):(?P<name>[^|]+)|(?P<place>script|script_dir)|=(?P<text>[^|]*)"
)
_SAMPLE = "x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One alternative. ``kind`` is arg, config, env, script, script_dir or text."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        """As a person would say what is missing."""
        match self.kind:
            case "arg":
                return f"the script is not given --{self.name}"
            case "config":
                return f"the training configuration has no value {self.name}"
            case "env":
                return f"the environment has no {self.name}"
            case _:
                return "it is not known which file the script is"


Look = Callable[[Reference], str | None]
"""The value of a reference, None where it is missing."""


class Unknown(Exception):
    """None of a reference's alternatives is known; ``missing`` says which are."""

    def __init__(self, missing: tuple[Reference, ...]) -> None:
        super().__init__("; ".join(str(one) for one in missing))
        self.missing = missing


def filled(text: str, look: Look) -> str:
    """``text`` with its references and doubled braces replaced. Raises Unknown."""

    def replacement(found: "re.Match[str]") -> str:
        if found.group(1) is None:
            return found.group()[0]
        alternatives = references(found.group(1))
        return found.group() if alternatives is None else _first_known(alternatives, look)

    return _BRACES.sub(replacement, text)


def filled_template(text: str, look: Look) -> str:
    """The same for a TEMPLATE: what was looked up can bring in no field. Raises Unknown."""

    def replacement(found: "re.Match[str]") -> str:
        alternatives = references(found.group(1) or "")
        if alternatives is None:
            return found.group()
        return _first_known(alternatives, look).replace("{", "{{").replace("}", "}}")

    return _BRACES.sub(replacement, text)


def fields(text: str) -> tuple[str, ...]:
    """What stands in single braces and is no reference."""
    inner = (found.group(1) for found in _BRACES.finditer(text))
    return tuple(name for name in inner if name is not None and references(name) is None)


def as_sample(text: str) -> str:
    """The TEMPLATE with every reference replaced by some text, to try it out."""
    return filled_template(text, lambda _: _SAMPLE)


def references(inner: str) -> tuple[Reference, ...] | None:
    """The alternatives between two braces; None when it is something else."""
    alternatives: list[Reference] = []
    for part in inner.split("|"):
        found = _ALTERNATIVE.fullmatch(part)
        if found is None:
            return None
        if found["kind"]:
            alternatives.append(Reference(kind=found["kind"], name=found["name"]))
        elif found["place"]:
            alternatives.append(Reference(kind=found["place"]))
        else:
            alternatives.append(Reference(kind="text", name=found["text"]))
    return tuple(alternatives)


def _first_known(alternatives: tuple[Reference, ...], look: Look) -> str:
    for one in alternatives:
        value = one.name if one.kind == "text" else look(one)
        if value is not None:
            return value
    raise Unknown(alternatives)
