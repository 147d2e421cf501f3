"""group_info.pb: our decoder against the protobuf package, any bytes, and whole worlds."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.formats.mindspore.group_info import (
    GROUP_INFO_NAME,
    MAX_GROUP_INFO_BYTES,
    read_group_files,
    restore_ranks,
)
from support.checkpoints.group_infos import group_info

SAMPLE = bytes.fromhex("0a1d0a15322d35303034353434383434343839363238313035120408000808120408000808")
SAMPLE_RANKS = (0, 8)


def _judge_class() -> Callable[[], Message]:
    """Build ParallelGroupMap from a proto2 descriptor: protobuf itself decides what the bytes mean."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="node_strategy_judge.proto", package="faultrun_judge", syntax="proto2"
    )
    ranks = file.message_type.add(name="ParallelGroupRanks")
    ranks.field.add(name="dim", number=1, label=field.LABEL_REPEATED, type=field.TYPE_UINT32)
    item = file.message_type.add(name="ParallelGroupItem")
    item.field.add(name="group_name", number=1, label=field.LABEL_REQUIRED, type=field.TYPE_STRING)
    whole = file.message_type.add(name="ParallelGroupMap")
    for message, name, number, label, of in (
        (item, "parallel_group_ranks", 2, field.LABEL_REQUIRED, "ParallelGroupRanks"),
        (whole, "parallel_group_item", 1, field.LABEL_REPEATED, "ParallelGroupItem"),
        (whole, "ckpt_restore_rank_list", 2, field.LABEL_REQUIRED, "ParallelGroupRanks"),
    ):
        held = message.field.add(name=name, number=number, label=label, type=field.TYPE_MESSAGE)
        held.type_name = f".faultrun_judge.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("faultrun_judge.ParallelGroupMap"))


JUDGE = _judge_class()


def judged(data: bytes) -> tuple[int, ...]:
    message = JUDGE()
    message.ParseFromString(data)
    return tuple(message.ckpt_restore_rank_list.dim)  # type: ignore[attr-defined]


rank_lists = st.lists(st.integers(0, 2**32 - 1), max_size=6).map(tuple)
group_lists = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=12), rank_lists, max_size=4)
infos = st.builds(group_info, rank_lists, group_lists)


def test_the_known_sample_is_decoded_and_encoded_byte_for_byte() -> None:
    assert len(SAMPLE) == 37
    assert restore_ranks(SAMPLE) == judged(SAMPLE) == SAMPLE_RANKS
    assert group_info(SAMPLE_RANKS, {"2-5004544844489628105": (0, 8)}) == SAMPLE


@given(rank_lists, group_lists)
@settings(max_examples=60, deadline=None)
def test_what_protobuf_serialises_is_read_back(
    ranks: tuple[int, ...], groups: dict[str, tuple[int, ...]]
) -> None:
    message = JUDGE()
    message.ckpt_restore_rank_list.SetInParent()  # type: ignore[attr-defined]
    message.ckpt_restore_rank_list.dim.extend(ranks)  # type: ignore[attr-defined]
    for name, members in groups.items():
        item = message.parallel_group_item.add(group_name=name)  # type: ignore[attr-defined]
        item.parallel_group_ranks.SetInParent()
        item.parallel_group_ranks.dim.extend(members)
    assert restore_ranks(message.SerializeToString()) == ranks
    assert group_info(ranks, groups) == message.SerializeToString()


UNKNOWN = b"\x18\x96\x01" + b"\x21" + b"8" * 8 + b"\x2d" + b"4" * 4 + b"\x32\x02hi"


