"""``--signatures FILE``: the user's own rows of the table of known failures.

A YAML (or JSON) list of mappings; ``name``, ``class`` and ``pattern`` must be
there, ``says``, ``hint`` and ``source`` may be. ``pattern`` is a Python
regular expression, searched in ``ExceptionName: message`` and in single log lines.
"""

from pathlib import Path
from typing import Any

from faultrun.errors import ConfigError
from faultrun.model.evidence import FaultClass
from faultrun.model.signature import Row

_KEYS = frozenset({"name", "class", "pattern", "says", "hint", "source"})
_CLASSES = {one.value: one for one in FaultClass}
_EXAMPLE = (
    "- {name: flaky-fs, class: transient, pattern: 'lustre.*evicted', says: 'the file system threw us out'}"
)


def signature_rows(name: str) -> tuple[Row, ...]:
    """The rows of the file ``name``. ConfigError: it cannot be read, or a row is not one."""
    import yaml

    try:
        content = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(name, str(error)) from None
    except yaml.YAMLError as error:
        raise _refused(name, f"it is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(content, list):
        raise _refused(name, "it is not a list of rows")
    return tuple(_row(name, number, item) for number, item in enumerate(content, start=1))


def _row(name: str, number: int, item: Any) -> Row:
    if not isinstance(item, dict) or not all(isinstance(value, str) for value in item.values()):
        raise _refused(name, f"row {number} is not a mapping of texts")
    unknown = sorted(str(key) for key in item.keys() - _KEYS)
    if unknown:
        raise _refused(name, f"row {number} has unknown keys: {', '.join(unknown)}")
    missing = [key for key in ("name", "class", "pattern") if not item.get(key)]
    if missing:
        raise _refused(name, f"row {number} lacks {', '.join(missing)}")
    if item["class"] not in _CLASSES:
        raise _refused(name, f"row {number}: class {item['class']!r} is none of {', '.join(_CLASSES)}")
    try:
        return Row(
            name=item["name"],
            fault_class=_CLASSES[item["class"]],
            pattern=item["pattern"],
            says=item.get("says") or item["name"],
            source=item.get("source") or name,
            hint=item.get("hint") or "",
        )
    except ValueError as error:
        raise _refused(name, f"row {number}: {error}") from None


def _refused(name: str, why: str) -> ConfigError:
    return ConfigError(f"the signatures in {name} cannot be used", because=why, hint=_EXAMPLE)
