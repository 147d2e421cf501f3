"""Safetensors of MindSpore and others: tensors fill the file to its end, and a set needs all its shards."""

import contextlib
import json
import os
import shutil
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.checkpoints.format import Foreign, Look, Unreadable
from faultrun.checkpoints.formats.safetensors import MAX_HEADER_BYTES, SAFETENSORS
from faultrun.model.checkpoint import Depth, Entry, Kind, Verdict
from support.checkpoints.entries import entry_of, listing_of, reason_of
from support.places import TESTS

DATA = TESTS / "data" / "safetensors"
PLAIN, CHECKED, HUGGING = (
    DATA / "tiny-3_15.safetensors",
    DATA / "tiny_1-3_15.safetensors",
    DATA / "model.safetensors",
)


def verify(path: Path, depth: Depth = Depth.CHECKSUM) -> Verdict:
    return SAFETENSORS.verify(entry_of(path), Look(depth=depth))


def read(path: Path) -> Entry:
    return SAFETENSORS.read(entry_of(path))


def refused(path: Path) -> str:
    return reason_of(lambda: verify(path))


def file_of(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


# --- whole files ---------------------------------------------------------------------------------


def test_mindspores_numbers_are_read_from_its_tensors() -> None:
    entry = read(PLAIN)
    assert (entry.epoch, entry.global_step) == (3, 1215)


def test_numbers_in_the_metadata_of_others_are_read_too() -> None:
    entry = read(HUGGING)
    assert (entry.epoch, entry.global_step) == (2, 1200)


def test_mindspores_checksum_is_checked_over_scalars_as_mindspore_computes_it() -> None:
    assert verify(CHECKED) == Verdict(
        whole=True, why="5 tensors complete, checksum right", depth=Depth.CHECKSUM
    )
    assert verify(CHECKED, Depth.STRUCTURE).depth is Depth.STRUCTURE


def test_a_file_without_a_checksum_is_whole_by_structure_only() -> None:
    for path in (PLAIN, HUGGING):
        assert (verify(path).whole, verify(path).depth) == (True, Depth.STRUCTURE)


def test_names_of_both_worlds_are_understood(tmp_path: Path) -> None:
    names = (
        "rank_2/net_3-12_1875.safetensors",
        "checkpoint-500/model.safetensors",
        "run/best_acc.safetensors",
        "run/step_40.safetensors",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    folders = {path.name: list(SAFETENSORS.claim(listing_of(path))) for path in tmp_path.iterdir()}
    (mindspore,) = folders["rank_2"]
    assert (mindspore.rank, mindspore.epoch, mindspore.step_in_epoch) == (2, 12, 1875)
    assert (mindspore.series, mindspore.session) == ("net-", 3)
    assert folders["checkpoint-500"][0].global_step == 500
    run = {claim.members[0]: claim for claim in folders["run"]}
    assert run["best_acc.safetensors"].kind is Kind.BEST
    assert run["step_40.safetensors"].global_step == 40


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [PLAIN, CHECKED, HUGGING], ids=["mindspore", "checksum", "others"])
def test_every_cut_of_a_file_is_refused(path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.safetensors"
    shutil.copy(path, cut)
    for length in range(path.stat().st_size - 1, -1, -1):
        os.truncate(cut, length)
        assert refused(cut)


def test_a_file_with_something_after_its_last_tensor_is_refused(tmp_path: Path) -> None:
    longer = tmp_path / "longer.safetensors"
    longer.write_bytes(PLAIN.read_bytes() + b"\0")
    assert "its tensors end at byte 388, the file at byte 389" in refused(longer)


def test_every_changed_byte_of_a_tensor_is_noticed_where_there_is_a_checksum(tmp_path: Path) -> None:
    changed = tmp_path / "changed.safetensors"
    whole = CHECKED.read_bytes()
    for at in range(len(whole) - 36, len(whole)):
        changed.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert "checksum" in refused(changed)


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HOSTILE = {
    "a gap between tensors": (
        file_of({"a": ONE, "b": {**ONE, "data_offsets": [8, 12]}}, b"\0" * 12), "before its tensor b"),
    "tensors that share bytes": (file_of({"a": ONE, "b": ONE}, b"\0" * 4), "a gap or an overlap"),
    "a tensor too short for its shape": (
        file_of({"a": {**ONE, "shape": [2]}}, b"\0" * 4), "4 bytes, which do not fit its shape"),
    "a shape whose product is astronomical": (
        file_of({"a": {**ONE, "shape": [2**52] * 64}}, b"\0" * 4), "do not fit its shape"),
    "a shape of a thousand dimensions": (
        file_of({"a": {**ONE, "shape": [1] * 1000}}, b"\0" * 4), "not described"),
    "offsets the wrong way round": (
        file_of({"a": {**ONE, "data_offsets": [4, 0]}}, b"\0" * 4), "do not fit its shape"),
    "negative offsets": (file_of({"a": {**ONE, "data_offsets": [-4, 0]}}), "not described"),
    "true as an offset": (file_of({"a": {**ONE, "data_offsets": [False, True]}}, b"\0"), "not described"),
    "a name twice": (file_of(b'{"a":{},"a":{}}'), "header is damaged"),
    "a hundred thousand brackets": (file_of(b'{"a":' + b"[" * 100_000 + b"}"), "header is damaged"),
    "a number of a million digits": (file_of(b'{"a":' + b"9" * 1_000_000 + b"}"), "header is damaged"),
    "not a number": (file_of(b'{"a":NaN}'), "header is damaged"),
    "no text": (file_of(b'{"\xff":1}'), "header is damaged"),
    "a list": (file_of(b"[1]"), "is not JSON"),
    "metadata that are numbers": (file_of({"__metadata__": {"step": 3}}), "metadata are not texts"),
    "a name that would move the cursor": (file_of({"a\x1b[2J": 3}), r"'a\x1b[2J'"),
    "a header longer than the file": (struct.pack("<Q", 1000) + b"{}", "needed"),
    "a header of a terabyte": (struct.pack("<Q", 1 << 40) + b"{}", "does not start with the length"),
    "nothing": (b"", "it is empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_with_its_reason_and_costs_little(name: str, tmp_path: Path) -> None:
    data, why = HOSTILE[name]
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(data)
    tracemalloc.start()
    reason = refused(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert why in reason
    assert peak < 20 * len(data) + 300_000


def test_a_header_larger_than_any_model_needs_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{")
        file.truncate(MAX_HEADER_BYTES + 100)
    assert "its header has" in refused(path)


def test_a_checksum_over_a_gigantic_scalar_is_refused_and_not_computed(tmp_path: Path) -> None:
    path = tmp_path / "scalar.safetensors"
    tensor = {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}
    path.write_bytes(file_of({"__metadata__": {"crc_num": "1"}, "n": tensor}, struct.pack("<q", 1 << 60)))
    assert "cannot be computed" in refused(path)


def test_a_file_of_another_format_may_be_tried_by_others(tmp_path: Path) -> None:
    path = tmp_path / "zip.safetensors"
    path.write_bytes(b"PK\x03\x04" + b"\0" * 100)
    with pytest.raises(Foreign):
        read(path)


@given(
    st.binary(max_size=60)
    | st.tuples(st.integers(0, 411), st.binary(max_size=4), st.integers(0, 4)).map(
        lambda edit: CHECKED.read_bytes()[: edit[0]] + edit[1] + CHECKED.read_bytes()[edit[0] + edit[2] :]
    )
)
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_whole_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.safetensors"
    path.write_bytes(data)
    with contextlib.suppress(Unreadable):
        read(path)
    with contextlib.suppress(Unreadable):
        assert verify(path).why


# --- sets of shards ------------------------------------------------------------------------------


def write_set(folder: Path) -> None:
    folder.mkdir()
    weight_map = {}
    for number in (1, 2):
        name = f"model-{number:05}-of-00002.safetensors"
        (folder / name).write_bytes(file_of({f"w{number}": ONE}, b"\0" * 4))
        weight_map[f"w{number}"] = name
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 8}, "weight_map": weight_map})
    )


def test_a_set_of_shards_is_one_checkpoint_named_by_its_directory(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-500"
    write_set(folder)
    (claim,) = SAFETENSORS.claim(listing_of(folder))
    assert (claim.path, claim.global_step, claim.unfinished) == (str(folder), 500, "")
    assert len(claim.members) == 3
    assert verify(folder) == Verdict(
        whole=True, why="2 shards complete", depth=Depth.STRUCTURE, provisional=True
    )
    assert read(folder) == entry_of(folder)


def test_a_set_without_its_index_is_unfinished(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-500"
    write_set(folder)
    (folder / "model.safetensors.index.json").unlink()
    (claim,) = SAFETENSORS.claim(listing_of(folder))
    assert claim.unfinished == "it has no model.safetensors.index.json, which is written after the shards"
    assert refused(folder) == "it has no index of shards"


def test_a_set_with_a_shard_missing_cut_or_exchanged_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write_set(folder)
    first, second = (folder / f"model-{number:05}-of-00002.safetensors" for number in (1, 2))
    os.truncate(second, second.stat().st_size - 1)
    assert "its tensors end at" in refused(folder)
    shutil.copyfile(first, second)
    assert refused(folder) == "its shard model-00002-of-00002.safetensors lacks w2"
    second.unlink()
    assert "No such file" in refused(folder)


def test_an_index_that_names_files_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write_set(folder)
    for shard in ("../set/model-00001-of-00002.safetensors", "/etc/passwd", 3):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w1": shard}}))
        assert (
            refused(folder) == "its model.safetensors.index.json: does not say which shard holds which tensor"
        )


# --- the installed frameworks --------------------------------------------------------------------


def test_what_the_installed_safetensors_writes_is_whole(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    from safetensors.numpy import save_file

    path = tmp_path / "new.safetensors"
    arrays = {
        "half": numpy.zeros((2, 3), "float16"),
        "none": numpy.zeros((0, 4)),
        "scalar": numpy.array(3),
        "mask": numpy.ones(5, "bool"),
        "complex": numpy.ones(2, "complex64"),
        "step": numpy.array([7], "int32"),
    }
    save_file(arrays, str(path))
    assert verify(path).why == "6 tensors complete"
    assert read(path).global_step == 7


@pytest.mark.mindspore
@pytest.mark.slow
def test_what_the_installed_mindspore_writes_is_whole_and_its_checksum_agrees(tmp_path: Path) -> None:
    import mindspore

    path = tmp_path / "net-1_20.safetensors"
    parameters = [
        {"name": "b", "data": mindspore.Tensor([[1.0], [2.0]], mindspore.float16)},
        {"name": "global_step", "data": mindspore.Tensor([20], mindspore.int32)},
        {"name": "flag", "data": mindspore.Tensor(True)},
        {"name": "a", "data": mindspore.Tensor(7, mindspore.uint8)},
    ]
    mindspore.save_checkpoint(
        parameters, str(path), append_dict={"epoch_num": 1}, crc_check=True, format="safetensors"
    )
    assert verify(path).depth is Depth.CHECKSUM
    assert (read(path).epoch, read(path).global_step) == (1, 20)
