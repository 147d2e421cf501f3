"""Directories of torch.distributed.checkpoint: all shards, all of their length, all checksums, one save."""

import contextlib
import os
import pickle
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.checkpoints.format import Look, Unreadable
from faultrun.checkpoints.formats.torch.dcp import TORCH_DCP
from faultrun.model.checkpoint import Depth, Verdict
from support.checkpoints.entries import entry_of, listing_of, reason_of
from support.places import DATA

SAVED = DATA / "torch" / "step_1200"
SECOND = 1_000_000_000


def verify(path: Path, depth: Depth = Depth.CHECKSUM) -> Verdict:
    return TORCH_DCP.verify(entry_of(path), Look(depth=depth))


def refused(path: Path, depth: Depth = Depth.CHECKSUM) -> str:
    return reason_of(lambda: verify(path, depth))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A copy of a save of two processes, with the times of a save: metadata last."""
    folder = tmp_path / "step_1200"
    shutil.copytree(SAVED, folder)
    for name, at in (("__0_0.distcp", 0), ("__1_0.distcp", 5), (".metadata", 6)):
        os.utime(folder / name, ns=(at * SECOND, at * SECOND))
    return folder


def test_a_directory_is_one_checkpoint_and_its_step_is_read_from_the_contents(saved: Path) -> None:
    (claim,) = TORCH_DCP.claim(listing_of(saved))
    assert claim.members == (".metadata", "__0_0.distcp", "__1_0.distcp")
    assert (claim.path, claim.global_step, claim.unfinished) == (str(saved), 1200, "")
    entry = TORCH_DCP.read(entry_of(saved))
    assert (entry.epoch, entry.global_step) == (3, 1215), "contents beat names"
    assert entry.world_size is None, "it loads into any world"


def test_a_whole_directory_is_proved_by_the_checksums_of_its_pieces(saved: Path) -> None:
    assert verify(saved) == Verdict(
        whole=True,
        why="4 pieces in 2 shards complete, all checksums right",
        depth=Depth.CHECKSUM,
        provisional=True,
    )
    assert verify(saved, Depth.STRUCTURE).depth is Depth.STRUCTURE


@pytest.mark.parametrize(
    ("folder", "step"),
    [
        ("step-1000", 1000),
        ("iter_0001000", 1000),
        ("checkpoint-500", 500),
        ("global_step7", 7),
        ("last", None),
    ],
)
def test_the_step_is_in_the_name_of_the_directory(folder: str, step: int | None, tmp_path: Path) -> None:
    for path in (tmp_path / folder, tmp_path / folder / "model"):
        path.mkdir()
        (path / "__0_0.distcp").touch()
        (path / ".metadata").touch()
        assert [claim.global_step for claim in TORCH_DCP.claim(listing_of(path))] == [step]


def test_without_metadata_the_save_was_not_finished(saved: Path) -> None:
    (saved / ".metadata").unlink()
    (claim,) = TORCH_DCP.claim(listing_of(saved))
    assert "was not finished" in claim.unfinished
    assert "No such file" in refused(saved)


def test_a_directory_that_lost_all_its_shards_is_refused_and_not_unknown(tmp_path: Path, saved: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".metadata").touch()
    assert list(TORCH_DCP.claim(listing_of(tmp_path / "other"))) == []
    for shard in saved.glob("*.distcp"):
        shard.unlink()
    assert len(list(TORCH_DCP.claim(listing_of(saved)))) == 1
    assert refused(saved) == "its shard __0_0.distcp: cannot be read: No such file or directory"


@pytest.mark.long
@pytest.mark.parametrize("name", ["__0_0.distcp", "__1_0.distcp", ".metadata"])
def test_every_cut_of_every_file_is_refused(saved: Path, name: str) -> None:
    file = saved / name
    for length in range(file.stat().st_size - 1, -1, -1):
        os.truncate(file, length)
        assert refused(saved, Depth.STRUCTURE)


def test_a_missing_shard_is_named(saved: Path) -> None:
    (saved / "__1_0.distcp").unlink()
    assert "No such file" in refused(saved)


def test_changed_bytes_in_a_shard_are_noticed(saved: Path) -> None:
    shard = saved / "__0_0.distcp"
    data = bytearray(shard.read_bytes())
    at = data.index(b"\x00\x00\x80\x3f")  # 1.0, the second element
    data[at + 3] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(0, 0))
    assert (
        refused(saved)
        == "its shard __0_0.distcp: is damaged at w: the checksum of its record archive/data/0 is wrong"
    )


@pytest.mark.parametrize("fill", [b"\0", b"\xff"])
def test_a_shard_whose_pieces_are_blank_is_refused(saved: Path, fill: bytes) -> None:
    """As a disk leaves a file of which it knew the length, and no more, when the power failed."""
    shard = saved / "__0_0.distcp"
    shard.write_bytes(fill * shard.stat().st_size)
    os.utime(shard, ns=(0, 0))
    assert refused(saved).endswith("nothing that torch.save writes begins so")


def test_a_later_save_into_the_same_directory_that_was_cut_short_is_refused(saved: Path) -> None:
    """Rank 1 wrote its shard anew, rank 0 did not come to it: same lengths, right checksums, mixed steps."""
    os.utime(saved / "__1_0.distcp", ns=(60 * SECOND, 60 * SECOND))
    assert "a later save into the same directory was not finished" in refused(saved)


def test_a_copy_whose_files_all_got_new_times_is_whole(saved: Path) -> None:
    for name in ("__0_0.distcp", "__1_0.distcp"):
        os.utime(saved / name, ns=(60 * SECOND, 60 * SECOND))
    assert verify(saved).whole


# --- metadata of unknown origin ------------------------------------------------------------------


class Stored:
    """Pickles as an instance of anything with a state."""

    def __init__(self, **state: object) -> None:
        self.__dict__.update(state)


def metadata_of(places: dict[Stored, Stored], described: dict[str, Stored] | None = None) -> bytes:
    return pickle.dumps(Stored(state_dict_metadata=described or {}, storage_data=places))


def place(shard: object = "__0_0.distcp", offset: object = 0, length: object = 10) -> Stored:
    return Stored(relative_path=shard, offset=offset, length=length)


@pytest.mark.parametrize(
    "where",
    [
        place("../step_1200/__0_0.distcp"),
        place("/etc/passwd"),
        place("__0_0.distcp\n"),
        place(b"__0_0.distcp"),
        place(offset=-1),
        place(length=-1),
        place(length=True),
        place(offset="0"),
        Stored(),
    ],
)
def test_a_piece_outside_the_shards_is_refused(saved: Path, where: Stored) -> None:
    (saved / ".metadata").write_bytes(metadata_of({Stored(fqn="w"): where}))
    assert refused(saved) == "its .metadata: places a piece where no shard of this directory can be"


def test_a_tensor_without_all_of_its_pieces_is_refused(saved: Path) -> None:
    described = {"w": Stored(chunks=[1, 2])}
    (saved / ".metadata").write_bytes(metadata_of({Stored(fqn="w"): place()}, described))
    assert refused(saved) == "its .metadata: places 1 of 2 pieces of w"


def test_pieces_of_astronomical_length_are_cut(saved: Path) -> None:
    (saved / ".metadata").write_bytes(metadata_of({Stored(fqn="w"): place(length=2**80)}))
    assert "is cut" in refused(saved)


def test_other_pickles_are_refused(saved: Path) -> None:
    others: list[object] = [3, {}, [1], Stored(), Stored(storage_data={}), Stored(storage_data=3)]
    for other in others:
        (saved / ".metadata").write_bytes(pickle.dumps(other))
        assert refused(saved)


METADATA = (SAVED / ".metadata").read_bytes()


@given(
    st.tuples(st.integers(0, len(METADATA)), st.binary(max_size=4), st.integers(0, 4)).map(
        lambda edit: METADATA[: edit[0]] + edit[1] + METADATA[edit[0] + edit[2] :]
    )
)
@settings(max_examples=200, deadline=None)
def test_any_metadata_are_whole_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzzed_dcp"
    if not folder.exists():
        shutil.copytree(SAVED, folder)
    (folder / ".metadata").write_bytes(data)
    with contextlib.suppress(Unreadable):
        TORCH_DCP.read(entry_of(folder))
    with contextlib.suppress(Unreadable):
        assert verify(folder).why


# --- the installed torch -------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_what_the_installed_torch_writes_is_whole(tmp_path: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "iteration": 77,
        "args": {"lr": 1},
    }
    path = tmp_path / "now"
    dcp.save(state, checkpoint_id=str(path), no_dist=True)
    verdict = verify(path)
    assert (verdict.whole, verdict.depth) == (True, Depth.CHECKSUM)
    assert TORCH_DCP.read(entry_of(path)).global_step == 77
    os.truncate(path / "__0_0.distcp", (path / "__0_0.distcp").stat().st_size - 1)
    assert "is cut" in refused(path)
