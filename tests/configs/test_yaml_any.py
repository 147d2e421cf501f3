"""Any YAML document, any key, any value: PyYAML reads the same but for that value, and nothing else moved."""

import json
from dataclasses import dataclass

import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from faultrun.configs.registry import edit
from support.config_texts import (
    Leaf,
    Pieces,
    Steps,
    as_the_old_type,
    at,
    hostile_text,
    is_inserted,
    key_of,
    put,
)

NAMES = ("pre_trained", "a", "b.c", "on", "with space", "ключ", "x-y", "it's", "q#r", "z: w")
PLAIN = (
    "word",
    "two words",
    "a/b.c",
    "it's",
    "0",
    "12",
    "-3",
    "1.5",
    "1e-3",
    "1.0e+5",
    "true",
    "False",
    "no",
)
PLAIN_TOO = ("~", "null", "2020-01-01", "0x1F", "1_000", "a#b", "http://x:80/y", "x:y", "-dash", "ünï")
COMMENTS = ("", "", "", "  # tail: x", " # 'quoted")


@dataclass(frozen=True, slots=True)
class Stream:
    """A text, and for each value in it the text before and behind."""

    text: str
    document: int
    steps: Steps
    before: str
    behind: str


def spelled_name(name: str, draw: st.DrawFn) -> str:
    styles = [json.dumps(name, ensure_ascii=False), "'" + name.replace("'", "''") + "'"]
    if name not in {"on", "it's", "q#r", "z: w"}:
        styles.append(name)
    return draw(st.sampled_from(styles))


def flow_scalar(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["plain", "single", "double"]))
    if kind == "plain":
        return draw(st.sampled_from([word for word in (*PLAIN, *PLAIN_TOO) if word not in {"x:y", "-dash"}]))
    content = draw(st.text(alphabet="ab '\"\\#:{}[],é", max_size=6))
    return json.dumps(content) if kind == "double" else "'" + content.replace("'", "''") + "'"


def long_scalar(draw: st.DrawFn, indent: str, newline: str) -> str:
    """A value over several lines."""
    style = draw(st.sampled_from(["|", ">", "|-", ">+", "|+", "'", '"', "plain"]))
    words = draw(st.lists(st.sampled_from(["one", "two # x", "three: y", "4"]), min_size=1, max_size=3))
    if style == "plain":
        return (newline + indent + "  ").join(["first", *(word.split(" ")[0].rstrip(":") for word in words)])
    if style in {"'", '"'}:
        return style + (newline + indent + "  ").join(words) + style
    comment = draw(st.sampled_from(["", " # header"]))
    blank = newline * draw(st.integers(0, 2)) if style.endswith("+") else ""
    return style + comment + newline + newline.join(indent + "  " + word for word in words) + blank


def flow(draw: st.DrawFn, steps: Steps, depth: int) -> Pieces:
    kind = draw(st.sampled_from(["scalar", "scalar", "map", "list"] if depth else ["scalar"]))
    if kind == "scalar":
        return [Leaf(steps, flow_scalar(draw))]
    pieces: Pieces = ["{" if kind == "map" else "["]
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    for position, name in enumerate(names):
        pieces.append(", " if position else "")
        if kind == "map":
            pieces += [spelled_name(name, draw) + ": ", *flow(draw, (*steps, name), depth - 1)]
        else:
            pieces += flow(draw, (*steps, position), depth - 1)
    return [*pieces, "}" if kind == "map" else "]"]


