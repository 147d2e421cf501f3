"""TensorFlow checkpoints: the index is proved by its checksums, the data files by their lengths."""

import contextlib
import os
import shutil
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.checkpoints.format import Claim, Foreign, Look, Unreadable
from faultrun.checkpoints.formats.tensorflow import TENSORFLOW
from faultrun.checkpoints.formats.tensorflow_index import crc32c, masked
from faultrun.model.checkpoint import Depth, Entry, Kind, Verdict
from faultrun.text.protobuf import encode_message, encode_varint
from support.checkpoints.entries import listing_of, reason_of
from support.places import TESTS

DATA = TESTS / "data" / "tensorflow"


def entry(prefix: Path, step: int | None = None) -> Entry:
    """The entry of a prefix, which is not the name of a file."""
    return Entry(
        path=str(prefix),
        format="tensorflow",
        kind=Kind.PERIODIC,
        size_bytes=1,
        mtime_ns=1,
        inode=1,
        global_step=step,
    )


def verify(prefix: Path, depth: Depth = Depth.CHECKSUM) -> Verdict:
    return TENSORFLOW.verify(entry(prefix), Look(depth=depth))


def refused(prefix: Path, depth: Depth = Depth.CHECKSUM) -> str:
    return reason_of(lambda: verify(prefix, depth))


