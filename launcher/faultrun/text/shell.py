"""A shell script as words and operators, each with its place; nothing is expanded.

Quotations, ``${...}``, ``$(...)``, escapes, comments and here-documents are passed over as the shell
passes over them, far enough to know where a word, a command and an assignment begin.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from faultrun.text.patch import MalformedText, line_end, line_of, next_line

_OPERATOR = re.compile(r"\r\n|[\r\n]|&&|\|\||;;|[;&|()]")
_REDIRECTION = re.compile(r"&>>?|[<>][<>&|]*")
_HERE = re.compile(r"<<(?!<)(?P<tabs>-?)[ \t]*(?P<word>\\?[\w.-]+|'[^'\r\n]*'|\"[^\"\r\n]*\")")
_BETWEEN = re.compile(r"(?:[ \t]|\\(?:\r\n|\n))+")
_PLAIN = re.compile(r"[^\s'\"\\$`;&|()<>]+")
_CLOSING = {"$(": ")", "${": "}"}
_ENDS_WORD = " \t\r\n;&|()<>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word as it is written, ``text[start:end]``.

    ``bare`` is the same with each quoted or escaped character as ``_``: the rest may mean something to the
    shell.
    """

    start: int
    end: int
    text: str
    bare: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What stands between words: the end of a line or of a command, a parenthesis, ``|``, ``&``."""

    start: int
    end: int
    text: str

    @property
    def redirects(self) -> bool:
        """Whether it is a redirection; the word behind it is a file, and for ``<<`` part of it."""
        return self.text[0] in "<>" or self.text.startswith("&>")


Token = Word | Operator


def tokens(script: str) -> Iterator[Token]:
    """Words and operators in order, without comments and here-documents.

    MalformedText where a quotation or expansion is not closed, once what stands before it was given.
    """
    return _Scanner(script).tokens()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._here: list[tuple[str, bool]] = []

    def tokens(self) -> Iterator[Token]:
        while self._at < len(self._text):
            if between := _BETWEEN.match(self._text, self._at):
                self._at = between.end()
            elif self._text[self._at] == "#":
                self._at = line_end(self._text, self._at)
            else:
                yield self._operator() or self._word()

    def _operator(self) -> Operator | None:
        start = self._at
        if here := _HERE.match(self._text, start):
            self._here.append((here["word"].strip("'\"\\"), bool(here["tabs"])))
        found = here or _REDIRECTION.match(self._text, start) or _OPERATOR.match(self._text, start)
        if found is None:
            return None
        self._at = found.end()
        if found.group() in {"\r\n", "\r", "\n"}:
            self._skip_here()
        return Operator(start=start, end=found.end(), text=found.group())

    def _skip_here(self) -> None:
        for delimiter, tabs in self._here:
            while self._at < len(self._text):
                line = self._text[self._at : line_end(self._text, self._at)]
                self._at = next_line(self._text, self._at)
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self._here.clear()

    def _word(self) -> Word:
        start, bare = self._at, ""
        while self._at < len(self._text) and self._text[self._at] not in _ENDS_WORD:
            begun = self._at
            self._at = self._piece_end(begun)
            quoted = self._text[begun] in "\\'\"" or self._text.startswith("$'", begun)
            bare += "_" * (self._at - begun) if quoted else self._text[begun : self._at]
        return Word(start=start, end=self._at, text=self._text[start : self._at], bare=bare)

    def _piece_end(self, at: int) -> int:
        """Where one piece of a word ends: plain characters, an escape, a quotation or an expansion."""
        text = self._text
        if text[at] == "\\":
            return min(at + (3 if text.startswith("\r\n", at + 1) else 2), len(text))
        if text[at] == "'":
            return self._behind("'", at, at + 1)
        if text.startswith("$'", at):
            return self._closed("'", at, at + 2)
        if text[at] in '"`':
            return self._closed(text[at], at, at + 1)
        if text[at : at + 2] in _CLOSING:
            return self._closed(_CLOSING[text[at : at + 2]], at, at + 2)
        plain = _PLAIN.match(text, at)
        return plain.end() if plain else at + 1

    def _behind(self, mark: str, opened: int, at: int) -> int:
        if (end := self._text.find(mark, at)) < 0:
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

    def _open(self, opened: int) -> MalformedText:
        return MalformedText(f"{self._text[opened]} is not closed", line_of(self._text, opened))
