"""A key that an edit adds to a file: most are meant, some are misspelt, and no script would notice."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from faultrun.files import bytes_from
from faultrun.model.edit import EditResult

_MAX_BYTES = 1 << 20
_NEARLY = 0.86
"""``pre_trainde`` is nearly ``pre_trained``, ``has_trained_step`` is no ``has_trained_epoch``."""
_NAMES = re.compile(r"([A-Za-z_][\w-]*)[\"']?[ \t]*[:=]")
_LAST_PART = re.compile(r"[\w-]+(?=[^\w-]*\Z)")


def doubtful_keys(results: Iterable[EditResult]) -> list[str]:
    """A line for every key that is added beside one of nearly the same name."""
    lines = []
    for result in results:
        for change in result.changes:
            near = _nearly(result.file, change.key) if change.before is None else ""
            if near:
                lines.append(f"{change.key} is a new key in {result.file}; did you mean {near}?")
    return lines


def _nearly(file: str, key: str) -> str:
    last = _LAST_PART.search(key)
    text = bytes_from(Path(file), 0, _MAX_BYTES).decode("utf-8", "replace")
    known = [name for name in _NAMES.findall(text) if last is None or name != last[0]]
    return next(iter(get_close_matches(last[0], known, n=1, cutoff=_NEARLY)), "") if last else ""
