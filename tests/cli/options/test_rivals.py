"""Our options beside the real msrun's and torchrun's, read from their sources without importing them."""

import ast
import importlib.util
from pathlib import Path

import pytest

from faultrun.cli.options.option import Takes
from faultrun.cli.options.settings import OPTIONS, Asked, collect
from faultrun.cli.options.table.torchrun_rows import needles
from support.places import DOCS

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
def test_every_option_of_the_real_torchrun_is_ours_with_the_same_shape() -> None:
    real = declared(source_of("torch", "distributed/run.py"))
    assert real.keys() >= EVERYDAY
    assert len(real) >= 30
    for name, (spellings, takes_value) in real.items():
        assert spellings <= ours(), f"torchrun has {spellings}"
        assert (OPTIONS[name].takes is not Takes.NOTHING) == takes_value


PETS = {
    "nnodes": "1:1", "nproc_per_node": "2", "max_restarts": "7", "monitor_interval": "0.5", "node_rank": "0",
    "master_port": "29501", "shutdown_timeout": "60", "redirects": "0:1", "tee": "3",
    "start_method": "fork", "standalone": "1", "module": "0", "no_python": "0", "run_path": "1",
    "virtual_local_rank": "1", "local_ranks_filter": "0,1", "rdzv_conf": "timeout=9",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.torch
def test_torchruns_variables_are_read_where_its_parser_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    run = pytest.importorskip("torch.distributed.run")
    known = [action for action in run.get_args_parser()._actions if action.option_strings]
    read = {one.dest for one in known if type(one).__name__ in ("env", "check_env")}
    assert read == {name for name, option in OPTIONS.items() if option.torch}
    flags = {name for name in read if OPTIONS[name].takes is Takes.NOTHING}
    environ = {f"PET_{name.upper()}": PETS.get(name, "word") for name in read}
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    theirs = run.get_args_parser().parse_args(["train.py"])
    settings = collect(Asked(options={}, words=("train.py",)), environ)
    for name in read:
        assert settings.given[name].where == f"PET_{name.upper()}"
        if name in flags:
            assert getattr(settings, name) == getattr(theirs, name), name
    assert (settings.max_restarts, settings.monitor_interval) == (
        theirs.max_restarts,
        theirs.monitor_interval,
    )
    assert (settings.role, settings.start_method) == (theirs.role, theirs.start_method)
    assert list(settings.duplicate_stdout_filters) == theirs.duplicate_stdout_filters


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("text", ["apple", "apple,orange", "one,,comma,two"])
def test_filters_are_parted_as_the_real_parser_parts_them(text: str) -> None:
    run = pytest.importorskip("torch.distributed.run")
    theirs = run.get_args_parser().parse_args([f"--duplicate-stdout-filters={text}", "train.py"])
    assert list(needles(text)) == theirs.duplicate_stdout_filters


def test_the_everyday_options_of_torchrun_are_promised_whatever_is_installed() -> None:
    assert OPTIONS.keys() >= EVERYDAY


@pytest.mark.torch
def test_the_page_for_torchruns_users_names_each_of_its_options() -> None:
    page = (DOCS / "coming-from-torchrun.md").read_text(encoding="utf-8")
    table = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {word.strip("`, ") for cell in table for word in cell.split()}
    real = declared(source_of("torch", "distributed/run.py"))
    spelled = {f"--{name.replace('_', '-')}" for name in real}
    assert {word for word in named if word.startswith("--")} == spelled
