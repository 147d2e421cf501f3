"""What is known of a value of the source: its text or its beginning, where it stands, what it comes from."""

import ast
from dataclasses import dataclass, replace
from enum import Enum

_LONGEST = 60


class OriginKind(Enum):
    """What outside of the source a value may come from."""

    OPTION = "option"
    KEY = "key"
    VARIABLE = "variable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """An option of the script, a key of its configuration (``file``), or a variable; ``where`` it stands."""

    kind: OriginKind
    name: str
    where: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What is known of a value: all of it (``whole``), or how it begins. ``where`` its text is written.

    ``origins`` are what it comes from; ``alone``: it is one of them as it is, nothing was joined to it.
    ``unknown`` is the part of the source that only a run could tell. ``typed`` is a word of the command that
    it holds and that only a shell can fill in, such as ``$HOME/out``.
    """

    text: str = ""
    whole: bool = False
    where: str = ""
    origins: tuple[Origin, ...] = ()
    alone: bool = True
    unknown: str = ""
    typed: str = ""

    @property
    def told(self) -> bool:
        """Whether it is more than an empty text."""
        return bool(self.text or self.origins) or not self.whole

    @property
    def folder(self) -> str:
        """Of a path to a file the folder that holds it; "" where that is not known."""
        head, _, last = self.text.rpartition("/")
        if not self.text or needs_shell(last):
            return ""
        return head or ("/" if self.text.startswith("/") else ".")

    @property
    def directory(self) -> str:
        """Of a path to a folder itself; where only its beginning is known, the folder that holds it."""
        return self.text if self.whole else self.folder

    @property
    def parent(self) -> "Traced":
        """The folder that holds it, as a value."""
        return replace(self, text=self.folder, whole=True, alone=False) if self.text else self

    def cut(self, mark: str) -> "Traced":
        """The part before ``mark``, where something is filled in."""
        head, found, _ = self.text.partition(mark)
        return replace(self, text=head, whole=self.whole and not found, alone=not found and self.alone)

    def joined(self, other: "Traced", joint: str) -> "Traced":
        """This value and ``other`` behind it; with the joint ``/`` as paths are joined."""
        origins = (*self.origins, *other.origins)
        if not self.whole:
            return replace(self, alone=False, origins=origins, typed=self.typed or other.typed)
        if joint == "/" and (other.text.startswith("/") or not self.text):
            return replace(other, origins=origins, typed=self.typed or other.typed)
        between = "" if joint == "/" and self.text.endswith("/") else joint
        alone = (self.alone and not other.text and other.whole) or (other.alone and not self.text)
        return Traced(
            text=self.text + between + other.text,
            whole=other.whole,
            where=self.where or other.where,
            origins=origins,
            alone=alone and not between,
            unknown=other.unknown,
            typed=self.typed or other.typed,
        )


def needs_shell(text: str) -> bool:
    """Whether only a shell can say what ``text`` comes to."""
    return "$" in text or "`" in text


def not_known(node: ast.AST) -> Traced:
    """A value that only a run could tell."""
    text = ast.unparse(node)
    return Traced(unknown=text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")
