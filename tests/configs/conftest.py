"""A folder of one's own to work in, and the configuration of a ModelZoo script in it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.checkpoints.config_files import MODELZOO


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """An empty current directory."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


@pytest.fixture
def config(here: Path) -> Path:
    file = here / "train.yaml"
    file.write_bytes(MODELZOO.encode())
    file.chmod(0o640)
    return file


@pytest.fixture
def originals(here: Path) -> Path:
    return here / "log" / "original"
