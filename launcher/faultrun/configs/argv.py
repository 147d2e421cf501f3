"""Script arguments: the recovery point's options put in, and a configuration's path replaced.

Pure. An option is replaced wherever it stands and however it is written
(``--k=v``, ``--k v``, ``-k v``, ``-k=v``), so that "first wins" and "last wins"
parsers read the same; where it is missing it is appended, before a ``--``, or goes where its parser reads.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from faultrun.errors import ConfigError

if TYPE_CHECKING:
    from faultrun.model.edit import EditedCopy

_OPTION = re.compile(r"(?P<name>-{1,2}[^=\s-][^=\s]*)(?:(?P<joint>=|\s)(?P<value>.*))?", re.DOTALL)
_WORD = re.compile(r"(?P<name>[+]{0,2}[A-Za-z_~][\w./@:-]*)(?P<joint>=)(?P<value>.*)", re.DOTALL)
_QUOTED, _INNER_QUOTE = re.compile(r"'(.*)'", re.DOTALL), re.compile(r"(?<!\\)'")
_NUMBER = re.compile(r"-\.?[0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    name: str
    joint: str
    value: str | None

    @property
    def words(self) -> list[str]:
        if self.value is None:
            return [self.name]
        return [f"{self.name}={self.value}"] if self.joint == "=" else self.apart

    @property
    def apart(self) -> list[str]:
        """Name and value as two words; as one if the value would be taken for an option."""
        value = self.value or ""
        return [self.name, value] if _is_value(value) else [f"{self.name}={value}"]


def check_template(text: str) -> None:
    """Raise ConfigError for a template that is no script option, or not with every value of its fields."""
    name = _parsed(text).name
    if "{" in name:
        because = f"its name, {name}, would differ from restart to restart"
        hint = "put fields into the value alone: --pre_trained={checkpoint}"
        raise ConfigError(f"{text!r} is not a script option", because=because, hint=hint)


def resume_args(args: Sequence[str], options: Sequence[str], at: int | None = None) -> tuple[str, ...]:
    """Return the script's ``args`` with every one of ``options`` in force.

    An option is ``--name=value``, ``--name value`` (one string; the value may hold spaces), ``--flag``, or a
    bare ``name=value`` as Hydra reads it. Existing ones keep their place and way of writing. A missing one
    with a dash goes before argument ``at``, where that is told. ConfigError for anything else.
    """
    positional = args.index("--") if "--" in args else len(args)
    first: list[str] = []
    ours = list(args[:positional])
    for text in options:
        option = _parsed(text)
        found = _with(ours, option)
        if found is not None:
            ours = found
        elif at is not None and at <= positional and option.name.startswith("-"):
            long = option.name.startswith("--") and option.value is not None
            first += [f"{option.name}={option.value}"] if long else option.words
        else:
            ours += option.words
    begin = at if first and at is not None else 0
    return (*ours[:begin], *first, *ours[begin:], *args[positional:])


def option_of(text: str) -> tuple[str, str | None]:
    """Name and value of a script option, filled in or not; no value: None. ConfigError where it is none."""
    option = _parsed(text)
    return option.name, option.value


def pointed(
    args: Sequence[str], environment: Mapping[str, str], copies: "Sequence[EditedCopy]"
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Make the script read the edited ``copies``: replace each original's path where it is a value.

    Looked for as a whole argument, behind ``=`` in one, and as the whole value of an environment variable.
    ConfigError if an original is named nowhere: the script would silently read the file that was not edited.
    """
    before = tuple(args), dict(environment)
    for copy in copies:
        args, variables = before
        after = (
            tuple(_pointed(word, copy) for word in args),
            {name: copy.path if _names(value, copy) else value for name, value in variables.items()},
        )
        if after == before:
            raise ConfigError(
                f"the script cannot be pointed at an edited copy of {copy.original}",
                because=f"it {copy.reason}, and no argument or environment variable names it",
                hint=f"pass its path to the script, for example --config={copy.original}",
            )
        before = after
    return before


def _parsed(text: str) -> _Option:
    found = _OPTION.fullmatch(text) or _WORD.fullmatch(text)
    if found is None:
        because = "it starts neither with a dash nor with NAME="
        hint = "write it like --pre_trained={checkpoint}, --resume or name={checkpoint}"
        raise ConfigError(f"{text!r} is not a script option", because=because, hint=hint)
    value = found["value"]
    if not text.startswith("-") and value is not None and (quoted := _QUOTED.fullmatch(value)):
        value = "'" + _INNER_QUOTE.sub(r"\\'", quoted[1]) + "'"
    return _Option(name=found["name"], joint=found["joint"] or "", value=value)


def _with(args: Sequence[str], option: _Option) -> list[str] | None:
    """``args`` with the option as it shall be wherever it stands; None where it stands nowhere."""
    result: list[str] = []
    seen = False
    position = 0
    while position < len(args):
        word = args[position]
        position += 1
        name, equals, _ = word.partition("=")
        if equals and name.lstrip("+") == option.name.lstrip("+"):  # Hydra adds by a +, and knows one key
            result += [f"{name}={option.value}"] if option.value is not None else option.words
        elif word == option.name and option.name.startswith("-"):
            follows = option.value is not None and position < len(args) and _is_value(args[position])
            position += follows
            result += option.apart if follows else option.words
        else:
            result.append(word)
            continue
        seen = True
    return result if seen else None


def _is_value(word: str) -> bool:
    return not word.startswith("-") or word == "-" or bool(_NUMBER.match(word))


def _pointed(word: str, copy: "EditedCopy") -> str:
    if _names(word, copy):
        return copy.path
    name, joint, value = word.partition("=")
    return f"{name}={copy.path}" if joint and _names(value, copy) else word


def _names(word: str, copy: "EditedCopy") -> bool:
    return bool(word) and str(PurePath(word)) in copy.spellings
