"""``FILE:KEY[=TEMPLATE]`` as people type it, and as they misspell it."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.configs.apply import check
from faultrun.configs.editors.registry import FORMATS, edit, format_of
from faultrun.configs.target import doubtful_keys, parse_key, parse_rewrite
from faultrun.errors import ConfigError
from faultrun.model.spec.run_spec import Rewrite
from support.checkpoints.config_texts import Steps, key_of


def read(text: str, *there: str) -> Rewrite:
    return parse_rewrite(text, lambda path: path in there, FORMATS)


@pytest.mark.parametrize(
    ("text", "steps", "document"),
    [
        ("pre_trained", ("pre_trained",), 0),
        ("a.b[0].c", ("a", "b", 0, "c"), 0),
        ("2#a", ("a",), 2),
        ('"a.b".c', ("a.b", "c"), 0),
        ("['a.b'][\"c\"][3]", ("a.b", "c", 3), 0),
        ("with space.x-y", ("with space", "x-y"), 0),
        (r'"say \"x\" \\"', ('say "x" \\',), 0),
        ("文.件", ("文", "件"), 0),
        ("[0]", (0,), 0),
        ('"3#a"', ("3#a",), 0),
    ],
)
def test_a_key_is_names_and_positions(text: str, steps: Steps, document: int) -> None:
    key = parse_key(text)
    assert (key.steps, key.document, key.text) == (steps, document, text)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(min_size=1) | st.integers(0, 99), min_size=1), st.integers(0, 9))
def test_quoted_names_may_hold_anything(steps: list[str | int], document: int) -> None:
    key = parse_key(f"{document}#{key_of(steps)}")
    assert (key.steps, key.document) == (tuple(steps), document)


@pytest.mark.parametrize("text", ["", ".a", "a.", "a..b", "a[", "a[x]", 'a"b"', '"a', "1#", "a=b", "a[0]b"])
def test_a_malformed_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_key(text)
    assert caught.value.what == f"{text!r} is not a key"


@pytest.mark.parametrize(
    ("text", "rewrite"),
    [
        ("t.yaml:a", Rewrite(file="t.yaml", key="a")),
        ("t.yaml:a={checkpoint_dir}", Rewrite(file="t.yaml", key="a", template="{checkpoint_dir}")),
        ("t.yaml:a=", Rewrite(file="t.yaml", key="a", template="")),
        ("t.yaml:a=x:y=z", Rewrite(file="t.yaml", key="a", template="x:y=z")),
        ('t.yaml:"k=1:2"=x', Rewrite(file="t.yaml", key='"k=1:2"', template="x")),
        ("odd:name=1.yaml:1#a.b", Rewrite(file="odd:name=1.yaml", key="1#a.b")),
        ("yaml:t.txt:a", Rewrite(file="t.txt", key="a", format="yaml")),
        ("env:conf", Rewrite(file="env", key="conf")),
    ],
)
def test_the_last_colon_that_leaves_an_existing_file_decides(text: str, rewrite: Rewrite) -> None:
    assert read(text, "t.yaml", "odd", "odd:name=1.yaml", "t.txt", "env") == rewrite


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("t.yaml", "'t.yaml' does not say what to set"),
        (":a", "':a' does not say what to set"),
        ("no.yaml:a", "no.yaml is not there"),
        ("t.yaml:", "'' is not a key"),
        ("t.yaml:=x", "'=x' is not a key"),
        ("t.yaml:a]", "'a]' is not a key"),
    ],
)
def test_what_names_no_value_is_refused(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text, "t.yaml")
    assert caught.value.what == what


@pytest.mark.parametrize(
    ("file", "name"),
    [
        *(("a.yaml", "yaml"), ("A.YML", "yaml"), ("a.json", "json"), ("a.toml", "toml")),
        *(("a.cfg", "ini"), ("a.conf", "ini"), (".env", "env"), (".env.prod", "env"), ("x/prod.env", "env")),
        *(("a.sh", "shell"), ("a.py", "python")),
    ],
)
def test_the_end_of_the_name_tells_the_format(file: str, name: str) -> None:
    assert format_of(file) == name


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        format_of("a.xml")
    assert "yaml, json, toml, ini, env, shell, python" in caught.value.hint
    with pytest.raises(ConfigError):
        format_of("a.yaml", "yml")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("c.yaml", b"a.b: 1\nc:\n  d.e: 2\n"),
        ("c.json", b'{"a.b": 1, "c": {"d.e": 2}}'),
        ("c.toml", b'"a.b" = 1\nc."d.e" = 2\n'),
    ],
)
def test_a_name_with_dots_is_found_without_quotes_if_nothing_else_is_meant(file: str, text: bytes) -> None:
    assert edit(file, text, "a.b", "7").data == text.replace(b"1", b"7")
    assert edit(file, text, "c.d.e", "7").data == text.replace(b"2", b"7")
    assert b"new" in edit(file, text, "c.new", "7").data


@pytest.mark.parametrize("file", ["c.yaml", "c.json", "c.toml", "c.ini", ".env", "c.sh", "c.py"])
def test_binary_data_and_other_encodings_are_refused(file: str) -> None:
    for data, because in (
        (b"a = 1\0", "zero byte"),
        (b"a = '\xff'\n", "not utf-8 text|invalid or missing encoding"),
    ):
        with pytest.raises(ConfigError) as caught:
            edit(file, data, "a", "x")
        assert re.search(because, caught.value.because)
        assert caught.value.exit_code == 78


@pytest.mark.parametrize("file", ["c.yaml", "c.json", "c.toml", "c.ini", ".env", "c.sh", "c.py"])
def test_a_path_that_is_no_text_is_refused(file: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edit(file, b"a = 1\n", "a", "/ckpt/\udcff")
    assert "not UTF-8" in caught.value.because


TEXTS = {
    "a.yaml": "pre_trained: ''\nhas_trained_epoch: 1\nmodel:\n  load_path: x\n",
    "a.json": '{"pre_trained": "", "has_trained_epoch": 1, "model": {"load_path": "x"}}\n',
    "a.toml": 'pre_trained = ""\nhas_trained_epoch = 1\n[model]\nload_path = "x"\n',
    "a.env": "pre_trained=\nhas_trained_epoch=1\nload_path=x\n",
}


def doubts(folder: Path, name: str, key: str) -> list[str]:
    file = folder / name
    file.write_text(TEXTS[name])
    return doubtful_keys(check([Rewrite(file=str(file), key=key)], originals=folder / "original"))


@pytest.mark.parametrize("name", TEXTS)
def test_a_key_beside_one_of_nearly_its_name_is_asked_about(tmp_path: Path, name: str) -> None:
    said = f"pre_trainde is a new key in {tmp_path / name}; did you mean pre_trained?"
    assert doubts(tmp_path, name, "pre_trainde") == [said]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("key", ["pre_trained", "resume_from", "has_trained_step"])
def test_a_key_that_is_there_or_new_is_not(tmp_path: Path, name: str, key: str) -> None:
    assert doubts(tmp_path, name, key) == []


def test_the_last_part_of_a_key_counts(tmp_path: Path) -> None:
    assert doubts(tmp_path, "a.yaml", "model.load_pth") == [
        f"model.load_pth is a new key in {tmp_path / 'a.yaml'}; did you mean load_path?"
    ]
