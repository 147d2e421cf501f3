"""The keys of the configuration files that a script reads: their values, and where they stand."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from faultrun.configs.editors.edited import NoParent
from faultrun.configs.editors.registry import edit
from faultrun.configs.files import snapshot
from faultrun.errors import ConfigError
from faultrun.text.patch import MalformedText
from faultrun.text.yaml_reader import read
from faultrun.text.yaml_tree import MappingNode, Node, ScalarNode

_ENDINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
_SAMPLE = "x"
_DEEPEST = 6
_NOTHING = frozenset({"", "null", "~", "None", "''", '""'})


def is_config(name: str) -> bool:
    """Whether a file's name says that it holds settings."""
    return name.lower().endswith(_ENDINGS)


def look_up_in(
    files: Sequence[Path], show: Callable[[Path], str]
) -> Callable[[str], tuple[str, str, str] | None]:
    """A function that finds a key in the first of ``files`` that has it: value, file, file:line.

    Only plain values are found, where the editor of --rewrite could set them.
    """
    known: dict[str, tuple[str, str, str] | None] = {}

    def look_up(key: str) -> tuple[str, str, str] | None:
        if key not in known:
            known[key] = next(filter(None, (_value(file, key, show) for file in files)), None)
        return known[key]

    return look_up


def look_below(files: Sequence[Path]) -> Callable[[str], str | None]:
    """A function that finds the one key of the YAML files that ends in a name; None for none or several."""
    paths = [path for file in files for path in _paths(file)]

    def look_up(name: str) -> str | None:
        found = [path for path in paths if path.rpartition(".")[2] == name]
        return found[0] if len(found) == 1 else None

    return look_up


def _paths(file: Path) -> Iterator[str]:
    """The dotted keys of a YAML file's first document that lead to plain values."""
    if file.suffix not in (".yaml", ".yml"):
        return
    try:
        roots = read(snapshot(file).data.decode("utf-8-sig")).roots
    except (MalformedText, ConfigError, OSError, UnicodeDecodeError):
        return
    waiting: list[tuple[str, Node, int]] = [("", root, 0) for root in roots[:1]]
    while waiting:
        path, node, depth = waiting.pop()
        if isinstance(node, ScalarNode):
            yield path
        elif isinstance(node, MappingNode) and depth < _DEEPEST:
            waiting += [(f"{path}.{key.value}".lstrip("."), value, depth + 1) for key, value in node.entries]


def _value(file: Path, key: str, show: Callable[[Path], str]) -> tuple[str, str, str] | None:
    with suppress(ConfigError, NoParent, OSError):
        change = edit(str(file), snapshot(file).data, key, _SAMPLE).change
        if change.before is None:
            return None
        text = change.before.strip()
        if text[:1] in "{[|>&*" and text:
            return None
        plain = "" if text in _NOTHING else text.strip("\"'")
        return plain, show(file), f"{show(file)}:{change.line}"
    return None
