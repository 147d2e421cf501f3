"""Whether a program asks where to resume: it names our variables, or uses the SDK. Nothing of it is run."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from faultrun.frameworks.detect import Unreadable, local_modules, read_imports
from faultrun.frameworks.wrapped import source_files

_ASKS = re.compile(rb"FAULTRUN_RESUME|RESTORE_RANKS|(?m:^\s*(from|import)\b[^#\n]*\bfaultrun\b)")
_CODE = re.compile(r"-\w*c")
_MOST_BYTES = 4 << 20
_MOST_FILES = 128
_DEEPEST = 3


def asks(words: Sequence[str], source: Path | None, search: Sequence[Path]) -> bool | None:
    """Look through the files that ``words`` run, and their local modules; None where no Python is found."""
    code = [after for word, after in pairwise(words) if _CODE.fullmatch(word)]
    if any(_ASKS.search(text.encode(errors="replace")) for text in code):
        return True
    files = dict.fromkeys((*([source] if source is not None else []), *source_files(words)))
    looked = list(_with_modules(list(files), search, set(), _DEEPEST))
    if any(_ASKS.search(_text(file)) for file in looked):
        return True
    return False if any(file.suffix == ".py" for file in looked) else None


def _with_modules(
    files: Sequence[Path], search: Sequence[Path], seen: set[Path], depth: int
) -> Iterator[Path]:
    for file in files:
        if file in seen or len(seen) >= _MOST_FILES:
            continue
        seen.add(file)
        yield file
        if file.suffix != ".py" or depth == 0:
            continue
        try:
            names = read_imports(file)
        except Unreadable:
            continue
        modules = list(local_modules(names, file, search or (file.parent,)))
        yield from _with_modules(modules, search, seen, depth - 1)


def _text(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_BYTES)
    except OSError:
        return b""
