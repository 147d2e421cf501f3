"""Shell completion, by click's protocol: what is offered behind each word."""

import os
import subprocess

import pytest
from click.shell_completion import get_completion_class

from faultrun.cli import app
from faultrun.cli.verbs import VERBS
from support.runs import FAULTRUN


def offered(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What bash is told for ``line``, whose last word is incomplete; ``dir`` and ``file`` stand for those."""
    words = line.split(" ")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    bash = get_completion_class("bash")
    assert bash is not None
    told = bash(app.program(), {}, "faultrun", "_FAULTRUN_COMPLETE").complete()
    kinds = [one.split(",") for one in told.splitlines()]
    return [value if kind == "plain" else kind for kind, value in kinds]


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("faultrun sta", ["status"]),
        ("faultrun --check", ["--checkpoint_dir", "--checkpoint_pattern"]),
        ("faultrun --worker_num 4 --reci", ["--recipe"]),
        ("faultrun run --dry", ["--dry-run"]),
        ("faultrun --recipe mindspore-r", ["mindspore-resnet"]),
        ("faultrun --recipe=mindspore-l", ["mindspore-lenet"]),
        ("faultrun --recipe = mindspore-l", ["mindspore-lenet"]),
        ("faultrun --recipe =", ["mindspore-lenet"]),
        ("faultrun --resume a", ["auto", "always"]),
        ("faultrun --standby n", ["none"]),
        ("faultrun --hang_timeout o", ["off"]),
        ("faultrun --log_format j", ["json"]),
        ("faultrun --checkpoint_dir ck", ["dir"]),
        ("faultrun --config f", ["file"]),
        ("faultrun --config n", ["file", "none"]),
        ("faultrun --worker_num 4 tr", ["file"]),
        ("faultrun status --lo", ["--log_dir"]),
        ("faultrun status --log_dir f", ["dir"]),
        ("faultrun ckpt ver", ["verify"]),
        ("faultrun ckpt list --depth s", ["structure"]),
        ("faultrun ckpt list c", ["dir"]),
        ("faultrun recipes show transf", ["transformers"]),
        ("faultrun render vc", ["vcjob"]),
        ("faultrun lint j", ["file"]),
        ("faultrun docs getting", ["getting-started"]),
    ],
)
def test_what_may_come_next_is_offered(line: str, among: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(among) <= set(offered(line, monkeypatch))


def test_every_verb_and_a_script_are_offered_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*VERBS, "run", "file"} <= set(offered("faultrun ", monkeypatch))


def test_behind_the_script_nothing_of_ours_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--worker_num" not in offered("faultrun train.py --work", monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_of_the_documentation_gives_each_shell_its_script(shell: str) -> None:
    environ = {**os.environ, "_FAULTRUN_COMPLETE": f"{shell}_source"}
    done = subprocess.run(FAULTRUN, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert f"_FAULTRUN_COMPLETE={shell}_complete" in done.stdout
