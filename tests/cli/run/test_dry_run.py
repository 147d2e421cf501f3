"""``--dry-run``: where a restart would resume, in what is known of it."""

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from faultrun.cli.options.choices import DryRun
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.run.dry_run import show
from support.asking import plan, plan_of_several
from support.checkpoints.ckpt_bytes import ckpt, save

_HEAD = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
SILENT = struct.pack("<Q", len(_HEAD)) + _HEAD + b"x"
"""Safetensors that say nothing about training."""


def shown(words: Sequence[str]) -> int:
    settled = plan("--dry-run", *words)
    around = ProcessContext(environ={}, python=sys.executable, import_path=(), pid=1)
    return show(settled.spec, around, settled.dry_run)


def told(capsys: pytest.CaptureFixture[str], folder: Path) -> tuple[str, int]:
    script = save(folder / "train.py", b"")
    words = (f"--checkpoint_dir={folder}/ckpt", f"--log_dir={folder}/log", "--worker_num=1", str(script))
    code = shown(words)
    (line,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("after a failure: "))
    said, _, if_ours = line.removeprefix("after a failure: ").partition(", if it is of this run: ")
    assert if_ours == "a new run leaves alone what was there before"
    return said.replace(f"{folder}/", ""), code


def test_the_step_is_said_the_epoch_where_only_it_is_known_and_never_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "ckpt/unknown.safetensors", SILENT)
    assert told(capsys, tmp_path) == ("resume from ckpt/unknown.safetensors, step unknown", 0)
    save(tmp_path / "ckpt/epoch_9.safetensors", SILENT)
    assert told(capsys, tmp_path) == ("resume from ckpt/epoch_9.safetensors, epoch 9", 0)
    save(tmp_path / "ckpt/net-10_20.ckpt", ckpt(10, 200))
    assert told(capsys, tmp_path) == ("resume from ckpt/net-10_20.ckpt, step 200 (epoch 10)", 0)


def test_of_many_workers_the_first_are_shown_and_how_the_others_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(save(tmp_path / "train.py", b"import torch\n"))
    assert shown([f"--log_dir={tmp_path}/log", "--worker_num=1000", script]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": 1,000 workers, framework torch")
    assert len(lines) < 80
    assert [line.split()[1] for line in lines if line.startswith("rank ")] == ["0", "1", "2", "3"]
    assert lines.count("    WORLD_SIZE=1000") == 1
    assert "    RANK=3" in lines
    (rest,) = (line for line in lines if line.startswith("ranks 4 to 999: as rank 0, each with its own "))
    assert {"RANK", "LOCAL_RANK", "RANK_ID"} <= set(rest.split())
    assert "WORLD_SIZE" not in rest.split()


def test_the_whole_plan_has_all_their_variables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = str(save(tmp_path / "train.py", b"import torch\n"))
    assert shown([f"--log_dir={tmp_path}/log", "--dry-run=full", "--worker_num=6", script]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("rank ")] == list("012345")
    assert lines.count("    WORLD_SIZE=6") == 6


def test_workers_that_are_few_are_all_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = str(save(tmp_path / "train.py", b"import torch\n"))
    assert shown([f"--log_dir={tmp_path}/log", "--worker_num=2", "--worker_dir=w_{rank}", script]) == 0
    out = capsys.readouterr().out
    assert "ranks " not in out
    assert [line for line in out.splitlines() if line.startswith("    in ")] == [
        f"    in {Path.cwd()}/w_0",
        f"    in {Path.cwd()}/w_1",
    ]


def test_one_of_several_nodes_shows_its_own_ranks(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--worker_num=4", "--local_worker_num=2", "--master_addr=127.0.0.1", "--node_rank=1", script)
    around = ProcessContext(environ={}, python=sys.executable, import_path=(), pid=1)
    assert show(plan_of_several(*words), around, DryRun.FULL) == 0
    told = capsys.readouterr().out
    assert [line.split()[1] for line in told.splitlines() if line.startswith("rank ")] == ["2", "3"]
    assert "MASTER_ADDR='<the first node>'" in told
    assert "NODE_RANK=1" in told
