"""Every option of ``faultrun run``, and the layers of settings: where each value came from.

Command line > ``FAULTRUN_*`` > torchrun's ``PET_*`` > ``--config``, else ``faultrun.yaml`` beside SCRIPT >
default. A list from a higher layer replaces the lower one. Values are texts until their option is read, so
that an error can name the place where the person wrote it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.cli.options.choices import likely
from faultrun.cli.options.config_beside_script import CONFIG_NAME, NO_CONFIG, config_beside
from faultrun.cli.options.option import Layer, Option, Takes, Written
from faultrun.cli.options.table.run_rows import (
    CommandOptions,
    FailureOptions,
    MeetingOptions,
    ResumeOptions,
    WorkerOptions,
)
from faultrun.cli.options.table.torchrun_rows import TorchrunOptions
from faultrun.cli.options.table.watch_rows import LogOptions, WatchOptions
from faultrun.cli.removed_options import REMOVED_OPTIONS, removed_option
from faultrun.errors import ConfigError, UsageError
from faultrun.model.spec.windows import TERMINATION_VARIABLE
from faultrun.model.wire import CHECK_VARIABLE

INSIDE_WORKER = "FAULTRUN_INCARNATION"
"""Set in every worker: the variables of the run around us are then no wishes of the user."""

_SERVICE_LINKS = ("tcp://", "udp://", "sctp://")
"""Kubernetes sets FAULTRUN_MASTER_PORT=tcp://... in every pod beside a service named faultrun-master."""

_TOLD_TO_WORKERS = frozenset({"FAULTRUN_RUN_ID"})
_NO_OPTIONS = frozenset({CHECK_VARIABLE, TERMINATION_VARIABLE})
_MAX_BYTES, _MAX_DEPTH = 1 << 20, 4
_NULL = "tag:yaml.org,2002:null"
_FORM = "one `option: value` per line, such as `worker_num: 4`"
_NOT_IN_CONFIG = frozenset({"config"})
_MAPPINGS = frozenset({"bind_core", "bind_numa"})
_SAME_QUESTION = frozenset({"worker_num", "local_worker_num", "nproc_per_node"})
"""One of these that is typed answers for all: the config file's must not contradict it."""


class Settings(
    WorkerOptions,
    MeetingOptions,
    FailureOptions,
    ResumeOptions,
    LogOptions,
    WatchOptions,
    TorchrunOptions,
    CommandOptions,
):
    """Everything the user said, in one layer. ``words`` are SCRIPT and its arguments."""

    def __init__(self, given: Mapping[str, Written], words: tuple[str, ...], notes: tuple[str, ...]) -> None:
        super().__init__(given)
        self.words, self.notes = words, notes


