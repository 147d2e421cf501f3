"""The layers of settings, and where each value came from.

Command line > ``FAULTRUN_*`` > torchrun's ``PET_*`` > ``--config`` > default. A list from a higher layer
replaces the lower one. Values are texts until ``read`` gives them a meaning, so that an error can name the
place where the person wrote it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from faultrun.cli.options.command import Asked
from faultrun.cli.options.errors import likely
from faultrun.cli.options.option import Option, Takes
from faultrun.cli.options.table import BY_NAME, every_option
from faultrun.cli.options.values import switch
from faultrun.errors import ConfigError, FaultrunError, UsageError

T = TypeVar("T")

INSIDE_WORKER = "FAULTRUN_INCARNATION"
"""Set in every worker: the variables of the run around us are then no wishes of the user."""

_SERVICE_LINKS = ("tcp://", "udp://", "sctp://")
"""Kubernetes sets FAULTRUN_MASTER_PORT=tcp://... in every pod beside a service named faultrun-master."""

_TOLD_TO_WORKERS = frozenset({"FAULTRUN_RUN_ID"})
_LONGEST_SHOWN = 120
_NOT_IN_CONFIG = frozenset({"config"})
_SHAPED = frozenset({("bind_core", "mapping"), ("bind_numa", "mapping")})


