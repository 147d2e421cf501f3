"""Our options beside the real msrun's and torchrun's, read from their sources without importing them."""

import ast
import importlib.util
from pathlib import Path

import pytest

from faultrun.cli.options.command import TORCHRUN_ONLY
from faultrun.cli.options.option import Takes
from faultrun.cli.options.settings import OPTIONS

EVERYDAY = {
    "nnodes", "nproc_per_node", "node_rank", "master_addr", "master_port", "max_restarts", "standalone",
    "rdzv_backend", "rdzv_endpoint", "rdzv_id", "redirects", "tee", "log_dir", "module", "no_python",
    "monitor_interval", "shutdown_timeout",
}  # fmt: skip
"""The options of torchrun that CONTRACT promises."""


def source_of(package: str, file: str) -> str:
    """The text of a file of an installed package, found without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return (Path(spec.submodule_search_locations[0]) / file).read_text(encoding="utf-8")


def declared(source: str) -> dict[str, tuple[set[str], bool]]:
    """Options of an argparse parser by name: all spellings, and whether a value follows."""
    options: dict[str, tuple[set[str], bool]] = {}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=names, keywords=keywords):
                words = {name.value for name in names if isinstance(name, ast.Constant)}
                spellings = {str(word) for word in words if str(word).startswith("-")}
                actions = {ast.unparse(entry.value) for entry in keywords if entry.arg == "action"}
                if spellings:
                    longest = max(spellings, key=len).lstrip("-").replace("-", "_")
                    options[longest] = (spellings, not actions & {"check_env", "'store_true'"})
            case _:
                pass
    return options


def ours() -> set[str]:
    names = {option.name for option in OPTIONS.values()}
    long = {f"--{name}" for name in names} | {f"--{name.replace('_', '-')}" for name in names}
    return long | {f"-{option.short}" for option in OPTIONS.values() if option.short}


@pytest.mark.mindspore
def test_every_option_of_the_real_msrun_is_ours_with_the_same_shape() -> None:
    real = declared(source_of("mindspore", "parallel/cluster/run.py"))
    assert len(real) >= 15
    for name, (spellings, takes_value) in real.items():
        assert spellings <= ours(), f"msrun has {spellings}"
        assert (OPTIONS[name].takes is not Takes.NOTHING) == takes_value


@pytest.mark.torch
def test_every_option_of_the_real_torchrun_is_ours_or_refused_with_a_reason() -> None:
    real = declared(source_of("torch", "distributed/run.py"))
    assert real.keys() >= EVERYDAY
    for name, (spellings, takes_value) in real.items():
        if name in TORCHRUN_ONLY:
            assert name not in OPTIONS
            continue
        assert spellings <= ours(), f"torchrun has {spellings}"
        assert (OPTIONS[name].takes is not Takes.NOTHING) == takes_value
        assert OPTIONS[name].torch, f"{name} is not read from PET_{name.upper()}"


def test_the_everyday_options_of_torchrun_are_promised_whatever_is_installed() -> None:
    assert OPTIONS.keys() >= EVERYDAY
    assert not EVERYDAY & TORCHRUN_ONLY.keys()
