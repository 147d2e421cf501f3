"""What a person sets and what a run sets, in one file, in any order: each takes back its own."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.configs.apply import apply
from faultrun.configs.originals import of_a_person, restore
from faultrun.errors import ConfigError
from faultrun.journal.logdir import set_aside
from faultrun.model.edit import By
from support.checkpoints.config_files import one

FIRST = 'lr: 5  # warm\nepochs: 9\npre_trained: ""\n'

RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Syncing is free there."""

Deed = tuple[str, int]

DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["hand lr", "hand epochs", "run", "run ends", "run restores"]), st.integers(0, 9)
    ),
    max_size=9,
)


@settings(max_examples=60, deadline=None)
@given(DEEDS)
def test_a_run_takes_back_its_own_values_and_a_person_takes_back_all(deeds: list[Deed]) -> None:
    with tempfile.TemporaryDirectory(dir=RAM) as made:
        folder = Path(made)
        file, log_dir = folder / "train.yaml", folder / "log"
        originals = log_dir / "original"
        log_dir.mkdir()
        file.write_text(FIRST)
        lr, epochs, point = "5", "9", '""'
        for number, (deed, value) in enumerate(deeds):
            match deed:
                case "hand lr":
                    apply(one(file, "lr", value), originals=originals, by=By.HAND)
                    lr = str(value)
                case "hand epochs":
                    apply(one(file, "epochs", value), originals=originals, by=By.HAND)
                    epochs = str(value)
                case "run":
                    apply(one(file, "pre_trained", f"/ckpt/{value}"), originals=originals)
                    point = f'"/ckpt/{value}"'
                case _:
                    restore(originals)
                    point = '""'
            if deed == "run ends":
                (log_dir / "journal.jsonl").touch()
                set_aside(log_dir, str(number), staying=of_a_person(log_dir))
            assert file.read_text() == f"lr: {lr}  # warm\nepochs: {epochs}\npre_trained: {point}\n"
        restore(originals, by=By.HAND)
        assert file.read_text() == FIRST


def test_what_somebody_else_changed_is_neither_lost_by_a_run_nor_by_a_person(tmp_path: Path) -> None:
    file, originals = tmp_path / "train.yaml", tmp_path / "log" / "original"
    file.write_text(FIRST)
    apply(one(file, "lr", 1), originals=originals, by=By.HAND)
    apply(one(file, "pre_trained", "/ckpt/5"), originals=originals)
    changed = file.read_text() + "seed: 1\n"
    file.write_text(changed)
    restore(originals)
    assert file.read_text() == changed.replace('"/ckpt/5"', '""')
    with pytest.raises(ConfigError, match="changed by another program"):
        restore(originals, by=By.HAND)
    assert "seed: 1" in file.read_text()


def test_a_copy_that_was_edited_by_hand_is_not_made_anew_by_a_run(tmp_path: Path) -> None:
    file, originals = tmp_path / "train.yaml", tmp_path / "log" / "original"
    file.write_text(FIRST)
    file.chmod(0o444)
    (mine,) = apply(one(file, "lr", 1), originals=originals, by=By.HAND)
    (theirs,) = apply(one(file, "pre_trained", "/ckpt/5"), originals=originals)
    assert mine.copy is not None
    assert theirs.copy is not None
    assert "lr: 1 " in Path(mine.copy.path).read_text()
    assert "lr: 5 " in Path(theirs.copy.path).read_text()


def test_a_second_value_set_by_hand_in_a_read_only_file_keeps_the_first(tmp_path: Path) -> None:
    file, originals = tmp_path / "train.yaml", tmp_path / "log" / "original"
    file.write_text("lr: 1\nepochs: 2\n")
    file.chmod(0o400)
    apply(one(file, "lr", 3), originals=originals, by=By.HAND)
    (result,) = apply(one(file, "epochs", 4), originals=originals, by=By.HAND)
    assert result.copy is not None
    assert Path(result.copy.path).read_text() == "lr: 3\nepochs: 4\n"
    (ran,) = apply(one(file, "epochs", 5), originals=originals)
    assert ran.copy is not None
    assert Path(ran.copy.path).read_text() == "lr: 1\nepochs: 5\n"
