"""Files that cannot be edited, are being edited by somebody else, or must not be replaced where they lie."""

import os
import threading
from pathlib import Path

import pytest
import yaml

from faultrun.configs.apply import apply, check, preview
from faultrun.configs.argv import pointed
from faultrun.configs.files import MAX_BYTES, Disk, locked
from faultrun.errors import ConfigError
from faultrun.model.spec.run_spec import Rewrite
from support.checkpoints.config_files import MODELZOO, one, written


def make(kind: str, path: Path) -> None:
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "binary":
            path.write_bytes(b"\x7fELF\0\1")
        case "large":
            with path.open("wb") as file:
                file.truncate(100_000_000)
        case "twice":
            path.write_text("pre_trained: a\nb: 1\npre_trained: c\n")
        case "not yaml":
            path.write_text("a: [\n")
        case "link to nothing":
            path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", "is not there"),
        ("link to nothing", "is not there"),
        ("directory", "is a directory"),
        ("pipe", "it is a device, pipe or socket"),
        ("binary", "zero byte"),
        ("large", f"it has 100,000,000 bytes, the limit is {MAX_BYTES:,}"),
        ("twice", "it is there twice: lines 1, 3"),
        ("not yaml", "line 2: "),
    ],
)
def test_a_wrong_target_is_refused_before_a_spawn(here: Path, originals: Path, kind: str, words: str) -> None:
    path = here / "train.yaml"
    make(kind, path)
    with pytest.raises(ConfigError) as caught:
        check([Rewrite(file=str(path), key="pre_trained")], originals=originals)
    assert caught.value.exit_code == 78
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("rewrites", "words"),
    [
        ([Rewrite(file="train.yaml", key="a", template="{nope}")], "there is no field {nope}"),
        ([Rewrite(file="train.yaml", key="a", template="{rank}")], "{rank} differs from worker to worker"),
        (
            [Rewrite(file="train.yaml", key="pre_trained"), Rewrite(file="./train.yaml", key="pre_trained")],
            "would be set 2 times",
        ),
        ([Rewrite(file="train.yaml", key="a..b")], "is not a key"),
    ],
)
def test_rewrites_that_make_no_sense_are_refused(
    config: Path, originals: Path, rewrites: list[Rewrite], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(rewrites, originals=originals)
    assert words in str(caught.value)


def configmap(here: Path) -> Path:
    """A file as Kubernetes mounts it: two links to a dated directory."""
    mount = here / "etc"
    (mount / "..2024_01_01").mkdir(parents=True)
    (mount / "..2024_01_01" / "train.yaml").write_text(MODELZOO)
    (mount / "..data").symlink_to("..2024_01_01")
    (mount / "train.yaml").symlink_to("..data/train.yaml")
    return mount / "train.yaml"


@pytest.mark.parametrize("kind", ["read-only", "hard links", "ConfigMap"])
def test_a_file_that_cannot_be_replaced_is_answered_by_a_copy_that_the_script_is_pointed_at(
    config: Path, originals: Path, here: Path, kind: str
) -> None:
    match kind:
        case "read-only":
            config.chmod(0o444)
        case "hard links":
            os.link(config, here / "other.yaml")
        case _:
            config = configmap(here)
    standing = written(config)
    settings = [*one(config), *one(config, "has_trained_epoch", 5)]
    (planned,) = preview(settings, originals=originals)
    assert not (here / "log").exists()
    (result,) = apply(settings, originals=originals)
    assert planned == result
    assert result.copy is not None
    assert kind in result.copy.reason
    assert Path(result.path).name == "train.yaml"
    assert here / "log" / "edited" in Path(result.path).parents
    documents = list(yaml.safe_load_all(Path(result.path).read_bytes()))
    assert (documents[0]["pre_trained"], documents[0]["has_trained_epoch"]) == ("/x.ckpt", 5)
    assert config.read_text() == MODELZOO
    assert written(config) == standing
    relative = os.path.relpath(config)
    assert pointed([f"--config_path={relative}"], {}, [result.copy])[0] == (f"--config_path={result.path}",)


def test_the_copy_follows_a_configmap_that_was_updated(originals: Path, here: Path) -> None:
    file = configmap(here)
    apply(one(file), originals=originals)
    (here / "etc" / "..2024_01_01" / "train.yaml").write_text("pre_trained: ''\nlr: 0.5\n")
    (result,) = apply(one(file), originals=originals)
    assert yaml.safe_load(Path(result.path).read_bytes()) == {"pre_trained": "/x.ckpt", "lr": 0.5}


class Meddling(Disk):
    """A disk on which somebody else writes the file while it is being edited, some times."""

    def __init__(self, victim: Path, times: int) -> None:
        self.victim, self.times = victim, times

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        if self.times:
            self.times -= 1
            self.victim.write_text(MODELZOO + f"written: {self.times}\n")


def test_a_change_by_somebody_else_during_the_edit_is_seen_and_kept(config: Path, originals: Path) -> None:
    apply(one(config), originals=originals, disk=Meddling(config, times=1))
    assert (
        config.read_text() == MODELZOO.replace('pre_trained: ""', 'pre_trained: "/x.ckpt"') + "written: 0\n"
    )


def test_a_file_that_keeps_changing_is_refused_and_left_to_its_writer(config: Path, originals: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        apply(one(config), originals=originals, disk=Meddling(config, times=1000))
    assert caught.value.what == f"{config} keeps changing"
    assert 'pre_trained: ""' in config.read_text()


def test_a_second_writer_waits_for_the_first(config: Path, originals: Path) -> None:
    started, done = threading.Event(), threading.Event()

    def second() -> None:
        started.set()
        apply(one(config, "has_trained_epoch", 9), originals=originals)
        done.set()

    with locked(config):
        thread = threading.Thread(target=second)
        thread.start()
        assert started.wait(10)
        assert not done.wait(0.1)
    assert done.wait(10)
    thread.join()
    assert "has_trained_epoch: 9" in config.read_text()


def test_a_lock_that_is_never_released_is_an_error_with_a_name(config: Path) -> None:
    with locked(config), pytest.raises(ConfigError) as caught, locked(config, wait_s=0.05):
        raise AssertionError
    because = caught.value.because
    assert because.startswith(f"pid {os.getpid()} (")
    assert because.endswith(") has held .train.yaml.faultrun.lock for 0.05 s")


class Full(Disk):
    """A disk without space."""

    def write(self, descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_the_old_file_and_no_other(config: Path, originals: Path, here: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        apply(one(config), originals=originals, disk=Full())
    assert "No space left on device" in caught.value.because
    assert config.read_text() == MODELZOO
    assert sorted(path.name for path in here.iterdir()) == ["log", "train.yaml"]
