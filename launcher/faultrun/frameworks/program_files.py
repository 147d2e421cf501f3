"""Which Python files a wrapper would run, read from its words and from the text of shell scripts.

A guess that serves to tell the framework, and whether the program asks where to resume (it names our
variables, or uses the SDK). Nothing is run, and what variables make of a path is not worked out: a file of
that name near the script, or in a folder that it enters, is taken.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from faultrun.files import bytes_from
from faultrun.frameworks.detect import UnreadableSource, local_modules, read_imports

_MOST_FILES, _MOST_LOOKED_AT = 64, 128
_MAX_BYTES = 4 << 20
_DEEPEST = 3
_SHELL_SCRIPT = re.compile(rb"#!\s*\S*/(env\s+(-S\s+)?)?(ba|da|z|k|a)?sh\b")
_COMMENT = re.compile(r"(?m)(^|\s)#.*$")
_NAMED = re.compile(r"[^\s'\"=;|&()<>`]+\.(?:py|sh)(?=$|[\s'\";|&()<>`:])")
_MODULE = re.compile(r"\s-m\s+([A-Za-z_][\w.]*)")
_ENTERED = re.compile(r"\bcd\s+([^;&|\n]+)")
_UNKNOWN = re.compile(r"^[\"']*(\$\([^)]*\)|\$\{[^}]*\}|\$\w+|`[^`]*`)[\"']*/?")
_PYTEST = frozenset({"pytest", "py.test"})
_ENDS = (".py", "/__main__.py")
_TESTS = ("test_*.py", "*_test.py")
_ASKS = re.compile(rb"FAULTRUN_RESUME|RESTORE_RANKS|(?m:^\s*(from|import)\b[^#\n]*\bfaultrun\b)")
_RESUMES = re.compile(rb"\bresume\(")
_VARIABLES = re.compile(rb"FAULTRUN_RESUME|RESTORE_RANKS")
_PARSER = re.compile(rb"\.parse_args\(")
_OPEN = re.compile(
    rb"parse_known_args|\bargv\b|HfArgumentParser|TrlParser|CLI\(|Fire\(|REMAINDER|parents=|\w\([^()]*\bparser\b(?!\.)"
    rb"|\b(hydra|omegaconf|click|typer|tyro|absl|jsonargparse|simple_parsing)\b"
)
"""Options may come from elsewhere: other libraries', the words as they are, a parser that is given away."""
_CODE = re.compile(r"-\w*c")


def source_files(words: Sequence[str]) -> tuple[Path, ...]:
    """The files of Python and of shells that the command ``words`` runs, as far as is seen; at most 64."""
    return tuple(dict.fromkeys(islice(_files(words), _MOST_FILES)))


def program_sources(words: Sequence[str], source: Path | None, search: Sequence[Path]) -> tuple[Path, ...]:
    """The files that ``words`` run, ``source`` first, each before the local modules that it imports."""
    files = dict.fromkeys((*([source] if source is not None else []), *source_files(words)))
    return tuple(_with_modules(list(files), search, set(), _DEEPEST))


def asks(words: Sequence[str], looked: Sequence[Path]) -> bool | None:
    """Look through the command and its ``program_sources``; None where no Python is among them."""
    code = [after for word, after in pairwise(words) if _CODE.fullmatch(word)]
    if any(_ASKS.search(text.encode(errors="replace")) for text in code):
        return True
    if any(_ASKS.search(bytes_from(file, 0, _MAX_BYTES)) for file in looked):
        return True
    return False if any(file.suffix == ".py" for file in looked) else None


def shell_texts(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The shell code among ``words`` and in the scripts that they run: what to call it, and its text."""
    for word, after in pairwise(words):
        if _CODE.fullmatch(word):
            yield "the command", _COMMENT.sub("", after)
    for file in source_files(words):
        if file.suffix != ".py":
            yield str(file), _COMMENT.sub("", _text(file))


def resumes_by_us(looked: Sequence[Path]) -> bool:
    """Whether one of the files reads our variables, or has the SDK resume."""
    texts = (bytes_from(file, 0, _MAX_BYTES) for file in looked)
    return any(_VARIABLES.search(text) or (_ASKS.search(text) and _RESUMES.search(text)) for text in texts)


def options_unknown_to(looked: Sequence[Path], names: Sequence[str], *, surely: Collection[str]) -> list[str]:
    """Options of ``names`` (with ``_``) that the program does not have, by what it spells.

    A name in ``surely`` is unknown unless it is spelled; another only where every option that the program
    takes must be spelled in its own files: it has a parser, and nothing that hands on or makes up options.
    """
    texts = [bytes_from(file, 0, _MAX_BYTES).replace(b"-", b"_") for file in looked]
    unspelled = [name for name in names if not any(name.encode() in text for text in texts)]
    closed = any(_PARSER.search(text) for text in texts) and not any(_OPEN.search(text) for text in texts)
    return [name for name in unspelled if closed or name in surely]


def _with_modules(
    files: Sequence[Path], search: Sequence[Path], seen: set[Path], depth: int
) -> Iterator[Path]:
    for file in files:
        if file in seen or len(seen) >= _MOST_LOOKED_AT:
            continue
        seen.add(file)
        yield file
        if file.suffix != ".py" or depth == 0:
            continue
        try:
            names = read_imports(file)
        except UnreadableSource:
            continue
        modules = list(local_modules(names, file, search or (file.parent,)))
        yield from _with_modules(modules, search, seen, depth - 1)


def _files(words: Sequence[str]) -> Iterator[Path]:
    tests = any(Path(word).name in _PYTEST for word in words[:4])
    for word in words:
        if _is_file(path := Path(word.partition("::")[0])) and path.suffix == ".py":
            yield path
        elif tests and os.path.isdir(path):  # noqa: PTH112
            yield from (test for pattern in _TESTS for test in sorted(path.rglob(pattern)))
        elif _is_shell(path):
            yield path
            yield from _in_text(_text(path), path.parent, _DEEPEST)
        elif any(mark in word for mark in " \n"):
            yield from _in_text(word, Path(), _DEEPEST)


def _in_text(text: str, folder: Path, depth: int) -> Iterator[Path]:
    """The files that shell code names, as seen from the working directory or near ``folder``."""
    text = _COMMENT.sub("", text)
    named = [found[0] for found in _NAMED.finditer(text)]
    named += [f"{found[1].replace('.', '/')}{end}" for found in _MODULE.finditer(text) for end in _ENDS]
    entered = [one for found in _ENTERED.finditer(text) if (one := _entered(found[1]))]
    places = [Path(), folder, folder / "..", *(base / one for one in entered for base in (Path(), folder))]
    for name in named:
        if (path := _found(name, places)) is None:
            continue
        yield path
        if path.suffix != ".py" and depth > 0:
            yield from _in_text(_text(path), path.parent, depth - 1)


def _entered(words: str) -> str:
    """The folder of a ``cd``, without the variable that it may begin with; "" where another one is inside."""
    folder = _UNKNOWN.sub("", words.strip()).strip("\"' )")
    return "" if "$" in folder else folder


def _found(name: str, places: Sequence[Path]) -> Path | None:
    if "$" in name:
        name = name.rpartition("/")[2]
    return next((place / name for place in places if _is_file(place / name)), None)


def _is_shell(path: Path) -> bool:
    if not _is_file(path):
        return False
    return path.suffix == ".sh" or _SHELL_SCRIPT.match(bytes_from(path, 0, _MAX_BYTES)) is not None


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113  a word may be longer than a name can be: this never raises


def _text(path: Path) -> str:
    return bytes_from(path, 0, _MAX_BYTES).decode("utf-8", "replace")
