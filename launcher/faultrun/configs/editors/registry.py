"""Which editor a file gets, and the one call all of them answer: bytes in, bytes out.

An editor is loaded when a file of its kind is edited: the supervisor's memory is
not to pay for formats that a run does not use.
"""

import io
import tokenize
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import combinations
from pathlib import PurePath

from faultrun.configs.editors.edited import Edited, EditRefused, NoParent
from faultrun.configs.target import parse_key
from faultrun.errors import ConfigError
from faultrun.model.edit import Change, Key, Scalar
from faultrun.text.patch import MalformedText

FORMATS = ("yaml", "json", "toml", "ini", "env", "shell", "python")
"""Names a user may put before a file, ``yaml:FILE:KEY``; the module NAME_edit edits it."""

_ENDINGS = {".yml": "yaml", ".cfg": "ini", ".conf": "ini", ".sh": "shell", ".bash": "shell", ".py": "python"}
_ENDINGS |= {f".{name}": name for name in ("yaml", "json", "toml", "ini", "env")}
_MENDED = {"yaml": "make it YAML that PyYAML reads", "shell": "check it: bash -n FILE"}
_BOM = "\ufeff"
_MOST_STEPS = 7
_Edits = Callable[[str, Key, Scalar], Edited]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A file's bytes after one edit, and what the edit was."""

    data: bytes
    change: Change


def format_of(file: str, named: str = "") -> str:
    """Name of the format of ``file``: ``named`` if given, else by its name. ConfigError if unknown."""
    path = PurePath(file)
    is_env = path.name == ".env" or path.name.startswith(".env.")
    found = named or ("env" if is_env else _ENDINGS.get(path.suffix.lower(), ""))
    if found in FORMATS:
        return found
    because = f"there is no format {named!r}" if named else "the end of its name does not tell its format"
    hint = f"write FORMAT:{file}:KEY with one of {', '.join(FORMATS)}"
    raise ConfigError(f"{file} is in no format that can be edited", because=because, hint=hint)


def edit(file: str, data: bytes, key: str, value: Scalar, *, format: str = "") -> Edit:  # noqa: A002 - the user's word
    """Set ``key`` to ``value`` in the bytes of ``file``; nothing is read or written.

    Parses before and after; ConfigError, naming the reason, if the result
    would differ in anything but that value, or the edit makes no sense.
    """
    name = format_of(file, format)
    path = parse_key(key)
    editor: _Edits = import_module(f"faultrun.configs.editors.{name}_edit").edit
    cause: Exception
    try:
        _writable(value)
        return _edited(editor, name, data, path, value)
    except EditRefused as refused:
        cause, because, hint = refused, refused.because, refused.hint
    except MalformedText as malformed:
        cause, because = malformed, f"line {malformed.line}: {malformed.because}"
        hint = _MENDED[name]
    except RecursionError as error:
        cause, because, hint = error, "it is nested too deeply", "set it in a flatter file"
    raise ConfigError(f"cannot set {key} in {file}", because=because, hint=hint) from cause


def _edited(editor: _Edits, name: str, data: bytes, key: Key, value: Scalar) -> Edit:
    encoding = _encoding(name, data)
    text = _decoded(data, encoding)
    bom = _BOM if text.startswith(_BOM) else ""
    done = _found(editor, text[len(bom) :], key, value)
    change = Change(key=key.text, line=done.line, before=done.before, after=done.after)
    try:
        return Edit(data=(bom + done.text).encode(encoding), change=change)
    except UnicodeEncodeError as error:
        hint = "convert the file to UTF-8"
        raise EditRefused(f"the value cannot be written in {encoding}", hint=hint) from error


def _found(editor: _Edits, text: str, key: Key, value: Scalar) -> Edited:
    """The edit of the value that ``key`` names; of one whose name holds the dots, if there is no other."""
    missing: Edited | EditRefused
    try:
        missing = editor(text, key, value)
        if missing.before is not None:
            return missing
    except NoParent as refused:
        missing = refused
    there: list[Edited] = []
    for steps in _with_dots(key.steps):
        with suppress(EditRefused):
            there.append(editor(text, replace(key, steps=steps), value))
    found = [done for done in there if done.before is not None]
    if len(found) == 1:
        return found[0]
    if isinstance(missing, EditRefused):
        raise missing
    return missing


def _with_dots(steps: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Yield ``steps`` with some neighbours joined by dots, for a name that itself holds dots."""
    for count in range(1, len(steps)):
        for joints in combinations(range(1, min(len(steps), _MOST_STEPS)), count):
            joined: list[str | int] = [steps[0]]
            for at, step in enumerate(steps[1:], start=1):
                last = joined[-1]
                if at in joints and isinstance(last, str) and isinstance(step, str):
                    joined[-1] = f"{last}.{step}"
                else:
                    joined.append(step)
            if len(joined) == len(steps) - count:
                yield tuple(joined)


def _encoding(name: str, data: bytes) -> str:
    """UTF-8, or what a Python file declares in its first two lines (PEP 263)."""
    if name != "python":
        return "utf-8"
    try:
        declared, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        raise EditRefused(str(error), hint="correct the coding line at the top of the file") from error
    return "utf-8" if declared == "utf-8-sig" else declared


def _decoded(data: bytes, encoding: str) -> str:
    if b"\0" in data:
        hint = "name the configuration file, not a binary"
        raise EditRefused("it is not a text file (it holds a zero byte)", hint=hint)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        hint = f"convert the file to {encoding}"
        raise EditRefused(f"line {line} is not {encoding} text", hint=hint) from error


def _writable(value: Scalar) -> None:
    try:
        str(value).encode()
    except UnicodeEncodeError as error:
        hint = "use a path whose name is valid UTF-8"
        raise EditRefused("the value is not UTF-8 text", hint=hint) from error
