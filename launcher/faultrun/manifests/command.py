"""What a container starts: whether a shell stays PID 1, and how faultrun is called.

Words are read, nothing is expanded. Where a script is more than a list of plain
commands, the answer is "cannot tell", and rules stay silent.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath

from faultrun.text.patch import MalformedText
from faultrun.text.shell import Operator, Token, Word, tokens

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_INITS = frozenset({"tini", "dumb-init", "docker-init", "catatonit"})
_OPTIONS_WITH_VALUE = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_EXPANDS = re.compile(r"[`{}]|\$\(")
_ENDS_COMMAND = frozenset({"&&", ";", ";;", "\n", "\r", "\r\n"})
_HANDLERS = frozenset({"exec", "trap"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """``sh -c SCRIPT``. ``word`` is the position of SCRIPT among the container's words."""

    name: str
    script: str
    word: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """A shell that stays PID 1. ``last``: the first word of its last command; empty if not plain."""

    shell: Shell
    last: str


def shell_of(words: tuple[str, ...]) -> Shell | None:
    """The shell that these words start with a script in a word; None if they start something else."""
    name = PurePosixPath(words[0]).name if words else ""
    at, scripted = 1, False
    while at < len(words) and words[at][:1] in {"-", "+"} and not (scripted and len(words[at]) == 1):
        scripted = scripted or re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", words[at]) is not None
        at += 2 if words[at] in _OPTIONS_WITH_VALUE else 1
    found = name in _SHELLS and scripted and at < len(words)
    return Shell(name=name, script=words[at], word=at) if found else None


def stays(words: tuple[str, ...]) -> Stays | None:
    """The shell that stays PID 1 while its script runs; None if it does not, or that cannot be told.

    bash replaces itself by a command that is all of its script, whatever its
    version, and only from 5.1 on by the last of several; dash never does.
    """
    shell = shell_of(words)
    read = _tokens(shell.script) if shell else ()
    commands = tuple(_commands(shell.script, read)) if shell else ()
    if shell is None or not commands or any(token.text in _HANDLERS for token in read):
        return None
    if _is_too_much(read):
        return Stays(shell=shell, last="")
    redirects = any(isinstance(one, Operator) and one.redirects for one in read)
    if len(commands) == 1 and shell.name != "sh" and not redirects:
        return None
    return Stays(shell=shell, last=commands[-1][0])


def faultrun_of(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return faultrun's own words, without its name; None if the container does not start faultrun.

    Recognised: ``faultrun ...``, ``python -m faultrun ...``, the same behind an init such as tini or behind
    ``env``, and as one of the plain commands of a shell's script that expands nothing.
    """
    if (shell := shell_of(words)) is not None:
        if _is_too_much(_tokens(shell.script)) or "$" in shell.script:
            return None
        found = (_faultrun(command) for command in commands_of(shell.script))
        return next((words for words in found if words is not None), None)
    return _faultrun(words)


def commands_of(script: str) -> Iterator[tuple[str, ...]]:
    """The words of each simple command between lines, ``;`` and ``&&``; none if a quote is left open."""
    return _commands(script, _tokens(script))


def _tokens(script: str) -> tuple[Token, ...]:
    with suppress(MalformedText):
        return tuple(tokens(script))
    return ()


def _commands(script: str, read: Iterable[Token]) -> Iterator[tuple[str, ...]]:
    for ends, group in groupby(read, key=lambda token: token.text in _ENDS_COMMAND):
        piece = () if ends else tuple(group)
        words = _words(script[piece[0].start : piece[-1].end]) if piece else ()
        if words:
            yield words


def _words(piece: str) -> tuple[str, ...]:
    with suppress(ValueError):
        return tuple(shlex.split(piece.replace("\\\n", "  "), comments=True))
    return ()


def _is_too_much(read: Iterable[Token]) -> bool:
    """Whether the script is more than a list of plain commands."""
    for token in read:
        match token:
            case Word(bare=bare) if _EXPANDS.search(bare):
                return True
            case Operator(text=text) if text.startswith("<<"):
                return True
            case Operator(text=text) if not token.redirects and text not in _ENDS_COMMAND:
                return True
    return False


def _faultrun(words: tuple[str, ...]) -> tuple[str, ...] | None:
    rest = list(words)
    while rest and (rest[0] == "exec" or _ASSIGNMENT.match(rest[0])):
        rest.pop(0)
    if rest and PurePosixPath(rest[0]).name in _INITS:
        rest.pop(0)
        while rest and rest[0].startswith("-"):
            rest.pop(0)
    if rest and PurePosixPath(rest[0]).name == "env":
        rest.pop(0)
        while rest and (rest[0].startswith("-") or _ASSIGNMENT.match(rest[0])):
            rest.pop(0)
    name = PurePosixPath(rest[0]).name if rest else ""
    if name == "faultrun":
        return tuple(rest[1:])
    if name.startswith("python") and rest[1:3] == ["-m", "faultrun"]:
        return tuple(rest[3:])
    return None