class Layer(Enum):
    """Who gave a value."""

    COMMAND_LINE = "command line"
    ENVIRONMENT = "environment"
    CONFIG = "config file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value as it was written. ``where`` names the option, variable or line of the config file."""

    texts: tuple[str, ...]
    layer: Layer
    where: str

    @property
    def text(self) -> str:
        """The one value of an option that takes one."""
        return self.texts[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the user said, in one layer. ``words`` are SCRIPT and its arguments."""

    given: Mapping[str, Given]
    words: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def read(self, name: str, meaning: Callable[[str], T]) -> T | None:
        """The value of ``name`` as ``meaning`` reads it, None if nobody gave one.

        Raises UsageError, or ConfigError for a value of the config file.
        """
        found = self.given.get(name)
        if found is None:
            return None
        try:
            return meaning(found.text)
        except ValueError as error:
            raise wrong(found, BY_NAME[name], str(error)) from None

    def read_all(self, name: str, meaning: Callable[[str], T]) -> tuple[T, ...]:
        """The values of a repeatable option; raises as ``read`` does."""
        found = self.given.get(name)
        if found is None:
            return ()
        try:
            return tuple(meaning(text) for text in found.texts)
        except ValueError as error:
            raise wrong(found, BY_NAME[name], str(error)) from None

    def flag(self, name: str) -> bool:
        """Whether a flag is set."""
        return self.read(name, switch) or False

    def where(self, name: str) -> str:
        """The place where ``name`` was set, or its spelling if nobody set it."""
        found = self.given.get(name)
        return BY_NAME[name].spelled if found is None else found.where

    def refuse(self, name: str, because: str, hint: str = "") -> FaultrunError:
        """The error for a value that is readable and still impossible; the caller raises it."""
        nobody = Given(texts=(), layer=Layer.COMMAND_LINE, where=BY_NAME[name].spelled)
        return wrong(self.given.get(name, nobody), BY_NAME[name], because, hint)


def collect(asked: Asked, environ: Mapping[str, str]) -> Settings:
    """Lay the command line over the environment over the config file.

    Raises ConfigError when the config file cannot be read, is no YAML mapping or has an unknown key.
    """
    layers = [_from_command_line(asked), _from_variables(environ), _from_torchrun(environ)]
    upper = _merged(layers)
    config = upper.get("config")
    if config is not None:
        layers.append(_from_config(config.text))
    return Settings(given=_merged(layers), words=asked.words, notes=_misspelled(environ))


def wrong(found: Given, option: Option, because: str, hint: str = "") -> FaultrunError:
    """The error that blames the place where the value was written."""
    kind = ConfigError if found.layer is Layer.CONFIG else UsageError
    match found.layer:
        case Layer.COMMAND_LINE:
            joint, example = "=", option.example
        case Layer.ENVIRONMENT:
            joint, example = "=", f"{option.variable}={_example_value(option)}"
        case Layer.CONFIG:
            joint, example = ": ", f"{option.name}: {_example_value(option)}"
    written = f"{found.where}{joint}{found.text}" if found.texts and option.takes.shows_value else found.where
    return kind(f"{_shortened(written)} cannot be used", because=because, hint=hint or example)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def _example_value(option: Option) -> str:
    if option.takes is Takes.NOTHING:
        return "true"
    return option.example.replace("=", " ", 1).split(" ", 1)[-1]


def _merged(layers: list[dict[str, Given]]) -> dict[str, Given]:
    merged: dict[str, Given] = {}
    for layer in reversed(layers):
        merged.update(layer)
    return merged


def _from_command_line(asked: Asked) -> dict[str, Given]:
    return {
        name: Given(texts=texts, layer=Layer.COMMAND_LINE, where=BY_NAME[name].spelled)
        for name, texts in asked.options.items()
    }


def _from_variables(environ: Mapping[str, str]) -> dict[str, Given]:
    found: dict[str, Given] = {}
    for option in every_option():
        value = environ.get(option.variable, "")
        if not value.strip() or (option.variable in _TOLD_TO_WORKERS and INSIDE_WORKER in environ):
            continue
        if value.startswith(_SERVICE_LINKS):
            continue
        texts = _several(value) if option.takes is Takes.LIST else (value,)
        found[option.name] = Given(texts=texts, layer=Layer.ENVIRONMENT, where=option.variable)
    return found


def _from_torchrun(environ: Mapping[str, str]) -> dict[str, Given]:
    """Read torchrun's own variables (torch/distributed/argparse_util.py); Kubeflow's operator sets them."""
    found: dict[str, Given] = {}
    for option in every_option():
        variable = f"PET_{option.name.upper()}"
        if option.torch and environ.get(variable, "").strip():
            found[option.name] = Given(texts=(environ[variable],), layer=Layer.ENVIRONMENT, where=variable)
    return found


def _from_config(path: str) -> dict[str, Given]:
    from faultrun.cli.options.settings_file import read_config

    found: dict[str, Given] = {}
    for entry in read_config(path):
        name = entry.key.replace("-", "_")
        where = f"{path}:{entry.line} {entry.key}"
        option = BY_NAME.get(name)
        if option is None or name in _NOT_IN_CONFIG:
            match = likely(name, [known for known in BY_NAME if known not in _NOT_IN_CONFIG])
            raise ConfigError(
                f"{where} is no option",
                because="the keys of a config file are the names of options",
                hint=f"did you mean {match}?" if match else "faultrun --help lists every option",
            )
        if not entry.texts:
            continue
        given = Given(texts=entry.texts, layer=Layer.CONFIG, where=where)
        if entry.shape != "scalar" and (name, entry.shape) not in _SHAPED and option.takes is not Takes.LIST:
            raise wrong(given, option, f"it takes one value and was given a {entry.shape}")
        if name in found:
            raise ConfigError(
                f"{where} is given twice",
                because=f"it was already set at {found[name].where}",
                hint="remove one of them",
            )
        found[name] = given
    return found


def _several(value: str) -> tuple[str, ...]:
    parts = (part.strip() for line in value.splitlines() for part in line.split(";"))
    return tuple(part for part in parts if part)


def _misspelled(environ: Mapping[str, str]) -> tuple[str, ...]:
    """A note for every FAULTRUN_ variable that is nearly, but not quite, an option."""
    if INSIDE_WORKER in environ:
        return ()
    notes = []
    for variable in sorted(environ):
        name = variable.removeprefix("FAULTRUN_").lower()
        if variable.startswith("FAULTRUN_") and name not in BY_NAME:
            match = likely(name, list(BY_NAME), cutoff=0.8)
            if match is not None:
                notes.append(f"{variable} has no effect here: did you mean {BY_NAME[match].variable}?")
    return tuple(notes)
