"""``.env`` and shell files, read by a real shell before and after."""

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.configs.editors.registry import edit
from support.checkpoints.config_texts import HOSTILE, Leaf, Pieces, choose, is_inserted, joined

VALUES = st.sampled_from(HOSTILE) | st.text(
    alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8
)
OLD = ("", "old", "/a/b.ckpt", '"two words"', "'single # quoted'", '"esc \\" aped"', "12")
SCRIPT_OLD = (
    *OLD,
    '"$HOME/x"',
    "${UNSET:-'a b'}",
    '$(echo "a )" b)',
    "a\\ b",
    "'a''b'\"c\"",
    "`echo q`",
    "$'t\\tq'",
)
NAMES = ("PRE_TRAINED", "EPOCH", "_x", "Y2")


def sourced(text: str) -> dict[str, str]:
    """Every variable of ``NAMES`` and NEW after a shell has read the file; "unset" for unset ones."""
    script = "set -a; . /dev/stdin <<'END-OF-FILE-\u00e9'\n" + text + "\nEND-OF-FILE-\u00e9\n"
    script += "".join(f"printf '%s\\0' \"${{{name}-unset}}\";" for name in (*NAMES, "NEW"))
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        check=True,
        timeout=30,
        env={"HOME": "/h", "PATH": "/usr/bin:/bin"},
    )
    return dict(zip((*NAMES, "NEW"), done.stdout.decode().split("\0"), strict=False))


@st.composite
def files(draw: st.DrawFn, old: tuple[str, ...]) -> Pieces:
    pieces: Pieces = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1)):
        pieces.append(draw(st.sampled_from(["", "\n", f"# {name}=comment\n", "  "])))
        pieces.append(draw(st.sampled_from(["", "export "])) + name + "=")
        pieces.append(Leaf((name,), draw(st.sampled_from(old))))
        pieces.append(draw(st.sampled_from(["", " ", " # tail = it's"])) + "\n")
    return pieces


def check_one_variable_changes(file: str, pieces: Pieces, data: st.DataObject, value: str) -> None:
    chosen = choose(pieces, data)
    name, text = str(chosen.leaf.steps[0]), joined(pieces)
    done = edit(file, text.encode(), name, value).data.decode()
    assert sourced(done) == sourced(text) | {name: value}
    assert done.startswith(chosen.before)
    assert done.endswith(chosen.behind)
    assert edit(file, done.encode(), name, value).data.decode() == done


@settings(max_examples=25, deadline=None)
@given(files(OLD), st.data(), VALUES)
def test_one_variable_of_an_env_file_changes_and_no_other_byte(
    pieces: Pieces, data: st.DataObject, value: str
) -> None:
    check_one_variable_changes(".env", pieces, data, value)


@settings(max_examples=25, deadline=None)
@given(files(SCRIPT_OLD), st.data(), VALUES)
def test_one_variable_of_a_script_changes_and_no_other_byte(
    pieces: Pieces, data: st.DataObject, value: str
) -> None:
    check_one_variable_changes("env.sh", pieces, data, value)


@settings(max_examples=25, deadline=None)
@given(files(OLD), st.sampled_from([".env", ".env.local", "env.sh", "prod.env"]), VALUES)
def test_a_missing_variable_is_appended(pieces: Pieces, file: str, value: str) -> None:
    text = joined(pieces)
    done = edit(file, text.encode(), "NEW", value).data
    assert sourced(done.decode()) == sourced(text) | {"NEW": value}
    assert is_inserted(text.encode(), done)


SCRIPT = """#!/bin/bash
# export CKPT=no
set -e
export LR=0.1 CKPT="$HOME/a b"   # start
if [ -n "$LR" ]; then DEVICE=0; fi
cat <<-EOF > /dev/null
	CKPT=not this one
	EOF
STEP=5 \\
  NAME=x python3 train.py CKPT=nor-this --x="CKPT=$LR"
PARTS=(a b)
LR+=0
"""


def test_in_a_script_only_what_the_shell_takes_for_an_assignment_counts() -> None:
    for name, old in (("CKPT", '"$HOME/a b"'), ("DEVICE", "0"), ("STEP", "5"), ("NAME", "x")):
        done = edit("run.sh", SCRIPT.encode(), name, "/new").data.decode()
        spelled = '"/new"' if old.startswith('"') else "/new"
        assert done == SCRIPT.replace(f"{name}={old}", f"{name}={spelled}")


def test_an_unquoted_value_of_an_env_file_ends_at_its_comment() -> None:
    text = b"CKPT = some old path # keep\nE= # empty\n"
    assert edit(".env", text, "CKPT", "/new").data == b"CKPT = /new # keep\nE= # empty\n"
    assert edit(".env", text, "E", "x").data == b"CKPT = some old path # keep\nE=x # empty\n"