SECTIONS: Mapping[str, tuple[Option[Any], ...]] = {
    title: tuple(row for row in vars(rows).values() if isinstance(row, Option))
    for title, rows in (
        ("Workers", WorkerOptions),
        ("Meeting point", MeetingOptions),
        ("When a worker fails", FailureOptions),
        ("Where to resume", ResumeOptions),
        ("Logs and console", LogOptions),
        ("Watching the run", WatchOptions),
        ("Coming from torchrun", TorchrunOptions),
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


def collect(asked: Asked, environ: Mapping[str, str], beside: Callable[[], str] = lambda: "") -> Settings:
    """Lay the command line over the environment over the config file.

    ``beside`` is asked for the path of SCRIPT's own config file where no other one is named. Raises
    ConfigError when the config file cannot be read, is no YAML mapping or has an unknown key, and UsageError
    for the variable of a removed option.
    """
    upper = _from_torchrun(environ) | _from_variables(environ) | _from_command_line(asked)
    named = upper.get("config")
    path = beside() if named is None else named.text
    lower = {} if path in ("", NO_CONFIG) else _from_config(path)
    if _SAME_QUESTION.intersection(upper):
        lower = {name: written for name, written in lower.items() if name not in _SAME_QUESTION}
    notes = _misspelled(environ)
    if lower and named is None:
        used = ", ".join(name for name in lower if name not in upper) or "nothing that was not typed"
        notes = (f"options from {path}: {used}  (--config={NO_CONFIG} leaves them out)", *notes)
    return Settings(lower | upper, asked.words, notes)


def collect_for_run(asked: Asked, environ: Mapping[str, str]) -> Settings:
    """Collect the settings of a run that begins here, with the ``faultrun.yaml`` of SCRIPT's folder too."""
    return collect(asked, environ, lambda: config_beside(asked.words, module="module" in asked.options))


def _from_command_line(asked: Asked) -> dict[str, Written]:
    return {
        name: Written(texts=texts, layer=Layer.COMMAND_LINE, where=OPTIONS[name].spelled)
        for name, texts in asked.options.items()
    }


def _from_variables(environ: Mapping[str, str]) -> dict[str, Written]:
    for name in REMOVED_OPTIONS:
        variable = f"FAULTRUN_{name.upper()}"
        gone = removed_option(name, variable, UsageError)
        if gone is not None and environ.get(variable, "").strip():
            raise gone
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
    """Read the ``--config`` file: a YAML mapping from option names to values.

    Scalars stay the texts of the file (``run_id: 2024-01-01`` is no date); a mapping becomes JSON.
    """
    found: dict[str, Written] = {}
    for key, value in _pairs(path):
        place = f"{path}:{key.start_mark.line + 1}"
        if key.id != "scalar":
            because = f"its key is a {key.id}"
            raise ConfigError(f"{place} holds no option", because=because, hint=_FORM)
        where, name = f"{place} {key.value}", key.value.replace("-", "_")
        option = OPTIONS.get(name)
        if (gone := removed_option(name, where, ConfigError)) is not None:
            raise gone
        if option is None or name in _NOT_IN_CONFIG:
            match = likely(name, [known for known in OPTIONS if known not in _NOT_IN_CONFIG])
            because = "the keys of a config file are the names of options"
            hint = f"did you mean {match}?" if match else _other_hint(path)
            raise ConfigError(f"{where} is no option", because=because, hint=hint)
        try:
            written = Written(texts=_texts(value), layer=Layer.CONFIG, where=where)
        except ValueError as error:
            raise ConfigError(f"{place} cannot be used", because=str(error), hint=_FORM) from None
        if not written.texts:
            continue
        as_mapping = value.id == "mapping" and name in _MAPPINGS
        if value.id != "scalar" and option.takes is not Takes.LIST and not as_mapping:
            raise option.wrong(written, f"it takes one value and was given a {value.id}")
        if name in found:
            because = f"it was already set at {found[name].where}"
            raise ConfigError(f"{where} is given twice", because=because, hint="remove one of them")
        found[name] = written
    return found


def _other_hint(path: str) -> str:
    """The user did not name a file that lies beside the script: it may be another program's."""
    every = "faultrun --help-all lists every option"
    return f"{every}; --config={NO_CONFIG} runs without {path}" if Path(path).name == CONFIG_NAME else every


def _pairs(path: str) -> list[tuple[Any, Any]]:
    """The nodes of PyYAML (yaml.nodes) for each key and value; ConfigError if it is no mapping."""
    import yaml

    try:
        root: Any = yaml.compose(_read(path), Loader=yaml.SafeLoader)
    except OSError as error:
        what, because = f"cannot read the config file {path}", error.strerror or str(error)
        raise ConfigError(what, because=because, hint="--config=FILE") from None
    except (yaml.YAMLError, ValueError) as error:
        because = " ".join(str(error).split())
        raise ConfigError(f"{path} is not YAML", because=because, hint=_FORM) from None
    if root is not None and root.id != "mapping":
        because = f"it is a {root.id}, not a mapping"
        raise ConfigError(f"{path} holds no options", because=because, hint=_FORM)
    return [] if root is None else list(root.value)


def _read(path: str) -> str:
    with Path(path).open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError("it is larger than 1 MiB")
    return content.decode("utf-8-sig")


def _texts(value: Any) -> tuple[str, ...]:
    if value.id == "mapping":
        return (json.dumps(_plain(value, depth=0)),)
    nodes = value.value if value.id == "sequence" else [value]
    if (other := next((node.id for node in nodes if node.id != "scalar"), None)) is not None:
        raise ValueError(f"its list holds a {other}")
    return tuple(str(node.value) for node in nodes if node.tag != _NULL)


def _plain(node: Any, *, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise ValueError(f"it nests deeper than {_MAX_DEPTH}")
    if node.id == "mapping":
        return {str(key.value): _plain(value, depth=depth + 1) for key, value in node.value}
    if node.id == "sequence":
        return [_plain(value, depth=depth + 1) for value in node.value]
    return node.value


def _several(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for line in value.splitlines() for part in line.split(";") if part.strip())


def _misspelled(environ: Mapping[str, str]) -> tuple[str, ...]:
    """A note for every FAULTRUN_ variable that is nearly, but not quite, an option."""
    if INSIDE_WORKER in environ:
        return ()
    notes = []
    for variable in sorted(environ):
        name = variable.removeprefix("FAULTRUN_").lower()
        if not variable.startswith("FAULTRUN_") or name in OPTIONS or variable in _NO_OPTIONS:
            continue
        if (match := likely(name, list(OPTIONS), cutoff=0.8)) is not None:
            notes.append(f"{variable} has no effect here: did you mean {OPTIONS[match].variable}?")
    return tuple(notes)
