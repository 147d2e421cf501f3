"""What ``--bind_core`` and ``--bind_numa`` ask for, in msrun's grammars.

``True`` and ``False``, a JSON object ``{"device0": ["0-3"], "scheduler": ["4,5"]}``, and for ``--bind_numa``
a JSON file (or object) of the newer form ``{"bind_config": {"bind_cpu_mode": ..., "bind_memory_mode": ...},
"bind_cpu": {...}, "bind_memory": {...}}``. Source: mindspore/parallel/cluster/run.py of MindSpore 2.10.

Every reader raises ``ValueError`` with the reason.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_OWNER = re.compile(r"device_?(\d{1,6})|scheduler")
_NEW_FORM = frozenset({"bind_config", "bind_cpu", "bind_memory"})
_OBJECT = '{"device0":["0-3"]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
    """No binding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """Share out what the machine has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers by owner: the physical device, or None for the scheduler."""

    numbers: Mapping[int | None, tuple[int, ...]]


class CpuMode(Enum):
    """How a bind file ties processors: by number, by NUMA node, or not at all."""

    CPU = "cpu"
    NUMA = "numa"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class BindFile:
    """msrun's newer form. ``path`` is empty for an object on the command line.

    MindSpore reads the file again in every worker, to tie its threads; ``sha256``
    (hex) lets it notice a change.
    """

    cpu_mode: CpuMode
    cpus: Table
    memory: Table
    path: str = ""
    sha256: str = ""


Wish = Off | Auto | Table | BindFile


def read_bind_core(text: str) -> Off | Auto | Table:
    """The value of ``--bind_core``."""
    word = _word(text)
    if word is not None:
        return word
    content = _parsed(text)
    if _NEW_FORM & content.keys():
        raise ValueError("a bind file's form belongs to --bind_numa")
    return _table(content)


def read_bind_numa(text: str) -> Wish:
    """The value of ``--bind_numa``; reads the file if it names one."""
    word = _word(text)
    if word is not None:
        return word
    path = Path(text)
    if not text.lower().endswith(".json") and not (len(text) < 4096 and path.is_file()):
        content = _parsed(text)
        return _bind_file(content, path="", raw="") if "bind_config" in content else _table(content)
    try:
        raw = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{text}: {error.strerror}") from None
    content = _parsed(raw)
    if "bind_config" not in content and not _NEW_FORM & content.keys():
        return _table(content)
    return _bind_file(content, path=str(path.absolute()), raw=raw)


def expand(text: str) -> tuple[int, ...]:
    """``0-2,5`` as (0, 1, 2, 5): the kernel's list format, ascending and without repeats."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = _SPAN.fullmatch("".join(part.split()))
        if match is None:
            raise ValueError(f"{text!r} is not a list such as 0-3 or 0,2")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{text!r} runs backwards")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def _word(text: str) -> Off | Auto | None:
    match text.strip().lower():
        case "true":
            return Auto()
        case "false":
            return Off()
        case _:
            return None


def _parsed(text: str) -> dict[str, object]:
    try:
        content = json.loads(text)
    except ValueError:
        raise ValueError(f"it is neither True nor False nor JSON such as {_OBJECT}") from None
    match content:
        case dict():
            return content
        case _:
            raise ValueError(f"it is not a JSON object such as {_OBJECT}")


def _table(content: Mapping[str, object]) -> Table:
    numbers: dict[int | None, tuple[int, ...]] = {}
    for owner, listed in content.items():
        if not isinstance(listed, list) or not all(isinstance(part, str) for part in listed):
            raise ValueError(f'{owner} needs a list of texts such as ["0-3"]')
        numbers[_owner(owner)] = expand(",".join(listed)) if listed else ()
    return Table(numbers=numbers)


def _bind_file(content: Mapping[str, object], *, path: str, raw: str) -> BindFile:
    modes = _object(content, "bind_config")
    cpu_mode = _mode(modes, "bind_cpu_mode", ("cpu", "numa", "none"))
    memory_mode = _mode(modes, "bind_memory_mode", ("numa", "none"))
    cpus = _object(content, "bind_cpu") if cpu_mode != "none" else {}
    memory = _object(content, "bind_memory") if memory_mode != "none" else {}
    return BindFile(
        cpu_mode=CpuMode(cpu_mode),
        cpus=_cpu_table(cpus) if cpu_mode == "cpu" else _node_table(cpus),
        memory=_node_table(memory),
        path=path,
        sha256=hashlib.sha256(raw.encode("utf-8")).hexdigest() if path else "",
    )


def _cpu_table(content: Mapping[str, object]) -> Table:
    """``{"device0": {"main": "0-3", ...}}``; only ``main`` is the process's, the rest are threads'."""
    numbers: dict[int | None, tuple[int, ...]] = {}
    for owner, modules in content.items():
        match modules:
            case None:
                continue
            case {"main": str(main) | int(main)} if main != "":
                numbers[_owner(owner)] = expand(str(main))
            case dict():
                numbers[_owner(owner)] = ()
            case _:
                raise ValueError(f'bind_cpu: {owner} needs an object such as {{"main": "0-3"}}')
    return Table(numbers=numbers)


def _node_table(content: Mapping[str, object]) -> Table:
    """``{"device0": 0}`` or ``{"device0": "0-1"}``."""
    numbers: dict[int | None, tuple[int, ...]] = {}
    for owner, nodes in content.items():
        match nodes:
            case None:
                continue
            case int() | str() if not isinstance(nodes, bool):
                numbers[_owner(owner)] = expand(str(nodes))
            case _:
                raise ValueError(f"{owner} needs a NUMA node such as 0 or a text such as 0-1")
    return Table(numbers=numbers)


def _mode(modes: Mapping[str, object], key: str, known: tuple[str, ...]) -> str:
    mode = str(modes.get(key, "none")).lower()
    if mode not in known:
        raise ValueError(f"{key} is {mode!r}, not one of {', '.join(known)}")
    return mode


def _object(content: Mapping[str, object], key: str) -> Mapping[str, object]:
    match content.get(key, {}):
        case dict() as found:
            return found
        case _:
            raise ValueError(f"{key} is not a JSON object")


def _owner(key: str) -> int | None:
    match = _OWNER.fullmatch(key)
    if match is None:
        raise ValueError(f"{key!r} is neither deviceN nor scheduler")
    return int(match[1]) if match[1] else None
