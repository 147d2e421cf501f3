"""One variable of a shell script changed; every other character stays.

Understood: ``NAME=VALUE`` where a command may stand, alone, in front of a command or
behind ``export``, ``declare``, ``readonly``, ``local``. Quotes, ``${...}``, ``$(...)``, comments and
here-documents are skipped as the shell skips them. A missing name is appended only to
a script that does nothing but set variables: elsewhere it would come too late.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from faultrun.configs.env_edit import variable
from faultrun.configs.patch import (
    Edited,
    Patch,
    Refused,
    appended,
    edited,
    line_of,
    next_line,
    prove,
    twice,
    unchanged,
)
from faultrun.configs.quoting import word
from faultrun.model.edit import Key, Scalar

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<index>\[[^\]]*\])?(?P<sign>\+?=)")
_DECLARE = {"export", "declare", "typeset", "readonly", "local"}
_BEFORE_COMMAND = {"if", "then", "elif", "else", "do", "while", "until", "{", "!", "time"}
_HERE = re.compile(r"<<(?!<)(?P<tabs>-?)[ \t]*(?P<word>\\?[\w.-]+|'[^'\r\n]*'|\"[^\"\r\n]*\")")
_PLAIN = re.compile(r"[^\s'\"\\$`;&|()<>]+")
_JOINED = re.compile(r"(?:[ \t]|\\(?:\r\n|\n))+")
_CLOSING = {"$(": ")", "${": "}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    name: str
    start: int
    end: int
    spelled: str
    simple: bool
    export: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    start: int
    end: int


class _Command:
    """A word that runs something."""


def edit(text: str, key: Key, value: Scalar) -> Edited:
    """Set the variable ``key`` to ``value``; Refused with the reason where that cannot be done safely."""
    name = variable(key)
    before = list(_Script(text).parts())
    assignments = _assignments(text)
    found = [assignment for assignment in assignments if assignment.name == name]
    if len(found) > 1:
        raise twice([line_of(text, assignment.start) for assignment in found])
    if found and not found[0].simple:
        where = f"line {line_of(text, found[0].start)}"
        raise Refused(f"{where} sets an array, or adds to what is there", hint=f"write {name}=VALUE there")
    if found:
        result = _replaced(text, found[0], value)
        expected = [(a.name, result.after if a == found[0] else a.spelled) for a in assignments]
    elif len(assignments) < len(before):
        raise Refused(
            f"the script does not set {name}",
            hint=f"add a line {name}= where it belongs, or use --resume_arg",
        )
    else:
        spelled = word(value, "")
        export = assignments[-1].export if assignments else "export "
        patch = appended(text, len(text), f"{export}{name}={spelled}")
        result = edited(text, [patch], before=None, after=spelled)
        expected = [*((a.name, a.spelled) for a in assignments), (name, spelled)]
    prove(lambda: [(a.name, a.spelled) for a in _assignments(result.text)] == expected, result.line)
    return result


def _assignments(text: str) -> list[_Assignment]:
    return [part for part in _Script(text).parts() if isinstance(part, _Assignment)]


def _replaced(text: str, old: _Assignment, value: Scalar) -> Edited:
    spelled = word(value, old.spelled)
    if spelled == old.spelled:
        return unchanged(text, old.start, spelled)
    patch = Patch(start=old.start, end=old.end, new=spelled)
    return edited(text, [patch], before=old.spelled, after=spelled)


class _Script:
    """Walks through a script as the shell's reader does, far enough to know what is an assignment."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._here: list[tuple[str, bool]] = []

    def parts(self) -> Iterator[_Assignment | _Command]:
        """Every assignment, and a mark for every other command, in order."""
        at_start, declaring = True, ""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in "\r\n;&|()":
                at_start, declaring = True, ""
                self._separator(character)
            elif joined := _JOINED.match(self._text, self._at):
                self._at = joined.end()
            elif character == "#":
                self._at = self._line_end()
            elif character in "<>":
                self._redirection()
            else:
                found = self._word()
                spelled = self._text[found.start : found.end]
                assignment = _ASSIGNMENT.match(spelled)
                if assignment and (at_start or declaring):
                    yield self._assignment(found, assignment, declaring)
                elif at_start and spelled in _DECLARE:
                    declaring = spelled + " "
                    at_start = False
                elif at_start and spelled not in _BEFORE_COMMAND:
                    at_start = False
                    yield _Command()

    def _assignment(self, found: _Word, head: "re.Match[str]", declaring: str) -> _Assignment:
        start = found.start + head.end()
        array = self._text.startswith("(", start)
        return _Assignment(
            name=head["name"],
            start=start,
            end=found.end,
            spelled=self._text[start : found.end],
            simple=not array and head["sign"] == "=" and head["index"] is None,
            export=declaring if declaring == "export " else "",
        )

    def _separator(self, character: str) -> None:
        self._at += 1
        if character not in "\r\n":
            return
        if self._text.startswith("\n", self._at) and character == "\r":
            self._at += 1
        for delimiter, tabs in self._here:
            self._skip_here(delimiter, tabs)
        self._here.clear()

    def _skip_here(self, delimiter: str, tabs: bool) -> None:
        while self._at < len(self._text):
            line = self._text[self._at : self._line_end()]
            self._at = next_line(self._text, self._at)
            if (line.lstrip("\t") if tabs else line) == delimiter:
                return

    def _redirection(self) -> None:
        if here := _HERE.match(self._text, self._at):
            self._here.append((here["word"].strip("'\"\\"), bool(here["tabs"])))
            self._at = here.end()
            return
        while self._at < len(self._text) and self._text[self._at] in "<>&|":
            self._at += 1

    def _line_end(self) -> int:
        end = next_line(self._text, self._at)
        return end - len(self._text[self._at : end]) + len(self._text[self._at : end].rstrip("\r\n"))

    def _word(self) -> _Word:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in " \t\r\n;&|()<>":
            self._piece()
        return _Word(start=start, end=self._at)

    def _piece(self) -> None:
        """Go past one piece of a word: plain characters, an escape, a quotation or an expansion."""
        text, at = self._text, self._at
        if text[at] == "\\":
            self._at = min(at + (3 if text.startswith("\r\n", at + 1) else 2), len(text))
        elif text[at] == "'":
            self._at = self._behind("'", at, at + 1)
        elif text.startswith("$'", at):
            self._at = self._closed("'", at, at + 2)
        elif text[at] == '"':
            self._at = self._closed('"', at, at + 1)
        elif text[at] == "`":
            self._at = self._closed("`", at, at + 1)
        elif text[at : at + 2] in _CLOSING:
            self._at = self._closed(_CLOSING[text[at : at + 2]], at, at + 2)
        elif plain := _PLAIN.match(text, at):
            self._at = plain.end()
        else:
            self._at = at + 1

    def _behind(self, mark: str, opened: int, at: int) -> int:
        end = self._text.find(mark, at)
        if end < 0:
            raise self._open(opened)
        return end + 1

    def _closed(self, mark: str, opened: int, at: int) -> int:
        """Position behind the ``mark`` that closes what was opened; quotations inside are skipped."""
        text = self._text
        while at < len(text):
            if text[at] == "\\":
                at += 2
            elif text[at] == mark:
                return at + 1
            elif text[at : at + 2] in _CLOSING and mark != "'":
                at = self._closed(_CLOSING[text[at : at + 2]], opened, at + 2)
            elif text[at] == '"' and mark != "'":
                at = self._closed('"', opened, at + 1)
            elif text[at] == "'" and mark in ")}":
                at = self._behind("'", opened, at + 1)
            elif text[at] == "(" and mark == ")":
                at = self._closed(")", opened, at + 1)
            else:
                at += 1
        raise self._open(opened)

    def _open(self, opened: int) -> Refused:
        return Refused(
            f"line {line_of(self._text, opened)}: {self._text[opened]} is not closed",
            hint="check it: bash -n FILE",
        )
