"""Scripts to start, of each framework."""

from pathlib import Path

import pytest


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text("import torch\n")
    return str(path)


@pytest.fixture
def mindspore_script(tmp_path: Path) -> str:
    path = tmp_path / "train_ms.py"
    path.write_text("import mindspore as ms\nfrom mindspore.communication import init\n")
    return str(path)
