"""The commands of a shell script that may start a training, each with its place; nothing is run.

Reads assignments, arrays, ``cd`` and calls of other scripts on the way, as far as the text tells them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from faultrun.adopt.launchers import launcher_of
from faultrun.adopt.shell_variables import expanded
from faultrun.text.patch import MalformedText, line_of
from faultrun.text.shell import Operator, Token, Word, tokens

_KEYWORDS = frozenset({"do", "then", "else", "elif", "if", "while", "until", "!", "{", "}", "fi", "esac"})
_LOOPS = frozenset({"for", "while", "until"})
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SHELLS = frozenset({"bash", "sh", "source", ".", "dash", "zsh"})
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OF_DEVICE = re.compile(r"(?i)rank(_?id)?$|device(s|_?id)?$|[gn]pu(s|_?id)?$")
_DEEPEST = 4
_MOST, _MOST_WORDS = 64, 4096

ReadFile = Callable[[str], str | None]
"""The text of a file as the training would name it; None where it is not here."""


_ENDS = frozenset({"\n", "\r\n", "\r", ";", ";;", "&&", "||"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCommand:
    """One command. ``words`` are what its text comes to; ``starts`` is where the word stands each came from.

    ``folder`` is what was entered before by ``cd``. ``in_loop``: it stands in a loop, which starts it several
    times; ``per_device``: all at once, each with a rank or device of its own. ``calls`` are the scripts
    through which it is reached, from the one that was read first.
    """

    words: tuple[str, ...]
    text: str
    starts: tuple[int, ...]
    start: int
    end: int
    line: int
    file: str
    folder: str = ""
    in_loop: bool = False
    per_device: bool = False
    calls: tuple[str, ...] = ()

    def tail(self, count: int) -> str | None:
        """How the last ``count`` words are written; None where they begin inside of a variable."""
        at = len(self.words) - count
        if count and at > 0 and self.starts[at] == self.starts[at - 1]:
            return None
        return self.text[self.starts[at] - self.start :] if count else ""


@dataclass(slots=True)
class _State:
    variables: dict[str, tuple[str, ...]]
    folder: str = ""
    loops: int = 0
    in_header: bool = False
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class ScriptReader:
    """Reads one script and those that it calls, by ``read``; ``absent`` are those that are not here."""

    read: ReadFile
    absent: list[str] = field(default_factory=list)
    found: list[ScriptCommand] = field(default_factory=list)

    def commands(self, text: str, file: str) -> tuple[ScriptCommand, ...]:
        """The commands that start Python or a launcher, in order; MalformedText where a quotation is open."""
        self._through(text, file, _State({}), ())
        return tuple(self.found[:_MOST])

    def _through(self, text: str, file: str, state: _State, calls: tuple[str, ...]) -> None:
        own = str(PurePosixPath(_joined(state.folder, file)).parent)
        every = tuple(tokens(text))
        for piece in _pieces(every):
            if _array(piece, state, own) or (command := _command(piece, text, state, own)) is None:
                continue
            words, starts, end = command
            if _changes(words, state):
                continue
            if not file and (inline := _inline(words)) and len(calls) < _DEEPEST:
                self._through(inline, file, state, (*calls, file))
                continue
            if (called := _called(words)) is not None and len(calls) < _DEEPEST:
                if (inner := self.read(_joined(state.folder, called[0]))) is not None:
                    below = _State(_numbered(called[1]), folder=state.folder, loops=state.loops)
                    self._through(inner, called[0], below, (*calls, file))
                    continue
                self.absent.append(_joined(state.folder, called[0]))
            if launcher_of(words):
                self.found.append(
                    ScriptCommand(
                        words=words,
                        text=text[starts[0] : end],
                        starts=starts,
                        start=starts[0],
                        end=end,
                        line=line_of(text, starts[0]),
                        file=file,
                        folder=state.folder,
                        in_loop=state.loops > 0,
                        per_device=_is_per_device(words, state) and in_background(every, end),
                        calls=calls,
                    )
                )


def _numbered(arguments: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The variables ``$1``, ``$2`` and ``$@`` of a script."""
    found: dict[str, tuple[str, ...]] = {str(n): (word,) for n, word in enumerate(arguments, start=1)}
    return {**found, "@": tuple(arguments)} if arguments else found


