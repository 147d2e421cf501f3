"""The ``--config`` file: a YAML mapping from option names to values, read as it is written.

Scalars stay the texts of the file (``run_id: 2024-01-01`` is no date), and every key keeps its line.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faultrun.errors import ConfigError

if TYPE_CHECKING:
    import yaml

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 4
_NULL = "tag:yaml.org,2002:null"
_FORM = "one `option: value` per line, such as `worker_num: 4`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key of the file. ``line`` counts from 1; ``texts`` is empty for null.

    ``shape`` is YAML's: scalar, sequence or mapping; a mapping's one text is JSON.
    """

    key: str
    line: int
    texts: tuple[str, ...]
    shape: str


def read_config(path: str) -> tuple[Entry, ...]:
    """Read the file; ConfigError if it cannot be read, is no YAML or is no mapping."""
    import yaml

    try:
        content = _read(path)
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(
            f"cannot read the config file {path}", because=error.strerror or str(error), hint="--config=FILE"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{path} is not YAML", because=_one_line(error), hint=_FORM) from None
    if root is None:
        return ()
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            f"{path} holds no options", because=f"it is a {_shape(root)}, not a mapping", hint=_FORM
        )
    return tuple(_entries(path, root))


def _read(path: str) -> str:
    with Path(path).open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError("it is larger than 1 MiB")
    return content.decode("utf-8-sig")


def _entries(path: str, root: "yaml.MappingNode") -> Iterator[Entry]:
    for key, value in root.value:
        line = key.start_mark.line + 1
        where = f"{path}:{line}"
        if _shape(key) != "scalar":
            raise ConfigError(f"{where} holds no option", because=f"its key is a {_shape(key)}", hint=_FORM)
        yield Entry(key=key.value, line=line, texts=tuple(_texts(where, value)), shape=_shape(value))


def _texts(where: str, value: "yaml.Node") -> Iterator[str]:
    if _shape(value) == "mapping":
        yield json.dumps(_plain(where, value, depth=0))
        return
    for node in value.value if _shape(value) == "sequence" else [value]:
        if _shape(node) != "scalar":
            raise ConfigError(
                f"{where} cannot be used", because=f"its list holds a {_shape(node)}", hint=_FORM
            )
        if node.tag != _NULL:
            yield str(node.value)


def _plain(where: str, node: "yaml.Node", *, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise ConfigError(f"{where} cannot be used", because=f"it nests deeper than {_MAX_DEPTH}", hint=_FORM)
    match _shape(node):
        case "mapping":
            return {str(key.value): _plain(where, value, depth=depth + 1) for key, value in node.value}
        case "sequence":
            return [_plain(where, value, depth=depth + 1) for value in node.value]
        case _:
            return node.value


def _shape(node: "yaml.Node") -> str:
    """YAML's own word for the kind of a node: scalar, sequence or mapping."""
    return str(getattr(node, "id", "node"))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
