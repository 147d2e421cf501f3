"""The words a person types: ``FILE:KEY[=TEMPLATE]``, and the path of a value inside a file.

``KEY`` is names joined by dots with positions in brackets, ``model.heads[0].ckpt``.
A name that itself holds a dot, a bracket or ``=`` is quoted: ``"a.b".c`` or ``["a.b"].c``.
``1#KEY`` means the second document of a YAML stream; counting starts at 0, as in brackets.

``FILE`` may hold colons: the last colon that leaves the name of an existing file decides.
``yaml:FILE:KEY`` names the format of a file whose own name does not tell it.
"""

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from faultrun.errors import ConfigError
from faultrun.files import bytes_from
from faultrun.model.edit import EditResult, Key
from faultrun.model.spec.run_spec import Rewrite

_DOCUMENT = re.compile(r"([0-9]{1,9})#")
_POSITION = re.compile(r"\[([0-9]{1,9})\]")
_QUOTED = re.compile(r"""\[?(?:"(?P<d>(?:[^"\\]|\\.)*)"|'(?P<s>(?:[^'\\]|\\.)*)')\]?""", re.DOTALL)
_NAME = re.compile(r"""[^.\[\]="']+""")
_HINT = 'write it like pre_trained, model.path, heads[0].ckpt or "name.with.dots".path'


_MAX_BYTES = 1 << 20
_NEARLY = 0.86
"""``pre_trainde`` is nearly ``pre_trained``, ``has_trained_step`` is no ``has_trained_epoch``."""
_NAMES = re.compile(r"([A-Za-z_][\w-]*)[\"']?[ \t]*[:=]")
_LAST_PART = re.compile(r"[\w-]+(?=[^\w-]*\Z)")


def parse_key(text: str) -> Key:
    """Read a whole KEY. ConfigError if it is empty or malformed."""
    key, rest = _take_key(text)
    if rest:
        raise _malformed(text, f"{rest!r} is not part of a key")
    return key


def parse_rewrite(text: str, exists: Callable[[str], bool], formats: Collection[str]) -> Rewrite:
    """Read ``[FORMAT:]FILE:KEY[=TEMPLATE]``. ConfigError if it has no KEY or names no existing file.

    ``exists`` says whether a path is there (a directory counts: it is refused
    later, with a better reason); ``formats`` are the names FORMAT may have.
    """
    head, colon, tail = text.partition(":")
    named = bool(colon) and head in formats and ":" in tail and not exists(head)
    file, rest = _split_file(tail if named else text, exists)
    key, assignment = _take_key(rest)
    if not assignment:
        return Rewrite(file=file, key=key.text, format=head if named else "")
    if not assignment.startswith("="):
        raise _malformed(rest, f"{assignment!r} is not part of a key")
    return Rewrite(file=file, key=key.text, template=assignment[1:], format=head if named else "")


def not_there(file: object) -> ConfigError:
    """Refuse a file that does not exist."""
    hint = "check the path; it is taken relative to the current directory"
    return ConfigError(f"{file} is not there", because="values are put into files that exist", hint=hint)


def _split_file(text: str, exists: Callable[[str], bool]) -> tuple[str, str]:
    colons = [match.start() for match in re.finditer(":", text)]
    for at in reversed(colons):
        if at and exists(text[:at]):
            return text[:at], text[at + 1 :]
    if not colons or not colons[0]:
        because = "the form is FILE:KEY, or FILE:KEY=TEMPLATE"
        hint = "for example train.yaml:pre_trained"
        raise ConfigError(f"{text!r} does not say what to set", because=because, hint=hint)
    raise not_there(text[: colons[0]])


def _take_key(text: str) -> tuple[Key, str]:
    """Read a key from the start of ``text``; also return what follows it."""
    document = _DOCUMENT.match(text)
    position = document.end() if document else 0
    steps: list[str | int] = []
    while True:
        step, position = _take_step(text, position, first=not steps)
        steps.append(step)
        if text[position : position + 1] == ".":
            position += 1
        elif text[position : position + 1] != "[":
            break
    shown = text[:position]
    number = int(document.group(1)) if document else 0
    return Key(steps=tuple(steps), text=shown, document=number), text[position:]


def _take_step(text: str, position: int, *, first: bool) -> tuple[str | int, int]:
    if index := _POSITION.match(text, position):
        return int(index.group(1)), index.end()
    if quoted := _QUOTED.match(text, position):
        bracketed = quoted.group().startswith("[")
        if bracketed == quoted.group().endswith("]"):
            inner = quoted.group("d") if quoted.group("d") is not None else quoted.group("s")
            return re.sub(r"\\(.)", r"\1", inner, flags=re.DOTALL), quoted.end()
    if name := _NAME.match(text, position):
        return name.group(), name.end()
    raise _malformed(
        text, "it is empty" if first and not text else f"a name is missing at {text[position:]!r}"
    )


def _malformed(text: str, because: str) -> ConfigError:
    return ConfigError(f"{text!r} is not a key", because=because, hint=_HINT)


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
    from difflib import get_close_matches  # noqa: PLC0415  for a new key only

    last = _LAST_PART.search(key)
    text = bytes_from(Path(file), 0, _MAX_BYTES).decode("utf-8", "replace")
    known = [name for name in _NAMES.findall(text) if last is None or name != last[0]]
    return next(iter(get_close_matches(last[0], known, n=1, cutoff=_NEARLY)), "") if last else ""
