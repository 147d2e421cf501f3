"""``--dry-run``: where a restart would resume, in what is known of it."""

import struct
import sys
from pathlib import Path

import pytest

from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.run.dry_run import show
from support.asking import plan
from support.ckpt_bytes import ckpt, save

_HEAD = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
SILENT = struct.pack("<Q", len(_HEAD)) + _HEAD + b"x"
"""Safetensors that say nothing about training."""


def told(capsys: pytest.CaptureFixture[str], folder: Path) -> tuple[str, int]:
    script = save(folder / "train.py", b"")
    words = (f"--checkpoint_dir={folder}/ckpt", f"--log_dir={folder}/log", "--worker_num=1", str(script))
    code = show(plan(*words).spec, ProcessContext(environ={}, python=sys.executable, import_path=(), pid=1))
    (line,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("after a failure: "))
    return line.removeprefix("after a failure: ").replace(f"{folder}/", ""), code


def test_the_step_is_said_the_epoch_where_only_it_is_known_and_never_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "ckpt/unknown.safetensors", SILENT)
    assert told(capsys, tmp_path) == ("resume from ckpt/unknown.safetensors, step unknown", 0)
    save(tmp_path / "ckpt/epoch_9.safetensors", SILENT)
    assert told(capsys, tmp_path) == ("resume from ckpt/epoch_9.safetensors, epoch 9", 0)
    save(tmp_path / "ckpt/net-10_20.ckpt", ckpt(10, 200))
    assert told(capsys, tmp_path) == ("resume from ckpt/net-10_20.ckpt, step 200 (epoch 10)", 0)