def claims(folder: Path) -> dict[str, Claim]:
    return {Path(claim.path).name: claim for claim in TENSORFLOW.claim(listing_of(folder))}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with two saves of a CheckpointManager and one sharded one of a Saver."""
    for folder in ("objects", "shards"):
        for file in (DATA / folder).iterdir():
            shutil.copy(file, tmp_path / file.name)
    return tmp_path


# --- whole checkpoints ---------------------------------------------------------------------------


def test_a_prefix_is_one_checkpoint_of_its_index_and_all_data_files(saved: Path) -> None:
    found = claims(saved)
    assert sorted(found) == ["ckpt-1", "ckpt-2", "model.ckpt-1000"]
    assert found["model.ckpt-1000"].members == (
        "model.ckpt-1000.index",
        *(f"model.ckpt-1000.data-0000{shard}-of-00003" for shard in range(3)),
    )
    assert found["model.ckpt-1000"].global_step == 1000


def test_a_step_variable_is_believed_before_the_count_of_saves_in_the_name(saved: Path) -> None:
    assert TENSORFLOW.read(entry(saved / "ckpt-1", step=1)).global_step == 1215
    assert TENSORFLOW.read(entry(saved / "ckpt-2", step=2)).global_step == 1220
    assert TENSORFLOW.read(entry(saved / "model.ckpt-1000")).global_step == 1000


def test_numbers_and_texts_are_proved_by_their_checksums(saved: Path) -> None:
    assert verify(saved / "ckpt-1") == Verdict(
        whole=True, why="5 tensors in 1 data files complete, all checksums right", depth=Depth.CHECKSUM
    )
    assert verify(saved / "model.ckpt-1000").depth is Depth.CHECKSUM
    assert verify(saved / "ckpt-1", Depth.STRUCTURE).depth is Depth.STRUCTURE


def test_more_data_than_plain_python_can_sum_up_is_whole_by_its_length(tmp_path: Path) -> None:
    size = 5 << 20
    write_index(tmp_path / "big", {b"w": placed(offset=0, size=size)})
    with (tmp_path / "big.data-00000-of-00001").open("wb") as file:
        file.truncate(size)
    verdict = verify(tmp_path / "big")
    assert (verdict.depth, verdict.why) == (
        Depth.STRUCTURE,
        "1 tensors in 1 data files complete, by their length",
    )


def test_crc32c_is_that_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


# --- unfinished and damaged ones -----------------------------------------------------------------


def test_data_files_without_an_index_and_temporary_directories_are_unfinished(saved: Path) -> None:
    (saved / "ckpt-1.index").unlink()
    temporary = saved / "ckpt-2_temp"
    temporary.mkdir()
    for name in ("index", "data-00000-of-00001"):
        shutil.copy(saved / f"ckpt-2.{name}", temporary / f"part-00000-of-00001.{name}")
    assert "has no ckpt-1.index, which is written last" in claims(saved)["ckpt-1"].unfinished
    assert claims(saved)["ckpt-2"].unfinished == ""
    assert "ends in _temp" in claims(temporary)["part-00000-of-00001"].unfinished


@pytest.mark.parametrize("name", ["ckpt-1.index", "ckpt-1.data-00000-of-00001"])
def test_every_cut_of_every_file_is_refused(saved: Path, name: str) -> None:
    file = saved / name
    for length in range(file.stat().st_size - 1, -1, -1):
        os.truncate(file, length)
        assert refused(saved / "ckpt-1", Depth.STRUCTURE)


@pytest.mark.long
def test_every_changed_byte_of_the_data_is_noticed(saved: Path) -> None:
    file = saved / "ckpt-1.data-00000-of-00001"
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert refused(saved / "ckpt-1")


def test_a_missing_shard_is_named(saved: Path) -> None:
    (saved / "model.ckpt-1000.data-00001-of-00003").unlink()
    assert "No such file" in refused(saved / "model.ckpt-1000", Depth.STRUCTURE)


def test_an_index_and_data_of_two_saves_do_not_pass(saved: Path) -> None:
    shutil.copy(saved / "ckpt-2.data-00000-of-00001", saved / "ckpt-1.data-00000-of-00001")
    assert refused(saved / "ckpt-1").startswith("the checksum of")
    with (saved / "ckpt-2.data-00000-of-00001").open("ab") as file:
        file.write(b"\0")
    assert refused(saved / "ckpt-2", Depth.STRUCTURE).endswith("of two saves")


# --- an index of unknown origin ------------------------------------------------------------------


def block(entries: dict[bytes, bytes], kind: int = 0) -> bytes:
    """One block of a table, without shared prefixes, and its trailer."""
    body = b"".join(
        encode_varint(0) + encode_varint(len(key)) + encode_varint(len(value)) + key + value
        for key, value in entries.items()
    )
    return sealed(body + struct.pack("<II", 0, 1), kind)


def sealed(body: bytes, kind: int = 0) -> bytes:
    content = body + bytes([kind])
    return content + struct.pack("<I", masked(crc32c(content)))


def table(data: bytes, place: bytes | None = None) -> bytes:
    """A whole index file around one block of data."""
    if place is None:
        place = encode_varint(0) + encode_varint(len(data) - 5)
    index = block({b"z": place})
    footer = encode_varint(0) + encode_varint(0) + encode_varint(len(data)) + encode_varint(len(index) - 5)
    return data + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def placed(
    offset: int = 0, size: int = 4, shard: int = 0, dtype: int = 1, crc: int | None = None, shape: bytes = b""
) -> bytes:
    check = masked(crc32c(bytes(size) if size < 100 else b"")) if crc is None else crc
    numbers = {1: dtype, 3: shard, 4: offset, 5: size}
    fields = b"".join(encode_varint(number << 3) + encode_varint(value) for number, value in numbers.items())
    return fields + encode_message(2, shape) + b"\x35" + struct.pack("<I", check)


HEADER = {b"": b"\x08\x01"}


def write_index(prefix: Path, entries: dict[bytes, bytes]) -> None:
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(block(HEADER | entries)))


def test_the_handmade_index_is_whole_before_it_is_bent(tmp_path: Path) -> None:
    write_index(tmp_path / "x", {b"w": placed()})
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(4))
    assert verify(tmp_path / "x").depth is Depth.CHECKSUM


GIANT = encode_varint(1 << 62)
HOSTILE = {
    "nothing": (b"", "too few"),
    "another file": (b"x" * 100, "cut, or another file"),
    "a block outside the file": (table(block(HEADER), GIANT + GIANT), "reaches into the footer"),
    "a place that is cut": (table(block(HEADER), b"\x80"), "cut inside a number"),
    "a compressed block": (table(block(HEADER, kind=1)), "is compressed"),
    "no header": (table(block({b"w": placed()})), "no header"),
    "no shards": (table(block({b"": b"\x08\x00"})), "announces 0 shards"),
    "a million shards": (table(block({b"": b"\x08" + encode_varint(10**6)})), "announces 1000000 shards"),
    "a big-endian machine": (table(block({b"": b"\x08\x01\x10\x01"})), "big-endian"),
    "a tensor in a shard there is not": (table(block(HEADER | {b"w": placed(shard=1)})), "shard 1 of 1"),
    "a shared prefix of nothing": (
        table(sealed(b"\x05\x01\x00a" + struct.pack("<II", 0, 1))), "beyond its block"),
    "a key of a gigabyte": (
        table(sealed(b"\x00" + encode_varint(1 << 30) + b"\x00a" + bytes(8))), "beyond its block"),
    "four billion restarts": (table(sealed(struct.pack("<I", 0xFFFFFFFF))), "too short"),
    "an entry that is no protobuf": (table(block(HEADER | {b"w": b"\xff"})), "cut inside a number"),
    "a tensor longer than any disk": (table(block(HEADER | {b"w": placed(size=1 << 62)})), "is cut"),
    "texts without lengths": (
        table(block(HEADER | {b"w": placed(dtype=7, shape=b"\x12\x02\x08\x63")})), "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_index_is_refused_with_its_reason_and_costs_little(name: str, tmp_path: Path) -> None:
    data, why = HOSTILE[name]
    (tmp_path / "x.index").write_bytes(data)
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(4))
    tracemalloc.start()
    reason = refused(tmp_path / "x")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert why in reason
    assert peak < 1 << 20


def test_a_file_that_is_no_index_may_be_tried_by_others(tmp_path: Path) -> None:
    (tmp_path / "x.index").write_bytes(b"{}" * 100)
    with pytest.raises(Foreign):
        TENSORFLOW.read(entry(tmp_path / "x"))


INDEX = (DATA / "objects" / "ckpt-1.index").read_bytes()


@given(
    st.tuples(st.integers(0, len(INDEX)), st.binary(max_size=4), st.integers(0, 4)).map(
        lambda edit: INDEX[: edit[0]] + edit[1] + INDEX[edit[0] + edit[2] :]
    )
    | st.binary(max_size=60).map(lambda body: table(sealed(body)))
    | st.binary(max_size=30).map(lambda value: table(block(HEADER | {b"step": value})))
)
@settings(max_examples=150, deadline=None)
def test_any_index_is_whole_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    prefix = tmp_path_factory.getbasetemp() / "fuzzed"
    prefix.with_name("fuzzed.index").write_bytes(data)
    prefix.with_name("fuzzed.data-00000-of-00001").write_bytes(bytes(401))
    with contextlib.suppress(Unreadable):
        TENSORFLOW.read(entry(prefix))
    with contextlib.suppress(Unreadable):
        assert verify(prefix).why
