"""Files that a platform writes for us, read as if an enemy had written them.

Bounded in size, depth and the length of numbers; a key that comes twice is an
error, because writers and readers would disagree on which counts. Nothing is
ever evaluated. A document that is cut off anywhere is never a shorter one.
"""

import ast
import json
import os
import re
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path

_DIGITS, _DEPTH = 18, 24
_LITERAL_CHARS = 1 << 16
_LONG_NUMBER = re.compile(r"[\d_]{19}")


class Unfinished(ValueError):
    """It may be half written, or not written yet: looking again later can help."""


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return what ``path`` holds now; OSError if it cannot be read.

    ValueError for anything but a regular file (a pipe would hold us up for
    ever) and for one of more than ``most_bytes``.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is not a regular file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes >> 20} MiB")
    return content


def json_document(content: bytes) -> object:
    """``content`` as JSON (UTF-8, a byte order mark is allowed). Unfinished or ValueError with the reason."""
    text = _text(content)
    _check_depth(text)
    try:
        return json.loads(
            text, parse_int=_short_int, parse_constant=_no_constant, object_pairs_hook=_unambiguous
        )
    except json.JSONDecodeError as error:
        raise Unfinished(f"it is not JSON ({error})") from None


def json_object(content: bytes) -> Mapping[str, object]:
    """``content`` as a JSON object; raises as ``json_document`` does."""
    match json_document(content):
        case dict() as found:
            return found
        case _:
            raise ValueError("it is not a JSON object")


def loose_document(content: bytes) -> object:
    """``content`` as JSON, else as a Python literal: readers of the 2022 scripts write ``repr`` back."""
    try:
        return json_document(content)
    except Unfinished as error:
        if (found := python_literal(_text(content))) is None:
            raise error from None
        return found


def python_literal(text: str) -> object:
    """The literal that ``text`` is, None when it is none. Names, calls and operators are not literals."""
    if len(text) > _LITERAL_CHARS or _LONG_NUMBER.search(text) or "\0" in text:
        return None
    _check_depth(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a user's file is not our user's business
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unfinished(f"it is not UTF-8 (byte {error.start})") from None


def _check_depth(text: str) -> None:
    """Deep nesting exhausts a parser's stack. Brackets inside texts count too; a platform writes none."""
    if sum(map(text.count, "[({")) <= _DEPTH:
        return
    depth = 0
    for char in re.findall(r"[\[({})\]]", text):
        depth += 1 if char in "[({" else -1
        if depth > _DEPTH:
            raise ValueError(f"it is nested more than {_DEPTH} deep")


def _short_int(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"it holds a number of {len(digits)} digits")
    return int(digits)


def _no_constant(name: str) -> object:
    raise ValueError(f"it holds {name}, which is not JSON")


def _unambiguous(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f'it says "{name[:40]}" twice')
        found[name] = value
    return found