def _pieces(read: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    """The tokens of each simple command; an array's words stay with its name."""
    piece: list[Token] = []
    in_array = False
    for token in read:
        opens = token.text == "(" and piece and isinstance(piece[-1], Word) and piece[-1].text.endswith("=")
        if isinstance(token, Operator) and not token.redirects:
            if opens and piece[-1].end == token.start:
                in_array = True
            elif in_array and token.text == ")":
                in_array = False
                yield tuple(piece)
                piece = []
            elif not in_array:
                yield tuple(piece)
                piece = []
            if opens and in_array:
                piece.append(token)
            continue
        piece.append(token)
    yield tuple(piece)


def _array(piece: Sequence[Token], state: _State, own: str) -> bool:
    """Take ``NAME=(words)``, also with ``+=`` and behind ``declare -a``."""
    at = next((n for n, one in enumerate(piece) if isinstance(one, Operator) and one.text == "("), 0)
    if not at:
        return False
    name = piece[at - 1].text.rstrip("=+")
    ahead = (expanded(one.text, state.variables, own) for one in piece[at + 1 :] if isinstance(one, Word))
    words = [word for each in ahead for word in each]
    before = state.variables.get(name, ()) if piece[at - 1].text.endswith("+=") else ()
    state.variables[name] = (*before, *words)[:_MOST_WORDS]
    return True


def _command(
    piece: Sequence[Token], text: str, state: _State, own: str
) -> tuple[tuple[str, ...], tuple[int, ...], int] | None:
    """The words of a simple command, where each is written, and where the last one ends."""
    words: list[str] = []
    starts: list[int] = []
    end, skip = 0, False
    for token in piece:
        if isinstance(token, Operator):
            skip = True
            continue
        if skip:
            skip = False
            continue
        if not words and token.text in _LOOPS:
            state.loops += 1
            if token.text == "for":
                state.in_header = True
                named = [one.text for one in piece[1:2]]
                state.variables = {name: text for name, text in state.variables.items() if name not in named}
                return None
            continue
        if not words and token.text == "done":
            state.loops = max(0, state.loops - 1)
            state.numbered = state.numbered and state.loops > 0
            return None
        if not words and token.text in _KEYWORDS:
            state.in_header = state.in_header and token.text != "do"
            continue
        if token.text.isdecimal() and text[token.end : token.end + 1] in (">", "<"):
            continue  # 2>&1
        for word in expanded(token.text, state.variables, own)[: max(0, _MOST_WORDS - len(words))]:
            words.append(word)
            starts.append(token.start)
        end = token.end
    return (tuple(words), tuple(starts), end) if words else None


def _changes(words: tuple[str, ...], state: _State) -> bool:
    """Take assignments and ``cd``; whether that is all that the command does."""
    if words[0] in ("cd", "pushd") and len(words) > 1:
        state.folder = _joined(state.folder, words[1])
        return True
    rest = words[1:] if words[0] in _DECLARES else words
    assigned = [found for word in rest if (found := _ASSIGNED.fullmatch(word))]
    if rest and len(assigned) == len(rest):
        for one in assigned:
            state.numbered |= state.loops > 0 and _numbers(one)
            if one[2] or one[1] not in state.variables:
                known = not state.in_header and "$" not in one[2] and "`" not in one[2]
                if known:
                    state.variables[one[1]] = (one[2],) if one[2] else ()
                else:
                    state.variables.pop(one[1], None)
        return True
    return words[0] in _DECLARES


def _is_per_device(words: tuple[str, ...], state: _State) -> bool:
    """Whether a loop starts Python itself with a rank or device: by a variable, an option or a folder."""
    if not state.loops or launcher_of(words) != "python":
        return False
    own = any(_numbers(found) for word in words if (found := _ASSIGNED.fullmatch(word)))
    return own or state.numbered or "$" in state.folder


def _numbers(assigned: re.Match[str]) -> bool:
    """Whether a variable of a rank or device is set to what changes from one turn to the next."""
    return _OF_DEVICE.search(assigned[1]) is not None and "$" in assigned[2]


def _called(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
    """Another shell script that is run or sourced, and its arguments."""
    rest = words
    while rest and (rest[0] in ("exec", "nohup", "time", "sudo") or rest[0].startswith("-")):
        rest = rest[1:]
    if rest and PurePosixPath(rest[0]).name in _SHELLS:
        rest = rest[1:]
        while rest and rest[0].startswith("-"):
            if "c" in rest[0]:
                return None
            rest = rest[1:]
        return (rest[0], rest[1:]) if rest else None
    return (rest[0], rest[1:]) if rest and rest[0].endswith((".sh", ".bash")) else None


def _inline(words: tuple[str, ...]) -> str:
    """The text of ``bash -c TEXT``; empty for anything else."""
    shell = PurePosixPath(words[0]).name in _SHELLS
    options = (at for at, word in enumerate(words) if word.startswith("-") and "c" in word) if shell else ()
    return next((words[at + 1] for at in options if at + 1 < len(words)), "")


def _joined(folder: str, path: str) -> str:
    return str(PurePosixPath(folder) / path) if folder else path


def chosen_command(found: Sequence[ScriptCommand]) -> ScriptCommand:
    """Which of several commands trains: one with a launcher, else one in a loop, else the last one."""
    for wanted in (
        [one for one in found if launcher_of(one.words) != "python"],
        [one for one in found if one.in_loop],
        list(found),
    ):
        if wanted:
            return wanted[-1]
    raise MalformedText("it starts no Python and no launcher", 1)


def in_background(read: Sequence[Token], end: int) -> bool:
    """Whether ``&`` ends the command that ends at ``end``, or the parentheses that it stands in."""
    marks = [one for one in read if isinstance(one, Operator) and not one.redirects]
    depth = sum({"(": 1, ")": -1}.get(one.text, 0) for one in marks if one.end <= end)
    for one in marks:
        if one.start < end:
            continue
        if one.text == "&":
            return True
        depth += {"(": 1, ")": -1}.get(one.text, 0)
        if depth <= 0 and one.text in _ENDS:
            return False
    return False
