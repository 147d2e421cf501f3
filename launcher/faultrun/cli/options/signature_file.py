"""``--signatures FILE``: the user's own rows of the table of known failures.

A YAML (or JSON) list of mappings; ``name``, ``class`` and ``pattern`` must be
there, ``says``, ``hint`` and ``source`` may be. ``pattern`` is a Python
regular expression, searched in ``ExceptionName: message`` and in single log lines.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faultrun.errors import ConfigError
from faultrun.model.observed.evidence import FaultClass, Row

_NEEDED = ("name", "class", "pattern")
_KEYS = frozenset({*_NEEDED, "says", "hint", "source"})
_CLASSES = [one.value for one in FaultClass]
_EXAMPLE = (
    "- {name: flaky-fs, class: transient, pattern: 'lustre.*evicted', says: 'the file system threw us out'}"
)


def signature_rows(name: str) -> tuple[Row, ...]:
    """The rows of the file ``name``. ConfigError: it cannot be read, or a row is not one."""
    import yaml

    try:
        return tuple(_rows(name, yaml.safe_load(Path(name).read_text(encoding="utf-8"))))
    except yaml.YAMLError as error:
        because = f"it is not YAML: {str(error).splitlines()[0]}"
    except (OSError, ValueError) as error:
        because = str(error)
    raise ConfigError(f"the signatures in {name} cannot be used", because=because, hint=_EXAMPLE)


def _rows(file: str, content: object) -> Iterator[Row]:
    if not isinstance(content, list):
        raise ValueError("it is not a list of rows")  # noqa: TRY004  of the file, not of a type of ours
    yield from (_row(file, number, item) for number, item in enumerate(content, start=1))


def _row(file: str, number: int, item: Any) -> Row:
    if not isinstance(item, dict) or not all(isinstance(value, str) for value in item.values()):
        raise ValueError(f"row {number} is not a mapping of texts")
    if unknown := sorted(str(key) for key in item.keys() - _KEYS):
        raise ValueError(f"row {number} has unknown keys: {', '.join(unknown)}")
    if missing := [key for key in _NEEDED if not item.get(key)]:
        raise ValueError(f"row {number} lacks {', '.join(missing)}")
    if item["class"] not in _CLASSES:
        raise ValueError(f"row {number}: class {item['class']!r} is none of {', '.join(_CLASSES)}")
    try:
        return Row(
            name=item["name"],
            fault_class=FaultClass(item["class"]),
            pattern=item["pattern"],
            says=item.get("says") or item["name"],
            source=item.get("source") or file,
            hint=item.get("hint") or "",
        )
    except ValueError as error:
        raise ValueError(f"row {number}: {error}") from None
