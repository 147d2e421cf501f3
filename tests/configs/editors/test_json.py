"""JSON, read by ``json`` before and after."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.configs.editors.registry import edit
from support.checkpoints.config_texts import Steps, as_the_old_type, hostile_text, is_inserted, key_of, put

SENTINEL = "\x01here\x02"
NAMES = st.sampled_from(["pre_trained", "a", "b.c", "with space", 'quo"te', "ключ", "[0]", ""])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
TREES = st.dictionaries(
    NAMES,
    st.recursive(
        VALUES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=6,
    ),
    min_size=1,
    max_size=4,
)
LAYOUTS = st.sampled_from(
    [{}, {"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}, {"ensure_ascii": False}, {"indent": 0}]
)


def leaves(tree: object, steps: Steps = ()) -> list[tuple[Steps, object]]:
    inner: list[tuple[str | int, object]]
    match tree:
        case dict():
            inner = list(tree.items())
        case list():
            inner = list(enumerate(tree))
        case _:
            return [(steps, tree)]
    return [leaf for step, child in inner for leaf in leaves(child, (*steps, step))]


@settings(max_examples=25, deadline=None)
@given(TREES, LAYOUTS, st.data(), hostile_text, st.sampled_from(["", "\n", "\r\n \n"]))
def test_only_the_bytes_of_the_named_value_change(
    tree: dict[str, object], layout: dict[str, Any], data: st.DataObject, value: str, end: str
) -> None:
    values = leaves(tree)
    if not values:
        return
    steps, old = data.draw(st.sampled_from(values))
    marked = json.dumps(put(tree, steps, SENTINEL), **layout) + end
    before, behind = marked.split(json.dumps(SENTINEL))
    text = before + json.dumps(old) + behind
    done = edit("c.json", text.encode(), key_of(steps), value).data
    assert json.loads(done) == put(tree, steps, as_the_old_type(old, value))
    assert done.startswith(before.encode())
    assert done.endswith(behind.encode())
    assert edit("c.json", done, key_of(steps), value).data == done


@settings(max_examples=25, deadline=None)
@given(TREES, LAYOUTS, hostile_text)
def test_a_missing_key_is_added_last(tree: dict[str, object], layout: dict[str, Any], value: str) -> None:
    text = json.dumps(tree, **layout).encode()
    done = edit("c.json", text, "quite_new", value).data
    assert list(json.loads(done).items()) == [*tree.items(), ("quite_new", value)]
    assert is_inserted(text, done)


def test_an_added_key_is_laid_out_as_its_neighbours_are() -> None:
    text = b'{\n    "a": 1,\n    "b": 2\n}\n'
    assert edit("c.json", text, "c", "x").data == b'{\n    "a": 1,\n    "b": 2,\n    "c": "x"\n}\n'
    assert edit("c.json", b'{"a":1}', "c", "x").data == b'{"a":1, "c":"x"}'
    assert edit("c.json", b"{}", "c", "x").data == b'{"c": "x"}'


def test_numbers_that_were_not_named_keep_their_digits() -> None:
    text = b'{"lr": 1.50, "big": 12345678901234567890123, "exp": 1E5, "ckpt": ""}'
    assert edit("c.json", text, "ckpt", "/x").data == text.replace(b'""', b'"/x"')


def test_an_all_ascii_file_stays_so_and_any_other_shows_the_letters() -> None:
    assert edit("c.json", b'{"a": ""}', "a", "/\u6587").data == b'{"a": "/\\u6587"}'
    assert edit("c.json", '{"ä": ""}'.encode(), "ä", "/\u6587").data == '{"ä": "/文"}'.encode()
