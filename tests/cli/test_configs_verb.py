"""``faultrun config``: what a person types and reads."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultrun.cli.config import config
from faultrun.errors import FaultrunError
from faultrun.journal.logdir import claim
from support.places import TESTS
from support.stories.story import new_run

GOLDEN = TESTS / "golden" / "config_verb.txt"
TEXT = "a: 1\npre_trained: ''  # path\n---\npre_trained: help\n"

SESSION = (
    *("set train.yaml:pre_trained /ckpt/x.ckpt --diff", "set train.yaml:pre_trained /ckpt/x.ckpt"),
    *("set train.yaml:pre_trained /ckpt/x.ckpt", "set train.yaml:a -3", "set train.yaml:1#epoch 5"),
    *("set yaml:notes.txt:on true", "set fixed.json:a 2", "set train.yaml:b.c 1"),
    *("set train.yaml:a=1 2", "set nowhere.yaml:a 1", "set train.yaml:pre_trained"),
    *("restore other.yaml", "restore train.yaml", "restore", "restore --log_dir=elsewhere"),
)


def run(*words: str, env: Mapping[str, str] | None = None) -> str:
    """The exit code and everything that was printed, as ``faultrun config WORDS`` would show it."""
    result = CliRunner().invoke(config, words, env=env, standalone_mode=False)
    error = result.exception
    if isinstance(error, FaultrunError):
        return f"{result.output}faultrun: {error}\n[exit {error.exit_code}]\n"
    if error is not None:
        return f"{result.output}{type(error).__name__}: {error}\n"
    return f"{result.output}[exit {result.return_value}]\n"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(tmp_path)
    Path("train.yaml").write_text(TEXT)
    Path("notes.txt").write_text("on: false\n")
    Path("fixed.json").write_text('{"a": 1}')
    Path("fixed.json").chmod(0o444)
    yield tmp_path
    os.chdir(before)


def test_every_message_is_the_agreed_one(here: Path) -> None:
    told = "".join(f"$ faultrun config {words}\n{run(*words.split())}" for words in SESSION)
    shown = told.replace(str(here), "DIR")
    for folder in (here / "faultrun_log" / "edited").iterdir():
        shown = shown.replace(folder.name, "8e8e8e8e")
    assert shown == GOLDEN.read_text()


def test_diff_changes_nothing_and_makes_nothing(here: Path) -> None:
    run("set", "train.yaml:pre_trained", "x", "--diff")
    assert Path("train.yaml").read_text() == TEXT
    assert not Path("faultrun_log").exists()


def test_the_log_dir_may_come_from_the_environment(here: Path) -> None:
    run("set", "train.yaml:a", "2", env={"FAULTRUN_LOG_DIR": "elsewhere"})
    assert sorted(path.name for path in Path("elsewhere/original").iterdir()) == [
        "by_hand.json",
        "hand-001-train.yaml",
    ]


def test_a_value_may_be_set_where_a_run_will_be_and_not_beside_files_of_others(here: Path) -> None:
    run("set", "train.yaml:a", "2", "--log_dir=ours")
    assert claim(Path("ours"), new_run(2), "run").past is None
    Path("other/original").mkdir(parents=True)
    Path("other/original/index.json").write_text("{}")
    assert "original/index.json" in run("set", "train.yaml:a", "3", "--log_dir=other")
