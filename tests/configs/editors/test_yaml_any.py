"""Any YAML document, any key, any value: PyYAML reads the same but for that value, and nothing else moved."""

import json

import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from faultrun.configs.editors.registry import edit
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

NAMES = ("pre_trained", "a", "b.c", "on", "with space", "ключ", "x-y", "it's", "q#r", "z: w")
PLAIN = (
    *("word", "two words", "a/b.c", "it's"),
    *("0", "12", "-3", "1.5", "1e-3", "1.0e+5", "true", "False", "no"),
)
PLAIN_TOO = ("~", "null", "2020-01-01", "0x1F", "1_000", "a#b", "http://x:80/y", "x:y", "-dash", "ünï")
COMMENTS = ("", "", "", "  # tail: x", " # 'quoted")


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
    mapping = len(steps) == 1 or draw(st.booleans())
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
def streams(draw: st.DrawFn) -> Pieces:
    """One to three documents; the first step to a value is the number of its document."""
    newline = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    pieces: Pieces = []
    for number in range(draw(st.integers(1, 3))):
        if number or draw(st.booleans()):
            pieces.append("---" + draw(st.sampled_from(["", " # doc"])) + newline)
        pieces += block(draw, (number,), 2, "", newline)
    last = pieces[-1]
    if draw(st.integers(0, 4)) == 0 and isinstance(last, str):
        pieces[-1] = last.removesuffix(newline)
    return pieces


def key_in(steps: Steps) -> str:
    return f"{steps[0]}#{key_of(steps[1:])}"


@settings(max_examples=75, deadline=None)
@given(streams(), st.data(), hostile_text)
def test_only_the_value_that_was_named_reads_differently_and_doing_it_again_changes_nothing(
    pieces: Pieces, data: st.DataObject, value: str
) -> None:
    chosen = choose(pieces, data)
    steps, text = chosen.leaf.steps, joined(pieces)
    trees = list(yaml.safe_load_all(text))
    done = edit("c.yaml", text.encode(), key_in(steps), value).data
    assert list(yaml.safe_load_all(done)) == put(trees, steps, as_the_old_type(at(trees, steps), value))
    assert done.startswith(chosen.before.encode())
    assert done.endswith(chosen.behind.encode())
    again = edit("c.yaml", done, key_in(steps), value)
    assert again.data == done
    assert again.change.nothing


@settings(max_examples=25, deadline=None)
@given(streams(), st.data(), hostile_text)
def test_a_missing_key_is_added_and_nothing_moves(pieces: Pieces, data: st.DataObject, value: str) -> None:
    text = joined(pieces)
    assume(text.endswith("\n"))
    chosen, trees = choose(pieces, data).leaf.steps, list(yaml.safe_load_all(text))
    parents = [chosen[:n] for n in range(1, len(chosen)) if isinstance(at(trees, chosen[:n]), dict)]
    steps = (*data.draw(st.sampled_from(parents)), "quite new")
    done = edit("c.yaml", text.encode(), key_in(steps), value).data
    assert list(yaml.safe_load_all(done)) == put(trees, steps, value)
    assert is_inserted(text.encode(), done)
