"""The ``--config`` file: a YAML mapping from option names to values, read as it is written.

Scalars stay the texts of the file (``run_id: 2024-01-01`` is no date), and every key keeps its line.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.errors import ConfigError

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 4
_NULL = "tag:yaml.org,2002:null"
_FORM = "one `option: value` per line, such as `worker_num: 4`"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One key of the file. ``line`` counts from 1; ``texts`` is empty for null.

    ``shape`` is YAML's: scalar, sequence or mapping; a mapping's one text is JSON.
    """

    key: str
    line: int
    texts: tuple[str, ...]
    shape: str


def read_config(path: str) -> Iterator[ConfigEntry]:
    """Read the file; ConfigError if it cannot be read, is no YAML or is no mapping."""
    import yaml

    try:
        root: Any = yaml.compose(_read(path), Loader=yaml.SafeLoader)
    except OSError as error:
        what, because = f"cannot read the config file {path}", error.strerror or str(error)
        raise ConfigError(what, because=because, hint="--config=FILE") from None
    except (yaml.YAMLError, ValueError) as error:
        because = " ".join(str(error).split())
        raise ConfigError(f"{path} is not YAML", because=because, hint=_FORM) from None
    if root is None:
        return
    if root.id != "mapping":
        because = f"it is a {root.id}, not a mapping"
        raise ConfigError(f"{path} holds no options", because=because, hint=_FORM)
    for key, value in root.value:
        line = key.start_mark.line + 1
        if key.id != "scalar":
            because = f"its key is a {key.id}"
            raise ConfigError(f"{path}:{line} holds no option", because=because, hint=_FORM)
        try:
            yield ConfigEntry(key=key.value, line=line, texts=_texts(value), shape=value.id)
        except ValueError as error:
            raise ConfigError(f"{path}:{line} cannot be used", because=str(error), hint=_FORM) from None


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
    other = next((node.id for node in nodes if node.id != "scalar"), None)
    if other is not None:
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
