"""Every option of ``faultrun run``, and the layers of settings: where each value came from.

Command line > ``FAULTRUN_*`` > torchrun's ``PET_*`` > ``--config`` > default. A list from a higher layer
replaces the lower one. Values are texts until their option is read, so that an error can name the place where
the person wrote it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from faultrun.cli.options.option import Layer, Option, Takes, Written
from faultrun.cli.options.recovery import FailureOptions, ResumeOptions
from faultrun.cli.options.start import CommandOptions, MeetingOptions, WorkerOptions
from faultrun.cli.options.values import likely
from faultrun.cli.options.watching import LogOptions, WatchOptions
from faultrun.errors import ConfigError

INSIDE_WORKER = "FAULTRUN_INCARNATION"
"""Set in every worker: the variables of the run around us are then no wishes of the user."""

_SERVICE_LINKS = ("tcp://", "udp://", "sctp://")
"""Kubernetes sets FAULTRUN_MASTER_PORT=tcp://... in every pod beside a service named faultrun-master."""

_TOLD_TO_WORKERS = frozenset({"FAULTRUN_RUN_ID"})
_NOT_IN_CONFIG = frozenset({"config"})
_MAPPINGS = frozenset({"bind_core", "bind_numa"})


class Settings(
    WorkerOptions, MeetingOptions, FailureOptions, ResumeOptions, LogOptions, WatchOptions, CommandOptions
):
    """Everything the user said, in one layer. ``words`` are SCRIPT and its arguments."""

    def __init__(self, given: Mapping[str, Written], words: tuple[str, ...], notes: tuple[str, ...]) -> None:
        super().__init__(given)
        self.words = words
        self.notes = notes


SECTIONS: Mapping[str, tuple[Option[Any], ...]] = {
    title: tuple(row for row in vars(rows).values() if isinstance(row, Option))
    for title, rows in (
        ("Workers", WorkerOptions),
        ("Meeting point", MeetingOptions),
        ("When a worker fails", FailureOptions),
        ("Where to resume", ResumeOptions),
        ("Logs and console", LogOptions),
        ("Watching the run", WatchOptions),
        ("This command", CommandOptions),
    )
}
"""The options as the help page shows them, by the title of their section."""

OPTIONS: Mapping[str, Option[Any]] = {option.name: option for rows in SECTIONS.values() for option in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options that were typed, as texts by name, and SCRIPT with its arguments."""

    options: Mapping[str, tuple[str, ...]]
    words: tuple[str, ...]


def collect(asked: Asked, environ: Mapping[str, str]) -> Settings:
    """Lay the command line over the environment over the config file.

    Raises ConfigError when the config file cannot be read, is no YAML mapping or has an unknown key.
    """
    upper = _from_torchrun(environ) | _from_variables(environ) | _from_command_line(asked)
    config = upper.get("config")
    lower = {} if config is None else _from_config(config.text)
    return Settings(lower | upper, asked.words, _misspelled(environ))


def _from_command_line(asked: Asked) -> dict[str, Written]:
    return {
        name: Written(texts=texts, layer=Layer.COMMAND_LINE, where=OPTIONS[name].spelled)
        for name, texts in asked.options.items()
    }


def _from_variables(environ: Mapping[str, str]) -> dict[str, Written]:
    found: dict[str, Written] = {}
    for option in OPTIONS.values():
        value = environ.get(option.variable, "")
        if option.variable in _TOLD_TO_WORKERS and INSIDE_WORKER in environ:
            continue
        if value.strip() and not value.startswith(_SERVICE_LINKS):
            texts = _several(value) if option.takes is Takes.LIST else (value,)
            found[option.name] = Written(texts=texts, layer=Layer.ENVIRONMENT, where=option.variable)
    return found


def _from_torchrun(environ: Mapping[str, str]) -> dict[str, Written]:
    """Read torchrun's own variables (torch/distributed/argparse_util.py); Kubeflow's operator sets them."""
    variables = {name: f"PET_{name.upper()}" for name, option in OPTIONS.items() if option.torch}
    return {
        name: Written(texts=(environ[variable],), layer=Layer.ENVIRONMENT, where=variable)
        for name, variable in variables.items()
        if environ.get(variable, "").strip()
    }


def _from_config(path: str) -> dict[str, Written]:
    from faultrun.cli.options.settings_file import read_config

    found: dict[str, Written] = {}
    for entry in read_config(path):
        name = entry.key.replace("-", "_")
        where = f"{path}:{entry.line} {entry.key}"
        option = OPTIONS.get(name)
        if option is None or name in _NOT_IN_CONFIG:
            match = likely(name, [known for known in OPTIONS if known not in _NOT_IN_CONFIG])
            raise ConfigError(
                f"{where} is no option",
                because="the keys of a config file are the names of options",
                hint=f"did you mean {match}?" if match else "faultrun --help lists every option",
            )
        if not entry.texts:
            continue
        written = Written(texts=entry.texts, layer=Layer.CONFIG, where=where)
        as_mapping = entry.shape == "mapping" and name in _MAPPINGS
        if entry.shape != "scalar" and option.takes is not Takes.LIST and not as_mapping:
            raise option.wrong(written, f"it takes one value and was given a {entry.shape}")
        if name in found:
            because = f"it was already set at {found[name].where}"
            raise ConfigError(f"{where} is given twice", because=because, hint="remove one of them")
        found[name] = written
    return found


def _several(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for line in value.splitlines() for part in line.split(";") if part.strip())


def _misspelled(environ: Mapping[str, str]) -> tuple[str, ...]:
    """A note for every FAULTRUN_ variable that is nearly, but not quite, an option."""
    if INSIDE_WORKER in environ:
        return ()
    notes = []
    for variable in sorted(environ):
        name = variable.removeprefix("FAULTRUN_").lower()
        if variable.startswith("FAULTRUN_") and name not in OPTIONS:
            match = likely(name, list(OPTIONS), cutoff=0.8)
            if match is not None:
                notes.append(f"{variable} has no effect here: did you mean {OPTIONS[match].variable}?")
    return tuple(notes)
