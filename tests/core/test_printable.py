"""No terminal obeys what a worker or a file says, and nothing hides in it."""

import json
import re

from hypothesis import example, given
from hypothesis import strategies as st

from faultrun.model.printable import console_output, one_line, printable

UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
HOSTILE = st.text(st.one_of(st.characters(), st.sampled_from("\x1b\x9b\x07\r\b\x7f\u202e\u2066[]0;m")))


@given(HOSTILE)
@example("\x1b]52;c;ZXZpbA==\x07")
@example("\u202egnp.exe")
def test_no_control_character_is_left_but_line_ends_and_tabs(text: str) -> None:
    said = printable(text)
    assert not UNFIT.search(said)
    assert printable(said) == said
    assert said.count("\n") == text.count("\n")


@given(st.text(st.characters(min_codepoint=32)).filter(lambda text: not UNFIT.search(text)))
@example("损失 0.5\tÄ 😀\n")
def test_ordinary_words_stay_as_they_are(text: str) -> None:
    assert printable(text) == text
    data = text.encode(errors="surrogatepass")
    if b"\xed" not in data:
        assert console_output(data) == data


@given(st.recursive(HOSTILE, lambda inner: st.lists(inner) | st.dictionaries(HOSTILE, inner), max_leaves=5))
def test_json_means_the_same_afterwards(data: object) -> None:
    assert json.loads(printable(json.dumps(data))) == data


@given(st.binary())
@example(b"\x1b]0;owned\x07")
@example(b"\x1b[2J\x1b[1;31mred\x1b[0m\x1b[3A")
@example(b"\x9b2J \xc2\x9b2J")
@example("\u202e".encode())
def test_of_output_that_is_shown_only_colours_and_returns_reach_the_console(data: bytes) -> None:
    shown = console_output(data)
    plain = re.sub(rb"\x1b\[[0-9;:]*m|\r", b"", shown).decode(errors="replace")
    assert not UNFIT.search(plain)
    assert shown.count(b"\n") == data.count(b"\n")


def test_colours_and_progress_bars_are_shown_as_they_are() -> None:
    bar = b"\r 50%|\xe2\x96\x88  | \x1b[32mloss 0.5\x1b[0m"
    assert console_output(bar) == bar
    assert console_output("中文".encode("gbk")) == "中文".encode("gbk")


@given(HOSTILE)
@example("a\nfaultrun: every rank finished; exit code 0")
def test_a_name_in_a_line_of_ours_begins_no_other(text: str) -> None:
    assert "\n" not in one_line(text)
    assert one_line(text).count("\\u000a") == printable(text).count("\\u000a") + text.count("\n")
