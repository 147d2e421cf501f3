"""A configuration that not everybody may read: no copy of it can be read by more people."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.configs.apply import apply
from faultrun.configs.files import Attributes
from support.checkpoints.config_files import one

NOBODY = 65534


def config(folder: Path, mode: int) -> Path:
    file = folder / "train.yaml"
    file.write_text("token: s3cret\npre_trained: ''\n")
    file.chmod(mode)
    return file


def copies(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.yaml") if path.is_file() and "log" in path.parts]


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640, 0o644])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_an_original_and_an_edited_copy_have_the_files_mode(tmp_path: Path, mode: int, umask: int) -> None:
    file = config(tmp_path, mode)
    before = os.umask(umask)
    try:
        apply(one(file, "pre_trained", "/ckpt/5"), originals=tmp_path / "log" / "original")
    finally:
        os.umask(before)
    (copy,) = copies(tmp_path)
    assert stat.S_IMODE(copy.stat().st_mode) & ~stat.S_IWUSR == mode & ~stat.S_IWUSR


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_what_root_copies_belongs_to_the_owner_of_the_file(tmp_path: Path) -> None:
    file = config(tmp_path, 0o440)
    os.chown(file, NOBODY, NOBODY)
    apply(one(file, "pre_trained", "/ckpt/5"), originals=tmp_path / "log" / "original")
    (copy,) = copies(tmp_path)
    assert (copy.stat().st_uid, copy.stat().st_gid) == (NOBODY, NOBODY)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else")
@given(mode=st.integers(0, 0o777))
def test_in_another_group_a_copy_gives_it_what_everybody_has(mode: int) -> None:
    copied = as_nobody(lambda: Attributes(mode=mode, owner=(0, 0)).of_a_copy().mode)
    own = as_nobody(lambda: Attributes(mode=mode, owner=(NOBODY, NOBODY)).of_a_copy().mode)
    assert copied >> 3 & 7 == (mode >> 3 & 7) & (mode & 7)
    assert copied & 7 == mode & 7
    assert own == mode | 0o400


def as_nobody(act: Callable[[], int]) -> int:
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        return act()
    finally:
        os.seteuid(0)
        os.setegid(0)
