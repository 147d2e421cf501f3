"""TOML, read by ``tomllib`` (``tomli`` on Python 3.10) before and after."""

import sys
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.configs.editors.registry import edit
from faultrun.errors import ConfigError
from support.checkpoints.config_texts import (
    Leaf,
    Pieces,
    Steps,
    as_the_old_type,
    at,
    choose,
    hostile_text,
    is_inserted,
    joined,
    key_of,
    put,
)

loads = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads

NAMES = {
    "pre_trained": "pre_trained",
    "b.c": '"b.c"',
    "q'": '"q\'"',
    "lit eral": "'lit eral'",
    "é": '"\\u00e9"',
}
VALUES = (
    *('"text"', '"a # b"', "'C:\\x'", '""', "12", "-3", "1_000", "0x1F", "1.5"),
    *("6e-3", "inf", "true", "false", "1979-05-27T07:32:00Z", "07:32:00"),
    *('"""\none "two" \\\n   three"""', "'''\nraw ''x'''", '"""ends in quotes"""""'),
)
HEADERS: dict[str, Steps] = {"[t]": ("t",), "[t.u]": ("t", "u"), "[[runs]]": (), '["x.y"]': ("x.y",)}
TAILS = ("", " # tail = 1", "  ")


@st.composite
def values(draw: st.DrawFn, steps: Steps, depth: int = 2) -> Pieces:
    """A value, or a list or inline table of values."""
    kind = draw(st.sampled_from(["leaf", "leaf", "list", "table"] if depth else ["leaf"]))
    if kind == "leaf":
        return [Leaf(steps, draw(st.sampled_from(VALUES)))]
    if kind == "list":
        gap = draw(st.sampled_from(["", "\n  ", " # [note]\n  "]))
        items = [draw(values((*steps, n), depth - 1)) for n in range(draw(st.integers(0, 3)))]
        return ["[", *(piece for item in items for piece in [gap, *item, ","]), gap, "]"]
    pieces: Pieces = ["{"]
    for name in draw(st.lists(st.sampled_from(sorted(NAMES)), unique=True, max_size=2)):
        leaf = Leaf((*steps, name), draw(st.sampled_from([text for text in VALUES if "\n" not in text])))
        pieces += [", " if len(pieces) > 1 else " ", f"{NAMES[name]} = ", leaf]
    return [*pieces, "}"]


@st.composite
def documents(draw: st.DrawFn) -> Pieces:
    """A whole text: top level, tables, dotted keys and arrays of tables."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    pieces: Pieces = []
    runs = 0
    headers = draw(st.lists(st.sampled_from(sorted(HEADERS)), max_size=4))
    for header in ["", *dict.fromkeys(headers), *["[[runs]]"] * headers.count("[[runs]]")]:
        steps: Steps = HEADERS.get(header, ())
        if header == "[[runs]]":
            steps = ("runs", runs)
            runs += 1
        pieces.append(draw(st.sampled_from(["", newline, "# [comment]" + newline])))
        pieces.append(header + draw(st.sampled_from(TAILS)) + newline if header else "")
        for name in draw(st.lists(st.sampled_from(sorted(NAMES)), unique=True, max_size=3)):
            dotted = draw(st.booleans())
            inner = (*steps, name, "sub") if dotted else (*steps, name)
            pieces += [f"{NAMES[name]}.sub = " if dotted else f"{NAMES[name]} = ", *draw(values(inner))]
            pieces.append(draw(st.sampled_from(TAILS)) + newline)
    return pieces


@settings(max_examples=25, deadline=None)
@given(documents(), st.data(), hostile_text)
def test_only_the_bytes_of_the_named_value_change(pieces: Pieces, data: st.DataObject, value: str) -> None:
    chosen = choose(pieces, data)
    steps, text = chosen.leaf.steps, joined(pieces)
    tree = loads(text)
    done = edit("c.toml", text.encode(), key_of(steps), value).data
    assert loads(done.decode()) == put(tree, steps, as_the_old_type(at(tree, steps), value))
    assert done.startswith(chosen.before.encode())
    assert done.endswith(chosen.behind.encode())
    assert edit("c.toml", done, key_of(steps), value).data == done


@settings(max_examples=25, deadline=None)
@given(documents(), st.data(), hostile_text)
def test_a_missing_key_is_added_to_its_table(pieces: Pieces, data: st.DataObject, value: str) -> None:
    text = joined(pieces)
    tree = loads(text)
    parents: list[Steps] = [(), *((name,) for name in ("t", "x.y") if name in tree)]
    parents += [("runs", n) for n in range(len(tree.get("runs", [])))]
    steps = (*data.draw(st.sampled_from(parents)), "quite new")
    try:
        done = edit("c.toml", text.encode(), key_of(steps), value).data
    except ConfigError as refused:
        assert "there is no" in refused.because
        assert "[t]" not in text
        assert steps[0] == "t"
        return
    assert loads(done.decode()) == put(tree, steps, value)
    assert is_inserted(text.encode(), done)


def test_a_top_level_key_is_put_before_the_first_table_and_the_comment_above_it() -> None:
    text = b"# licence\n\n# about training\n[train]\nlr = 0.1\n"
    assert edit("c.toml", text, "ckpt", "x").data == (
        b'# licence\n\nckpt = "x"\n# about training\n[train]\nlr = 0.1\n'
    )


@pytest.mark.parametrize(
    ("text", "key", "done"),
    [
        (
            '[[r]]\na = 1\n["x.]y"] # b\n[[r]]\na = 2 # c\n',
            "r[1].a",
            '[[r]]\na = 1\n["x.]y"] # b\n[[r]]\na = 9 # c\n',
        ),
        ("a = 1979-05-27 07:32:00 # c\n", "a", 'a = "9" # c\n'),
        (
            "[t]\n  a = [\n    1,\n  ] # c\n\n# u\n[u]\n",
            "t.b",
            "[t]\n  a = [\n    1,\n  ] # c\n  b = 9\n\n# u\n[u]\n",
        ),
        ("x.y.z = 1 # c\r\nw = 2\r\n", "x.y.b", "x.y.z = 1 # c\r\nx.y.b = 9\r\nw = 2\r\n"),
        ("[t] # c\n\n# u\n[u]\n", "t.b", "[t] # c\nb = 9\n\n# u\n[u]\n"),
        ("a = { x = 1 } # c", "a.b", "a = { x = 1, b = 9 } # c"),
        ("a = [{}]", "a[0].b", "a = [{ b = 9 }]"),
    ],
)
def test_odd_places_are_found_and_nothing_around_them_moves(text: str, key: str, done: str) -> None:
    assert edit("c.toml", text.encode(), key, 9).data.decode() == done
