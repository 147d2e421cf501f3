"""YAML, as PyYAML reads it: what stays, what a new value looks like, and what is refused."""

import pytest
import yaml

from faultrun.configs.editors.registry import edit
from faultrun.errors import ConfigError
from faultrun.model.edit import Scalar


def put(text: str, key: str, value: Scalar) -> str:
    return edit("c.yaml", text.encode(), key, value).data.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('k:   "a # b"   ', 'k:   "/new"   '),
        ("k: ~", 'k: "/new"'),
        ("k: |  # c\n  one\n\n  two\n# behind", 'k: "/new"  # c\n# behind'),
        ("k: >-\n  one\n\n\nz: 1", 'k: "/new"\n\n\nz: 1'),
        ("k: |2\n    one\n", 'k: "/new"\n'),
        ("k: &a old\nz: 1", 'k: &a "/new"\nz: 1'),
        ("k: !!str old", 'k: !!str "/new"'),
        ("k: !env &a  ${X}  # c", 'k: !env &a  "/new"  # c'),
        ("k: &a", 'k: &a "/new"'),
        ("z: &a 1\nk: *a # c", 'z: &a 1\nk: "/new" # c'),
        ("{k: , z: 1}", '{k: "/new" , z: 1}'),
        ("? k\n: old", '? k\n: "/new"'),
        ("'k': 1_000", "'k': \"/new\""),
        ("k: 2020-01-01", 'k: "/new"'),
        ("\ufeffk: old\n", '\ufeffk: "/new"\n'),
        ("%YAML 1.1\n---\nk: old\n...\n", '%YAML 1.1\n---\nk: "/new"\n...\n'),
    ],
)
def test_a_value_of_any_style_is_replaced_and_all_around_it_stays(before: str, after: str) -> None:
    assert put(before, "k", "/new") == after


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        *(("0", "3", "3"), ("0", 3, "3"), ("0", "x", '"x"'), ("0", "007", '"007"'), ("0x10", "16", "16")),
        *(("0.1", "1e-5", "1.0e-05"), ("0.1", 3, "3.0"), ("0.1", "nan", '"nan"')),
        *(("False", "true", "True"), ("FALSE", True, "TRUE"), ("no", "true", "true")),
        *(("false", "1", '"1"'), ("false", 1, "1")),
        *(("text", 3, '"3"'), ("text", True, '"true"'), ("'0'", "3", '"3"')),
        *(("", "3", '"3"'), ("", 3, "3"), ("null", True, "true"), ("None", "/x", '"/x"')),
        ("!!int '5'", "6", "!!int 6"),
    ],
)
def test_a_value_keeps_its_type_if_the_new_text_can_be_read_as_it(old: str, value: Scalar, new: str) -> None:
    assert put(f"k: {old}".rstrip() + "\n", "k", value) == f"k: {new}\n"


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ("a: 1\n", "k", 'a: 1\nk: "x"\n'),
        ("a: 1", "k", 'a: 1\nk: "x"'),
        ("a: 1\r\n", "k", 'a: 1\r\nk: "x"\r\n'),
        ("  a: 1\n  b: 2\n", "k", '  a: 1\n  b: 2\n  k: "x"\n'),
        ("a: 1\n\n# end\n---\na: 2\n", "k", 'a: 1\n\n# end\nk: "x"\n---\na: 2\n'),
        ("a: 1\n---\na: 2\n---\nb: 3\n", "1#k", 'a: 1\n---\na: 2\nk: "x"\n---\nb: 3\n'),
        ("a: 1\n...\n", "k", 'a: 1\nk: "x"\n...\n'),
        ("a: |+\n  text\n\n", "k", 'a: |+\n  text\n\nk: "x"\n'),
        ("", "k", 'k: "x"\n'),
        ("# only words\n", "k", '# only words\nk: "x"\n'),
        ("---\n---\na: 1\n", "k", '---\nk: "x"\n---\na: 1\n'),
        ("{}\n", "k", '{k: "x"}\n'),
        ("{a: 1,}\n", "k", '{a: 1, k: "x",}\n'),
        ("m:\n  a: 1 # c\n# d\nz: 2\n", "m.k", 'm:\n  a: 1 # c\n  k: "x"\n# d\nz: 2\n'),
        ("m:\n  a:\n    - b\nz: 2\n", "m.k", 'm:\n  a:\n    - b\n  k: "x"\nz: 2\n'),
        ("l:\n- a: 1\n- b: 2\n", "l[0].k", 'l:\n- a: 1\n  k: "x"\n- b: 2\n'),
        ("m: {a: [1]}\n", "m.k", 'm: {a: [1], k: "x"}\n'),
        ("base: &b {k: y}\nm:\n  <<: *b\n", "m.k", 'base: &b {k: y}\nm:\n  <<: *b\n  k: "x"\n'),
        ("a: 1\n", '"on"', 'a: 1\n"on": "x"\n'),
        ("a: 1\n", '"x: y"', 'a: 1\n"x: y": "x"\n'),
    ],
)
def test_a_missing_key_goes_to_the_end_of_its_document_or_mapping(before: str, key: str, after: str) -> None:
    assert put(before, key, "x") == after