def block(draw: st.DrawFn, steps: Steps, depth: int, indent: str, newline: str) -> Pieces:
    """Lines of a block mapping or sequence, each from its indentation to its line break."""
    mapping = not steps or draw(st.booleans())
    pieces: Pieces = []
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=4))
    for position, name in enumerate(names):
        pieces.append(draw(st.sampled_from(["", "", newline, indent + "# comment: here" + newline])))
        step = name if mapping else position
        head = spelled_name(name, draw) + ":" if mapping else "-"
        inside: Steps = (*steps, step)
        kind = draw(st.sampled_from(["scalar", "scalar", "scalar", "flow", "long", "empty", "block"]))
        tail = draw(st.sampled_from(COMMENTS))
        if kind == "block" and depth:
            pieces += [
                indent + head + tail + newline,
                *block(draw, inside, depth - 1, indent + "  ", newline),
            ]
        elif kind == "long":
            pieces += [indent + head + " ", Leaf(inside, long_scalar(draw, indent, newline)), newline]
        elif kind == "empty":
            pieces += [indent + head, Leaf(inside, ""), tail + newline]
        elif kind == "flow":
            pieces += [indent + head + " ", *flow(draw, inside, 2), tail + newline]
        else:
            pieces += [indent + head + " ", Leaf(inside, flow_scalar(draw)), tail + newline]
    return pieces


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """One to three documents, and one of the values in them."""
    newline = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    documents = [block(draw, (), 2, "", newline) for _ in range(draw(st.integers(1, 3)))]
    pieces: list[tuple[int, str | Leaf]] = []
    for number, document in enumerate(documents):
        if number or draw(st.booleans()):
            pieces.append((number, "---" + draw(st.sampled_from(["", " # doc"])) + newline))
        pieces += [(number, piece) for piece in document]
    if draw(st.integers(0, 4)) == 0 and isinstance(pieces[-1][1], str):
        pieces[-1] = (pieces[-1][0], pieces[-1][1].removesuffix(newline))
    leaves = [n for n, (_, piece) in enumerate(pieces) if isinstance(piece, Leaf)]
    assume(leaves)
    chosen = draw(st.sampled_from(leaves))
    texts = [piece.text if isinstance(piece, Leaf) else piece for _, piece in pieces]
    number, leaf = pieces[chosen]
    assert isinstance(leaf, Leaf)
    before, behind = "".join(texts[:chosen]), "".join(texts[chosen + 1 :])
    return Stream("".join(texts), number, leaf.steps, before, behind)


@settings(max_examples=25, deadline=None)
@given(streams(), hostile_text)
def test_only_the_value_that_was_named_reads_differently(stream: Stream, value: str) -> None:
    before = list(yaml.safe_load_all(stream.text))
    done = edit("c.yaml", stream.text.encode(), f"{stream.document}#{key_of(stream.steps)}", value)
    expected = list(before)
    new = as_the_old_type(at(before[stream.document], stream.steps), value)
    expected[stream.document] = put(before[stream.document], stream.steps, new)
    assert list(yaml.safe_load_all(done.data)) == expected


@settings(max_examples=25, deadline=None)
@given(streams(), hostile_text)
def test_everything_before_and_behind_the_value_is_the_same_text(stream: Stream, value: str) -> None:
    done = edit("c.yaml", stream.text.encode(), f"{stream.document}#{key_of(stream.steps)}", value)
    assert done.data.startswith(stream.before.encode())
    assert done.data.endswith(stream.behind.encode())


@settings(max_examples=25, deadline=None)
@given(streams(), hostile_text)
def test_doing_it_again_changes_nothing(stream: Stream, value: str) -> None:
    key = f"{stream.document}#{key_of(stream.steps)}"
    once = edit("c.yaml", stream.text.encode(), key, value).data
    twice = edit("c.yaml", once, key, value)
    assert twice.data == once
    assert twice.change.nothing


@settings(max_examples=25, deadline=None)
@given(streams(), hostile_text, st.integers(0, 9))
def test_a_missing_key_is_added_to_its_mapping_and_nothing_moves(
    stream: Stream, value: str, depth: int
) -> None:
    assume(stream.text.endswith("\n"))
    tree = list(yaml.safe_load_all(stream.text))[stream.document]
    parents = [
        stream.steps[:n] for n in range(len(stream.steps)) if isinstance(at(tree, stream.steps[:n]), dict)
    ]
    steps = (*parents[depth % len(parents)], "quite new")
    done = edit("c.yaml", stream.text.encode(), f"{stream.document}#{key_of(steps)}", value)
    expected = list(yaml.safe_load_all(stream.text))
    expected[stream.document] = put(tree, steps, value)
    assert list(yaml.safe_load_all(done.data)) == expected
    assert is_inserted(stream.text.encode(), done.data)
