"""Python configurations, run before and after."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.configs.editors.registry import edit
from faultrun.errors import ConfigError
from support.checkpoints.config_texts import as_the_old_type, hostile_text

OLD = ('""', "'old'", '"a # b"', "r'raw\\x'", "0", "12", "-3", "0.1", "1e-3", "True", "None", "'a' \"b\"")
MULTI = ('("one"\n     "two")', '"""three\nlines"""', "os.path.join('a', 'b')")
FORMS = (
    ("{name} = {value}", ("{name}",)),
    ("{name}: object = {value}", ("{name}",)),
    (
        "class C_{name}(object):\n    '''doc'''\n    {name} = {value}\n    other = 1",
        ("C_{name}.{name}", "{name}"),
    ),
    ("d_{name} = {{'x': 1, '{name}': {value}, 'y': [2]}}", ("d_{name}.{name}", "{name}")),
    ("d_{name} = {{'x': {{\n  \"{name}\" : {value} , # tail\n }}}}", ("d_{name}.x.{name}", "x.{name}")),
    ("k_{name} = dict(a=1, {name}={value})", ("k_{name}.{name}", "{name}")),
    ("l_{name} = [0, {{'{name}': {value}}}]", ("l_{name}[1].{name}", "{name}")),
    ("s_{name} = {{}}\ns_{name}['{name}'] = {value}", ("s_{name}.{name}",)),
    ("if 1:\n    {name} = {value}  # ünï", ("{name}",)),
    (
        "def f_{name}():\n    return dict({name}={value})\nr_{name} = f_{name}()",
        ("f_{name}.{name}", "{name}"),
    ),
)


@st.composite
def files(draw: st.DrawFn) -> tuple[list[str], str]:
    """Statements in pieces, the text of one value, and a KEY that names it."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    head = draw(
        st.sampled_from(["import os\n", "# -*- coding: utf-8 -*-\nimport os\n", "import os; zz = 'é'\n"])
    )
    pieces = [head]
    values: list[tuple[int, str, str]] = []
    for name in draw(st.permutations(["pre_trained", "epoch", "lr"]))[: draw(st.integers(1, 3))]:
        form, keys = draw(st.sampled_from(FORMS))
        before, behind = form.format(name=name, value="\0").split("\0")
        value = draw(st.sampled_from(OLD + MULTI))
        values.append((len(pieces) + 1, value, draw(st.sampled_from(keys)).format(name=name)))
        pieces += [before, value, behind + draw(st.sampled_from(["", "  # note: it's = 1"])) + "\n"]
    at, value, key = draw(st.sampled_from(values))
    lead = 1 if value.startswith("(") else 0
    split = ["".join(pieces[:at]) + value[:lead], value[lead:-lead] if lead else value]
    texts = [*split, (value[-lead:] if lead else "") + "".join(pieces[at + 1 :])]
    return [text.replace("\n", newline) for text in texts], key


def run(text: str) -> dict[str, object]:
    """What the file defines: everything that can be compared, classes by their attributes."""
    names: dict[str, object] = {}
    exec(compile(text, "config.py", "exec"), names)
    for name, value in list(names.items()):
        if isinstance(value, type):
            names[name] = {
                key: attribute for key, attribute in vars(value).items() if key in ("other", name[2:])
            }
    return {
        name: value
        for name, value in names.items()
        if name not in {"__builtins__", "os"} and name[:2] != "f_"
    }


@settings(max_examples=25, deadline=None)
@given(files(), hostile_text)
def test_only_the_bytes_of_the_named_value_change(file: tuple[list[str], str], value: str) -> None:
    (before, old, behind), key = file
    text = before + old + behind
    done = edit("c.py", text.encode(), key, value).data
    literal = None if "os.path" in old else eval(f"({old})")
    wanted = repr(as_the_old_type(literal, value))
    assert run(done.decode()) == run(before + wanted + behind)
    assert done.startswith(before.encode())
    assert done.endswith(behind.encode())
    assert edit("c.py", done, key, value).data == done


TENSORFLOW = """# coding=utf-8
import os

res50_config = {
    # checkpoints
    'restore_path': '',  # where to start
    'model_dir': os.path.join('a', "b"), "num_epochs" : None,
    'stages': [{'lr': 0.1}, {'lr': 0.01}],
}


def get_config(restore_path=''):
    return res50_config
"""


def test_a_key_of_a_dictionary_literal_changes_in_its_own_quotes() -> None:
    done = edit("res50_config.py", TENSORFLOW.encode(), "restore_path", "/ckpt/model.ckpt-1000").data
    assert done.decode() == TENSORFLOW.replace(
        "'restore_path': ''", "'restore_path': '/ckpt/model.ckpt-1000'"
    )


def test_positions_in_lists_are_part_of_a_key() -> None:
    done = edit("c.py", TENSORFLOW.encode(), "stages[1].lr", "1").data
    assert done.decode() == TENSORFLOW.replace("0.01", "1.0")


def test_a_literal_wins_over_a_place_that_only_passes_it_on() -> None:
    text = b"pre = ''\ntrain(pre=pre)\n"
    assert edit("c.py", text, "pre", "/x").data == b"pre = '/x'\ntrain(pre=pre)\n"


def test_the_files_own_encoding_is_kept() -> None:
    text = "# -*- coding: gbk -*-\nname = '中'\nckpt = ''\n"
    assert edit("c.py", text.encode("gbk"), "ckpt", "/文").data == text.replace("''", "'/文'").encode("gbk")
    with pytest.raises(ConfigError) as caught:
        edit("c.py", text.encode("gbk"), "ckpt", "/😀")
    assert "cannot be written in gbk" in caught.value.because


def test_a_byte_order_mark_and_line_ends_stay() -> None:
    done = edit("c.py", b"\xef\xbb\xbfa = 1\r\nb = ''\r\n", "b", "x").data
    assert done == b"\xef\xbb\xbfa = 1\r\nb = 'x'\r\n"