@pytest.mark.parametrize(
    ("data", "ranks"),
    [
        (bytes.fromhex("12060a0400089001"), (0, 8, 144)),
        (UNKNOWN + SAMPLE + UNKNOWN, SAMPLE_RANKS),
        (b"\x08\x07" + b"\x10\x07" + SAMPLE, SAMPLE_RANKS),
        (SAMPLE + bytes.fromhex("12020810"), (0, 8, 16)),
    ],
    ids=["packed", "unknown fields", "a known field of the wrong type", "a list given twice"],
)
def test_other_spellings_are_understood_as_protobuf_does(data: bytes, ranks: tuple[int, ...]) -> None:
    assert restore_ranks(data) == judged(data) == ranks


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the file is empty"),
        (SAMPLE[:31], "there is no restore list"),
        (b"\x12\x02\x08", "cut: the field at byte 0 needs 2 bytes, 1 are left"),
        (b"\x12\x06\x08\xff\xff\xff\xff\x1f", "does not fit 32 bits"),
        (b"\x12\x01\x08", "cut inside a number"),
        (b"\x13\x00", "wire type 3"),
        (b"\x00\x00", "starts no field"),
        (b"\x80" * 11, "does not end"),
        (b"\x0a\x03\x0a\x01g\x12\x00", "no name or no ranks"),
    ],
)
def test_damage_is_named(data: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        restore_ranks(data)


def test_every_cut_of_a_file_is_refused() -> None:
    for length in range(len(SAMPLE)):
        with pytest.raises(Unreadable):
            restore_ranks(SAMPLE[:length])


@given(
    st.one_of(
        st.binary(max_size=60),
        st.builds(
            lambda info, at, value: (data := bytearray(info), data.__setitem__(at % len(data), value))[0],
            infos,
            st.integers(0, 500),
            st.integers(0, 255),
        ).map(bytes),
    )
)
@settings(max_examples=250, deadline=None)
def test_any_bytes_are_refused_or_mean_what_protobuf_says(data: bytes) -> None:
    try:
        ours = restore_ranks(data)
    except Unreadable:
        return
    try:
        theirs = judged(data)
    except (DecodeError, UnicodeDecodeError):
        pytest.fail(f"protobuf refuses what we accept: {data.hex()}")
    assert ours == theirs


def _write(root: Path, lists: dict[int, tuple[int, ...]]) -> str:
    for rank, members in lists.items():
        folder = root / f"device{rank}"
        folder.mkdir(parents=True)
        (folder / GROUP_INFO_NAME).write_bytes(group_info(members))
    return str(root / "device0" / GROUP_INFO_NAME)


def test_the_files_of_all_ranks_are_found_from_any_one(tmp_path: Path) -> None:
    _write(tmp_path, {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)})
    found = read_group_files(str(tmp_path / "device3" / GROUP_INFO_NAME), 4)
    assert found.lists == {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)}
    assert found.unreadable == {}


def test_the_newest_of_several_nodes_files_of_a_rank_counts_and_a_torn_one_does_not(tmp_path: Path) -> None:
    a, b, c = (tmp_path / f"node_{name}" for name in "abc")
    info = _write(a, {0: (0, 2), 1: (1, 3)})
    _write(b, {2: (2,), 3: (3,)})
    _write(c, {2: (0, 2), 3: (1, 3)})
    (c / "device3" / GROUP_INFO_NAME).write_bytes(b"\x12")
    for at, root in enumerate((a, b, c)):
        for path in root.glob(f"device*/{GROUP_INFO_NAME}"):
            os.utime(path, (at, at))
    found = read_group_files(info, 4, (b, c))
    assert found.lists == {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (3,)}
    assert found.unreadable == {}


def test_a_pipe_or_a_huge_file_in_place_of_group_info_is_a_reason_and_no_wait(tmp_path: Path) -> None:
    (tmp_path / "device0").mkdir()
    (tmp_path / "device1").mkdir()
    os.mkfifo(tmp_path / "device0" / GROUP_INFO_NAME)
    with (tmp_path / "device1" / GROUP_INFO_NAME).open("wb") as huge:
        huge.truncate(MAX_GROUP_INFO_BYTES + 1)
    found = read_group_files(str(tmp_path / "device0" / GROUP_INFO_NAME), 2)
    assert found.lists == {}
    assert "not a regular file" in found.unreadable[0]
    assert "bytes (limit" in found.unreadable[1]
