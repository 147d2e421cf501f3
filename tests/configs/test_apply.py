"""Values into real files: what is kept, what is refused, and what stands in for a file that cannot change."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from faultrun.configs.apply import apply, carry_out, check
from faultrun.configs.files import Attributes
from faultrun.configs.former import note_of
from faultrun.configs.originals import restore
from faultrun.core.template import Values
from faultrun.errors import ConfigError
from faultrun.model.spec.run_spec import Rewrite
from support.checkpoints.config_files import MODELZOO, one, written

REWRITES = (
    Rewrite(file="train.yaml", key="pre_trained"),
    Rewrite(file="train.yaml", key="has_trained_epoch", template="{epoch}"),
    Rewrite(file="train.yaml", key="has_trained_step", template="{global_step}"),
)
POINT = Values(
    checkpoint="/ckpt/resnet-5_625.ckpt", run_id="r", incarnation=1, epoch=5, step=625, global_step=3125
)


def test_a_recovery_point_changes_one_line_for_each_key(config: Path, originals: Path) -> None:
    check(REWRITES, originals=originals)
    assert config.read_text() == MODELZOO
    carry_out(REWRITES, POINT, originals=originals)
    expected = MODELZOO.replace('pre_trained: ""', 'pre_trained: "/ckpt/resnet-5_625.ckpt"')
    expected = expected.replace("has_trained_epoch: 0", "has_trained_epoch: 5")
    expected = expected.replace("has_trained_step: 0", "has_trained_step: 3125")
    assert config.read_text() == expected
    first, second = yaml.safe_load_all(config.read_bytes())
    assert (first["has_trained_epoch"], first["has_trained_step"]) == (5, 3125)
    assert second["pre_trained"].startswith("The path")


def test_the_next_recovery_point_replaces_the_last_and_restore_brings_back_the_first_bytes(
    config: Path, originals: Path
) -> None:
    carry_out(REWRITES, POINT, originals=originals)
    later = Values(checkpoint="/ckpt/b.ckpt", run_id="r", incarnation=2, epoch=7, step=1, global_step=9)
    (result,) = carry_out(REWRITES, later, originals=originals)
    assert [(change.before, change.after) for change in result.changes] == [
        ('"/ckpt/resnet-5_625.ckpt"', '"/ckpt/b.ckpt"'),
        ("5", "7"),
        ("3125", "9"),
    ]
    assert sorted(path.name for path in originals.iterdir()) == ["001-train.yaml", "index.json"]
    assert (originals / "001-train.yaml").read_text() == MODELZOO
    assert restore(originals) == {str(config): True}
    assert config.read_text() == MODELZOO
    assert restore(originals, ["train.yaml"]) == {str(config): False}


def test_mode_and_owner_stay_and_only_what_stood_there_is_noted_beside_the_file(
    config: Path, originals: Path, here: Path
) -> None:
    before = config.stat()
    apply(one(config), originals=originals)
    after = config.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert sorted(path.name for path in here.iterdir()) == [
        ".train.yaml.faultrun.before",
        "log",
        "train.yaml",
    ]
    restore(originals)
    assert sorted(path.name for path in here.iterdir()) == ["log", "train.yaml"]
    assert after.st_ino != before.st_ino


def test_doing_it_again_writes_nothing(config: Path, originals: Path) -> None:
    apply(one(config), originals=originals)
    before = written(config)
    (result,) = apply(one(config), originals=originals)
    assert written(config) == before
    assert all(change.nothing for change in result.changes)


def test_a_symbolic_link_stays_and_its_file_is_edited_once(config: Path, originals: Path, here: Path) -> None:
    (here / "link.yaml").symlink_to("train.yaml")
    settings = [*one("link.yaml"), *one("./train.yaml", "has_trained_epoch", 3)]
    (result,) = apply(settings, originals=originals)
    assert (here / "link.yaml").is_symlink()
    assert len(result.changes) == 2
    assert yaml.safe_load(config.read_text().split("---")[0])["has_trained_epoch"] == 3


def test_files_of_several_formats_are_kept_and_restored(config: Path, originals: Path, here: Path) -> None:
    (here / "c.json").write_text('{"a": 1}')
    (here / "sub").mkdir()
    (here / "sub" / "train.yaml").write_text("a: 1\n")
    apply([*one(config), *one("c.json", "a", 2), *one("sub/train.yaml", "a", "2")], originals=originals)
    assert (here / "c.json").read_text() == '{"a": 2}'
    assert (here / "sub" / "train.yaml").read_text() == "a: 2\n"
    assert len(restore(originals, ["c.json"])) == 1
    assert (here / "c.json").read_text() == '{"a": 1}'
    assert len(restore(originals)) == 3
    assert config.read_text() == MODELZOO
    assert (here / "sub" / "train.yaml").read_text() == "a: 1\n"


def test_one_wrong_key_among_many_changes_no_file(config: Path, originals: Path, here: Path) -> None:
    (here / "c.json").write_text('{"a": 1}')
    with pytest.raises(ConfigError):
        apply([*one(config), *one("c.json", "a.b", 2)], originals=originals)
    assert config.read_text() == MODELZOO
    assert not originals.exists()


def test_what_somebody_else_changed_since_is_not_thrown_away(config: Path, originals: Path) -> None:
    for value in ("/x.ckpt", "/y.ckpt"):
        apply(one(config, value=value), originals=originals)
        config.write_text(config.read_text() + "lr: 0.1\n")
    assert restore(originals) == {str(config): True}
    assert config.read_text() == MODELZOO + "lr: 0.1\nlr: 0.1\n"


def test_without_the_note_beside_it_a_file_that_was_changed_stays(config: Path, originals: Path) -> None:
    apply(one(config), originals=originals)
    note_of(config).unlink()
    config.write_text(config.read_text() + "lr: 0.1\n")
    with pytest.raises(ConfigError) as caught:
        restore(originals)
    assert caught.value.what == f"{config} was changed by another program"
    assert caught.value.hint == f"diff {originals / '001-train.yaml'} {config}"
    assert "lr: 0.1" in config.read_text()


def test_a_file_changed_after_it_was_restored_is_kept_anew(config: Path, originals: Path) -> None:
    apply(one(config), originals=originals)
    restore(originals)
    config.write_text("pre_trained: mine\n")
    apply(one(config), originals=originals)
    restore(originals)
    assert config.read_text() == "pre_trained: mine\n"
    assert (originals / "001-train.yaml").read_text() == MODELZOO


def test_a_deleted_file_is_given_back(config: Path, originals: Path) -> None:
    apply(one(config), originals=originals)
    config.unlink()
    assert restore(originals) == {str(config): True}
    assert config.read_text() == MODELZOO
    assert stat.S_IMODE(config.stat().st_mode) == 0o640


@pytest.mark.parametrize("damage", ["gone", "changed", "index"])
def test_a_damaged_original_is_said_the_file_left_alone(config: Path, originals: Path, damage: str) -> None:
    apply(one(config), originals=originals)
    kept = originals / "001-train.yaml"
    match damage:
        case "gone":
            kept.unlink()
        case "changed":
            kept.write_text("other")
        case _:
            (originals / "index.json").write_text("[]")
    standing = config.read_text()
    with pytest.raises(ConfigError):
        restore(originals)
    assert config.read_text() == standing


def test_a_name_that_was_never_rewritten_is_said(config: Path, originals: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        restore(originals, ["train.yaml"])
    assert caught.value.what == "train.yaml has no original"
    assert not originals.exists()


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
