"""A quick look never hides what the slow one would find, whatever the expression."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.diagnosis.literal_filter import folded, may_be_in, needles
from faultrun.core.diagnosis.signature_table import ROWS
from faultrun.model.observed.evidence import Row

WRITTEN = {
    "NaN|diverged": ("nan", "diverged"),
    r"loss is nan\b": ("loss is nan",),
    r"(?i)licen[cs]e server": ("e server",),
    r"colou?r is bad": ("r is bad",),
    r"(abc|defg)+ failed": (" failed",),
    r"(abc|defg)? failed|x(yz)*stop": (" failed", "stop"),
    r"^(?:OSError|IOError)\b": ("oserror", "ioerror"),
    r"(?P<what>disk|tape) (is )?full": ("disk", "tape"),
    r"a{3}bcd": ("bcd",),
    r"code \(5\d\d\)": ("code (5",),
    r"[Dd]evice[^)]|lost": ("evice", "lost"),
}

NOBODY_KNOWS = [
    "ab|diverged", r"\d+", "(abc)?", r"\x41BCD", r"(abc)\1def", "(?!abc)def", "(?<=abc)def", "(?x) a b c d",
    "abcd|", "", "(?P<a>x)(?P=a)yzw", r"\101bcd",
]  # fmt: skip


@pytest.mark.parametrize("pattern", WRITTEN)
def test_the_longest_words_that_must_be_there_are_found(pattern: str) -> None:
    assert needles(pattern) == WRITTEN[pattern]


@pytest.mark.parametrize("pattern", NOBODY_KNOWS)
def test_where_nothing_has_to_be_there_everything_is_looked_at(pattern: str) -> None:
    re.compile(pattern)
    assert needles(pattern) == ()
    assert may_be_in(pattern, "")


pieces = st.sampled_from(
    ["abc", "Kit", "stop", "(ab|cd)", "(?:Long|word)", "(?i:Mixed|CASE)", "x?", "y*", "z+", "w{0,2}", "v{2}",
     r"\d", r"\.", r"\(", ".", "[a-f]", "[^xyz]", r"\b", "^", "$", "|", "(in(ner|most)?)", "(a|b)?", " "]
)  # fmt: skip
expressions = st.lists(pieces, min_size=1, max_size=8).map("".join)


@given(st.data(), expressions, st.booleans())
@settings(max_examples=400, deadline=None)
def test_what_matches_is_always_looked_at(data: st.DataObject, pattern: str, anycase: bool) -> None:
    flags = re.IGNORECASE if anycase else 0
    text = data.draw(st.from_regex(re.compile(pattern, flags)), label="text")
    assert re.search(pattern, text, flags) is None or may_be_in(pattern, folded(text))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_no_known_failure_is_hidden(row: Row, data: st.DataObject) -> None:
    lines = [data.draw(st.from_regex(row.pattern)), "step 7 loss 0.1"]
    assert may_be_in(row.pattern, folded("\n".join(lines)))
    assert needles(row.pattern), "the logs of all ranks are asked for it while all nodes wait"


def test_flags_behind_the_beginning_may_mean_something_else() -> None:
    """Python 3.10 takes them, and repeats what stands before them."""
    assert needles("(?i)disk full") == ("disk full",)
    assert needles("disk full(?i)*") == ()


def test_letters_that_are_alike_without_regard_to_case_are_the_same_letter() -> None:
    for text in ("F\u0130LE", "f\u0131le", "di\u017fk", "\u212aernel"):
        assert re.search("(?i)file|disk|kernel", text) is not None
        assert may_be_in("(?i)file|disk|kernel", folded(text))
