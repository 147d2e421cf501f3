"""Folders of the SDK, as the catalog reads them."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from faultrun.checkpoints.registry import builtin_formats
from faultrun.core.recovery.choose import Chosen
from faultrun.core.recovery.need import Need, Whose, World
from faultrun.model.checkpoint import Entry, Verdict
from faultrun.sdk.session import Session
from faultrun.sdk.worker.save_files import Folder, Position, Saved, SaveWriter, numbered
from support.checkpoints.catalogs import catalog_of, survey_of

FILES = {"model.safetensors": b"weights" * 100, "optimizer.pt": b"moments", "adapter/a.bin": b"a"}


def writer_in(directory: Path, keep: int = 2) -> SaveWriter:
    session = Session(rank=2, world_size=4, run_id="run-1", incarnation=3, node="here")
    return SaveWriter(Folder(directory=directory, keep=keep), session)


def fill(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def save(writer: SaveWriter, step: int, fill: Callable[[Path], object] = fill) -> Saved:
    return writer.save_folder(
        numbered(writer.own_folder / f"checkpoint-{step}"), Position(step, 1, step), fill
    )


def only(root: Path) -> tuple[Entry, Verdict]:
    """The one candidate below ``root``, all formats asked, and whether it is whole."""
    catalog = catalog_of(root, builtin_formats())
    (entry,) = catalog.scan().entries
    return entry, catalog.verify(entry)


def test_a_folder_is_one_candidate_whatever_lies_in_it(tmp_path: Path) -> None:
    saved = save(writer_in(tmp_path), 55)
    entry, verdict = only(tmp_path)
    assert entry.path == saved.path == f"{tmp_path}/rank_2/checkpoint-55"
    assert (entry.format, entry.global_step, entry.epoch, entry.rank) == ("faultrun", 55, 1, 2)
    assert (verdict.whole, verdict.why) == (True, "all 3 files match their digests")
    assert verdict.digest == saved.digest
    assert saved.size_bytes == sum(map(len, FILES.values()))


def test_a_folder_serves_its_replica_group(tmp_path: Path) -> None:
    saved = save(writer_in(tmp_path), 55)
    choice = survey_of(
        tmp_path, Need(world=World(size=4), whose=Whose(run_id="run-1")), builtin_formats()
    ).choice
    assert isinstance(choice, Chosen)
    assert {file.path for file in choice.point.files} == {saved.path}


def flipped(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: os.truncate(path, path.stat().st_size // 2), "bytes, its manifest says"),
        (flipped, "its bytes do not match the digest in its manifest"),
        (Path.unlink, "which its manifest lists"),
        (
            lambda path: path.with_name("stray.bin").write_bytes(b"new"),
            "stray.bin, which its manifest does not",
        ),
    ],
    ids=["torn", "altered", "missing", "extra"],
)
def test_a_damaged_folder_is_refused_and_the_file_is_named(
    tmp_path: Path, name: str, damage: Callable[[Path], object], says: str
) -> None:
    damage(Path(save(writer_in(tmp_path), 55).path, name))
    _, verdict = only(tmp_path)
    assert not verdict.whole
    assert says in verdict.why
    assert name in verdict.why or "stray.bin" in verdict.why


def test_a_change_after_the_proof_is_noticed_by_the_next_look(tmp_path: Path) -> None:
    saved = save(writer_in(tmp_path), 55)
    catalog = catalog_of(tmp_path, builtin_formats(), memory=tmp_path / "memory")
    (entry,) = catalog.scan().entries
    assert catalog.verify(entry).whole
    flipped(Path(saved.path, "optimizer.pt"))
    (entry,) = catalog.scan().entries
    assert not catalog.verify(entry).whole


def test_a_list_of_files_that_is_not_the_one_written_is_refused(tmp_path: Path) -> None:
    saved = save(writer_in(tmp_path), 55)
    manifest = Path(f"{saved.path}.manifest.json")
    told = json.loads(manifest.read_bytes())
    del told["files"]["optimizer.pt"]
    manifest.write_text(json.dumps(told))
    assert only(tmp_path)[1].why == "its manifest's list of files is not the one that was written"
    told["files"]["../optimizer.pt"] = {"size_bytes": 7, "digest": ""}
    manifest.write_text(json.dumps(told))
    assert "impossible things of a file ../optimizer.pt" in only(tmp_path)[1].why


def test_what_a_dead_writer_left_half_is_no_candidate_and_goes_with_the_next_save(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    left = tmp_path / "rank_2" / ".tmp.rank2_1.checkpoint-54"
    left.mkdir(parents=True)
    fill(left)
    assert catalog_of(tmp_path, builtin_formats()).scan().entries == ()
    saved = save(writer, 55)
    writer.prune(saved)
    assert not left.exists()
    assert Path(saved.path, "optimizer.pt").exists()


def test_a_failing_writer_leaves_nothing(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        fill(folder)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        save(writer_in(tmp_path), 55, fails)
    assert list((tmp_path / "rank_2").iterdir()) == []


@pytest.mark.parametrize(
    "content", [lambda folder: None, lambda folder: (folder / "x").symlink_to("/etc/hostname")]
)
def test_empty_folders_and_links_are_not_saved(tmp_path: Path, content: Callable[[Path], object]) -> None:
    with pytest.raises(ValueError):
        save(writer_in(tmp_path), 55, content)
    assert list((tmp_path / "rank_2").iterdir()) == []


def test_a_folder_that_is_there_is_never_written_into(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    assert [Path(save(writer, 7).path).name for _ in range(2)] == ["checkpoint-7", "checkpoint-7.1"]


def test_older_folders_go_with_their_manifests(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    for step in (5, 6, 7):
        newest = save(writer, step)
    writer.prune(newest)
    assert sorted(path.name for path in (tmp_path / "rank_2").iterdir()) == [
        "checkpoint-6",
        "checkpoint-6.manifest.json",
        "checkpoint-7",
        "checkpoint-7.manifest.json",
    ]


def test_a_manifest_whose_folder_is_gone_is_nothing(tmp_path: Path) -> None:
    shutil.rmtree(save(writer_in(tmp_path), 55).path)
    assert catalog_of(tmp_path, builtin_formats()).scan().entries == ()
