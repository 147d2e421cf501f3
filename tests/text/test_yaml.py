"""YAML read with places: what is written where, aliases kept or followed, kinds as others see them."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.edit import ScalarKind
from faultrun.text.patch import MalformedText
from faultrun.text.yaml_reader import documents, read
from faultrun.text.yaml_scalar import quoted, spelled
from faultrun.text.yaml_tree import AliasNode, MappingNode, ScalarNode, entries, scalar, text_at, walk

TEXT = """\
base: &base
  path: &p !!str "a.ckpt"   # where
  epochs: 3
second:
  <<: *base
  epochs: 4
list: [1, *p]
---
off: 2020-01-01
"""


def test_every_scalar_knows_the_text_it_is_written_in() -> None:
    for document in documents(TEXT):
        for node in walk(document.root):
            if isinstance(node, ScalarNode):
                written = TEXT[node.start : node.end]
                assert written == (f'"{node.value}"' if node.style else node.value)
                assert TEXT.splitlines()[node.line - 1][node.column :].startswith(written)


def test_aliases_are_kept_where_the_text_is_read_as_written() -> None:
    root = documents(TEXT)[0].root
    assert [node.anchor for node in walk(root) if isinstance(node, AliasNode)] == ["base", "p"]


def test_aliases_and_merges_are_followed_to_one_shared_node() -> None:
    stream = read(TEXT)
    first, second = stream.roots
    assert text_at(first, "second", "path") == "a.ckpt"
    assert text_at(first, "second", "epochs") == "4"
    assert scalar(first, "list", 1) is scalar(first, "base", "path")
    assert not any(isinstance(node, AliasNode) for root in stream.roots for node in walk(root))
    assert text_at(second, "off") == "2020-01-01"


def test_a_key_that_is_there_twice_is_told_with_both_places() -> None:
    root = read("a: 1\nb: 2\na: 3\n").roots[0]
    assert isinstance(root, MappingNode)
    assert [(first.line, again.line) for first, again in root.doubles] == [(1, 3)]
    assert text_at(root, "a") == "3"


def test_kinds_are_pyyamls_and_gos() -> None:
    root = read("a: off\nb: 1e3\nc: 2020-01-01\nd: '1'\ne: 0o7\nf:\n").roots[0]
    values = ((key.value, value) for key, value in entries(root))
    kinds = {name: (one.kind, one.go_kind) for name, one in values if isinstance(one, ScalarNode)}
    assert kinds == {
        "a": (ScalarKind.BOOL, ScalarKind.BOOL),
        "b": (ScalarKind.STR, ScalarKind.FLOAT),
        "c": (ScalarKind.STR, ScalarKind.STR),
        "d": (ScalarKind.STR, ScalarKind.STR),
        "e": (ScalarKind.STR, ScalarKind.INT),
        "f": (ScalarKind.NULL, ScalarKind.NULL),
    }


@pytest.mark.parametrize(
    ("text", "line", "because"),
    [
        ("a: 1\nb: [2\n", 3, "expected ',' or ']'"),
        ("a: 1\nb: \x07\n", 2, "unacceptable character"),
        ("a: 1\nb: *nobody\n", 2, "undefined alias 'nobody'"),
        ("a: &a\n  b: *a\n", 2, "contains itself"),
        ("a: 1\n? [1]\n: 2\n", 2, "a key is a list or a mapping"),
        ("[" * 500, 1, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, line: int, because: str) -> None:
    with pytest.raises(MalformedText) as refused:
        read(text)
    assert because in refused.value.because
    assert refused.value.line == line


def test_shared_nodes_cannot_blow_a_walk_up() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    assert sum(1 for _ in walk(read(text).roots[0])) == 1 + 30 + 30 + 1


@pytest.mark.long
@given(st.text())
def test_any_string_reads_back_as_itself(value: str) -> None:
    value = value.encode(errors="replace").decode()
    assert yaml.safe_load(spelled(value)) == value
    assert yaml.safe_load(quoted(value, "")) == value
    assert quoted(value, "").isascii()