def test_a_key_that_a_merge_brings_is_overridden_in_its_own_mapping_only() -> None:
    text = "base: &b {ckpt: y}\nm:\n  <<: *b\nn: *b\n"
    assert yaml.safe_load(put(text, "m.ckpt", "x")) == {
        "base": {"ckpt": "y"},
        "m": {"ckpt": "x"},
        "n": {"ckpt": "y"},
    }


def test_an_all_ascii_file_stays_so_and_any_other_shows_the_letters() -> None:
    assert put("k: 1\n", "k", "/文/é") == 'k: "/\\u6587/\\u00e9"\n'
    assert put("k: 1 # 文\n", "k", "/文\u2028😀") == 'k: "/文\\u2028😀" # 文\n'


@pytest.mark.parametrize(
    ("text", "key", "because", "hint"),
    [
        ("k: 1\nz: 2\nk: 3\n", "k", "it is there twice: lines 1, 3", "leave one of them"),
        ("m:\n  k: 1\nm:\n  j: 2\n", "m.k", "it is there twice: lines 1, 3", "leave one of them"),
        ("k: {a: 1, b: 2}\n", "k", "it holds a mapping, not a value", "k.a, k.b"),
        ("k:\n  - a\n  - b\n", "k", "it holds a list, not a value", "k[0], k[1]"),
        ("k: []\n", "k", "it holds a list, not a value", "KEY[0]"),
        ("k: [1]\n", "k[1]", "1 is not a position in a list of 1", "count from 0"),
        ("k: 1\n", "k.a", "line 1 holds a value, not 'a'", "shorten"),
        ("a: 1\n", "m.k", "there is no 'm' to look into", "one of: a"),
        ("- a\n", "k", "'k' is not a position in a list of 1", "count from 0"),
        ("text\n", "k", "line 1 holds a value, not 'k'", "shorten"),
        ("a: 1\n", "1#k", "it has 1 document, counted from 0", "0#KEY"),
        ("a: &x 1\nb: *x\n", "a", "it belongs to &x, used again in line 2", "*x"),
        ("a: &x {k: 1}\nb: {<<: *x}\n", "a.k", "it belongs to &x, used again in line 2", "*x"),
        ("a: &x {k: 1}\nb: *x\n", "b.k", "line 2 is the alias *x", "&x"),
        ("a: [\n", "a", "line 2: ", "PyYAML"),
        ("a:\tb: c\n", "a", "line 1: ", "PyYAML"),
        ("a: {{ jinja }}\n", "a", "it holds a mapping", ""),
        ("a: \x07\n", "a", "special characters are not allowed", "PyYAML"),
        ("a: " + "[" * 400 + "]" * 400, "b", "it is nested too deeply", "flatter"),
        ("a: |\n  text", "k", "changing line 3 would change something else as well", "KEY: VALUE"),
    ],
)
def test_what_cannot_be_meant_or_done_is_refused(text: str, key: str, because: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        put(text, key, "x")
    assert because in caught.value.because
    assert hint in caught.value.hint
    assert caught.value.exit_code == 78
    assert len(str(caught.value).splitlines()) == 3
