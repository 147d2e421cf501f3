"""The tables of other launchers' options, compared with the launchers that are installed."""

import argparse
import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from faultrun.adopt.launcher_options import LAUNCHERS
from support.places import ROOT


@pytest.mark.torch
@pytest.mark.slow
def test_the_options_of_accelerate_are_its_own() -> None:
    pytest.importorskip("accelerate")
    from accelerate.commands.launch import launch_command_parser

    parser: argparse.ArgumentParser = launch_command_parser()
    known = {
        spelled.lstrip("-").replace("-", "_"): action
        for action in parser._actions
        for spelled in action.option_strings
    }
    row = LAUNCHERS["accelerate launch"]
    assert set(row) <= set(known)
    for name, turns in row.items():
        assert (turns.width == 0) == (known[name].nargs == 0), name
    flags = {name for name, action in known.items() if action.nargs == 0} - {"h", "help"}
    assert len(flags - set(row)) < len(flags), "an unknown option is guessed: its next word may be the script"


def test_the_options_of_deepspeed_are_its_own() -> None:
    found = find_spec("deepspeed")
    folder = Path(found.origin).parent if found and found.origin else ROOT / ".codes/deepspeed/deepspeed"
    source = folder / "launcher" / "runner.py"
    if not source.is_file():
        pytest.skip("DeepSpeed is not here: make deepspeed")
    widths: dict[str, int] = {}
    for node in ast.walk(ast.parse(source.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=words, keywords=told):
                flag = any(ast.unparse(one.value) == "'store_true'" for one in told if one.arg == "action")
                spelled = [str(one.value) for one in words if isinstance(one, ast.Constant)]
                widths.update({one.lstrip("-"): 0 if flag else 1 for one in spelled if one.startswith("-")})
            case _:
                pass
    row = LAUNCHERS["deepspeed"]
    assert set(row) == set(widths)
    assert {name: turns.width for name, turns in row.items()} == widths


@pytest.mark.torch
@pytest.mark.slow
def test_the_options_of_fabric_are_its_own() -> None:
    pytest.importorskip("lightning")
    from lightning.fabric.cli import _run

    spelled = {
        word.lstrip("-").replace("-", "_") for one in _run.params for word in one.opts if word[0] == "-"
    }
    assert spelled == set(LAUNCHERS["fabric run"])
