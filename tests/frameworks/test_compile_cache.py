"""``--compile_cache``: who may share compiled graphs, and what workers are told."""

from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.frameworks.environment import compile_cache_variables
from faultrun.model.plan import Attempt, Ledger, Reason, Restart
from support.asking import plan
from support.stories.story import checkpoint, first_plan

POINT = checkpoint(10, "/ckpt/net-10.ckpt")
PLAN = first_plan(2, incarnation=1, reason=Reason.FAULT, point=POINT)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("from mindspore.communication import init\n")
    return path


def cache(*words: str, **environ: str) -> str:
    return plan(*words, environ=environ).spec.compile_cache


def test_nothing_is_kept_unless_it_is_asked_for(script: Path) -> None:
    assert cache(str(script)) == cache("--compile_cache=none", str(script)) == ""
    assert compile_cache_variables("", PLAN) == {}


def test_a_folder_serves_one_script_with_its_arguments_and_its_workers(script: Path) -> None:
    words = ("--compile_cache=log_dir", "--log_dir=/logs")
    folder = cache(*words, str(script), "--lr=1")
    assert folder.startswith("/logs/compile_cache/")
    assert cache(*words, str(script), "--lr=1") == folder
    assert cache(*words, str(script), "--lr=2") != folder
    assert cache(*words, "--worker_num=2", str(script), "--lr=1") != folder
    script.write_text(script.read_text() + "import os\n")
    assert cache(*words, str(script), "--lr=1") != folder
    assert cache("--compile_cache=/caches", str(script)).startswith("/caches/")


def test_who_has_a_cache_already_keeps_it_and_others_are_told(tmp_path: Path, script: Path) -> None:
    assert cache("--compile_cache=log_dir", str(script), MS_COMPILER_CACHE_PATH="/mine") == ""
    torch = tmp_path / "other.py"
    torch.write_text("import torch\n")
    settled = plan("--compile_cache=log_dir", str(torch))
    assert settled.spec.compile_cache == ""
    assert any("--compile_cache" in note for note in settled.notes)


def test_a_start_that_failed_is_followed_by_an_empty_folder() -> None:
    assert compile_cache_variables("/c/key", PLAN) == {
        "MS_COMPILER_CACHE_ENABLE": "1",
        "MS_COMPILER_CACHE_PATH": "/c/key/0",
    }
    failed = Ledger(attempts=(Attempt(path=POINT.path, failures=2),))
    assert (
        compile_cache_variables("/c/key", replace(PLAN, ledger=failed))["MS_COMPILER_CACHE_PATH"]
        == "/c/key/2"
    )
    unseen = Ledger(restarts=(Restart(at_s=1, step=-1), Restart(at_s=2, step=30)))
    from_nothing = replace(PLAN, point=None, ledger=unseen)
    assert compile_cache_variables("/c/key", from_nothing)["MS_COMPILER_CACHE_PATH"] == "/c/key/1"
