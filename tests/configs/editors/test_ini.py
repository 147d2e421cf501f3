"""INI, read by ``configparser`` before and after."""

import configparser
import io

from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.configs.editors.registry import edit
from faultrun.errors import ConfigError
from support.checkpoints.config_texts import Leaf, Pieces, choose, hostile_text, is_inserted, joined, key_of

NAMES = ("pre_trained", "Epoch", "a b", "dot.ted", "x-y")
OLD = (
    *("", "old", "/a/b.ckpt", "12", "True", "a = b"),
    *("two\n   lines\n\n   # not read\n   here", "# text", "x: y ; z"),
)


@st.composite
def documents(draw: st.DrawFn) -> Pieces:
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    pieces: Pieces = []
    sections = st.sampled_from(["train", "a.b", "DEFAULT", "with space"])
    for section in draw(st.lists(sections, unique=True, min_size=1)):
        pieces += [draw(st.sampled_from(["", newline, "; [note]" + newline])), f"[{section}]{newline}"]
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3)):
            separator = draw(st.sampled_from(["=", " = ", ": ", ":"]))
            value = draw(st.sampled_from([text for text in OLD if separator == " = " or text]))
            pieces += [draw(st.sampled_from(["", "# note = 1" + newline])), name + separator]
            pieces.append(Leaf((section, name), value.replace("\n", newline)))
            pieces.append(draw(st.sampled_from(["", "  "])) + newline)
    return pieces


def read(text: str) -> dict[str, dict[str, str]]:
    """What Python's default reader finds, sections with what they inherit."""
    reader = configparser.ConfigParser()
    reader.read_file(io.StringIO(text, newline=None))
    found = {section: dict(reader.items(section)) for section in reader.sections()}
    return found | {"DEFAULT": {name: reader.get("DEFAULT", name) for name in reader.defaults()}}


def own(text: str, section: str) -> set[str]:
    """The options that a section has itself."""
    reader = configparser.RawConfigParser(default_section="\0")
    reader.read_string(text)
    return set(reader[section]) if reader.has_section(section) else set()


@settings(max_examples=25, deadline=None)
@given(documents(), st.data(), hostile_text)
def test_only_the_bytes_of_the_named_value_change(pieces: Pieces, data: st.DataObject, value: str) -> None:
    chosen = choose(pieces, data)
    section, name = (str(step) for step in chosen.leaf.steps)
    text = joined(pieces)
    key = key_of((section, name))
    try:
        done = edit("c.ini", text.encode(), key, value).data
    except ConfigError as refused:
        assert "INI cannot hold" in refused.because
        assert value != value.strip() or not value.isprintable()
        return
    was, now = read(text), read(done.decode())
    for other, options in was.items():
        inherits = section == "DEFAULT" and name.lower() not in own(text, other)
        expected = options | {name.lower(): value} if other == section or inherits else options
        assert now[other] == expected
    assert done.startswith(chosen.before.rstrip(" ").encode())
    assert done.endswith(chosen.behind.encode())
    assert edit("c.ini", done, key, value).data == done


@settings(max_examples=25, deadline=None)
@given(documents(), st.data(), st.sampled_from(["/ckpt/x.ckpt", "a b", "a#b", "50%"]))
def test_a_missing_option_is_last_in_its_section(pieces: Pieces, data: st.DataObject, value: str) -> None:
    text = joined(pieces)
    section = data.draw(
        st.sampled_from([name for name in ("train", "a.b", "with space") if f"[{name}]" in text] or [""])
    )
    if not section:
        return
    done = edit("c.ini", text.encode(), key_of((section, "quite_new")), value).data
    assert read(done.decode())[section] == read(text)[section] | {"quite_new": value}
    assert is_inserted(text.encode(), done)


def test_a_text_without_sections_is_read_as_one() -> None:
    text = b"a = 1\nb=2"
    assert edit("c.cfg", text, "a", "3").data == b"a = 3\nb=2"
    assert edit("c.cfg", text, "c", "/x").data == b"a = 1\nb=2\nc=/x"


def test_sections_whose_names_hold_dots_are_found_without_quotes() -> None:
    text = b"[a.b]\nx.y = 1\n"
    assert edit("c.ini", text, "a.b.x.y", "2").data == b"[a.b]\nx.y = 2\n"


def test_quotes_around_the_old_value_are_its_readers_convention_and_stay() -> None:
    assert edit("c.ini", b"[s]\nckpt = 'old'\n", "s.ckpt", "/a b").data == b"[s]\nckpt = '/a b'\n"
    assert edit("c.ini", b"[s]\nckpt = ''\n", "s.ckpt", "it's").data == b'[s]\nckpt = "it\'s"\n'


def test_a_percent_is_written_as_the_files_own_reader_takes_it() -> None:
    assert edit("c.ini", b"[s]\na = 1\n", "s.a", "50%").data == b"[s]\na = 50%%\n"
    assert edit("c.ini", b"[s]\na = 1\nb = 7%\n", "s.a", "50%").data == b"[s]\na = 50%\nb = 7%\n"
