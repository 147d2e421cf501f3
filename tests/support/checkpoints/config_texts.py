"""Values that break careless quoting, and what a value must become beside the type it replaces."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import assume
from hypothesis import strategies as st

Steps = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """The text of one value, and the way to it."""

    steps: Steps
    text: str


Pieces = list[str | Leaf]
"""A text, cut so that each of its values is a piece of its own."""


def joined(pieces: Pieces) -> str:
    """The text."""
    return "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)


@dataclass(frozen=True, slots=True)
class Chosen:
    """One value of a text, and the text before and behind it."""

    leaf: Leaf
    before: str
    behind: str


def choose(pieces: Pieces, data: st.DataObject) -> Chosen:
    """Any of the values; the test is passed over when there is none."""
    leaves = [(number, piece) for number, piece in enumerate(pieces) if isinstance(piece, Leaf)]
    assume(leaves)
    number, leaf = data.draw(st.sampled_from(leaves))
    return Chosen(leaf, joined(pieces[:number]), joined(pieces[number + 1 :]))


HOSTILE = (
    *("/ckpt/net-2_1215.ckpt", "/a b/c.ckpt", "it's", 'say "x"', "a#b", "a #b", "a: b"),
    *("C:\\temp\\new", "\\", "trailing\\", "{x}", "[x, y]", "*alias", "&anchor", "!tag"),
    *("%percent", "@at", "`tick`", "- dash", "?", "|", ">", "~", "null", "true", "no", "1"),
    *("1.5", "1e3", "0x10", "2020-01-01", "", " ", " lead", "trail ", "two\nlines", "tab\there"),
    *("$HOME", "${x}", "$(rm)", "'\"", "überall/文件/😀.ckpt", "<<", "=", "---", "..."),
)

hostile_text = st.sampled_from(HOSTILE) | st.text(
    alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
)
"""Whatever a path may be: any character but NUL and halves of surrogate pairs."""


def as_the_old_type(old: object, new: str) -> object:
    """What ``new`` must read back as where ``old`` stood: the rule of the documentation, written anew."""
    if isinstance(old, bool):
        return {"true": True, "false": False}.get(new.lower(), new)
    if isinstance(old, int):
        return int(new) if re.fullmatch(r"[+-]?(0|[1-9]\d{0,30})", new, re.ASCII) else new
    if isinstance(old, float):
        number = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
        fits = re.fullmatch(number, new, re.ASCII) and math.isfinite(float(new))
        return float(new) if fits else new
    return new


def key_of(steps: Sequence[str | int]) -> str:
    """KEY for these steps, every name in quotes."""
    pieces = [
        f"[{step}]" if isinstance(step, int) else '."' + re.sub(r'(["\\])', r"\\\1", step) + '"'
        for step in steps
    ]
    return "".join(pieces).removeprefix(".")


def put(tree: object, steps: Sequence[str | int], new: object) -> object:
    """``tree`` with the value at ``steps`` replaced, or added to the mapping that lacks it."""
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(tree, list):
        assert isinstance(step, int)
        return [*tree[:step], put(tree[step], rest, new), *tree[step + 1 :]]
    assert isinstance(tree, dict)
    return {**tree, step: put(tree.get(step), rest, new)}


def at(tree: object, steps: Sequence[str | int]) -> object:
    """The value at ``steps``."""
    for step in steps:
        if isinstance(tree, dict):
            tree = tree[step]
        else:
            assert isinstance(tree, list)
            tree = tree[int(step)]
    return tree


def is_inserted(before: bytes, after: bytes) -> bool:
    """Whether ``after`` is ``before`` with one piece put in somewhere."""
    same = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
    return after.endswith(before[same:])
