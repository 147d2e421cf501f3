"""MindSpore's ``.ckpt``: what the numbers mean and when a file is whole."""

from pathlib import Path

import pytest

from faultrun.checkpoints.format import Foreign, Unreadable
from faultrun.checkpoints.formats.mindspore.ckpt_records import Outline, outline_of
from faultrun.checkpoints.reading import opened
from faultrun.model.checkpoint import Depth, Kind, Verdict
from faultrun.text.protobuf import encode_varint
from support.checkpoints.catalogs import catalog_of, judge, only
from support.checkpoints.ckpt_bytes import WEIGHTS, ckpt, field, record, records, save, value_record, with_crc

WRITTEN_BY_MINDSPORE = bytes.fromhex(
    "0a220a0177121d08041207466c6f617433321a10000000000000803f00000040000040400a1e0a0965706f63685f6e756d12111205496e7436341a"
    "0803000000000000000a1d0a08737465705f6e756d12111205496e7436341a080c000000000000006372635f6e756d0000000000006fcbad32"
)
"""w = float32[4], epoch_num 3, step_num 12, and the CRC trailer, as MindSpore 2.10 wrote them."""


def outline(path: Path) -> Outline:
    with opened(str(path)) as file:
        return outline_of(file)


def test_the_encoder_of_these_tests_writes_what_mindspore_writes() -> None:
    body = b"".join(records({"w": [0.0, 1.0, 2.0, 3.0], "epoch_num": 3, "step_num": 12}))
    assert with_crc(body) == WRITTEN_BY_MINDSPORE


def test_the_outline_of_mindspores_own_bytes(tmp_path: Path) -> None:
    found = outline(save(tmp_path / "w-3_4.ckpt", WRITTEN_BY_MINDSPORE))
    assert found.sizes == {"w": 16, "epoch_num": 8, "step_num": 8}
    assert found.numbers == {"epoch_num": 3, "step_num": 12}
    assert found.crc == 0x6FCBAD32
    assert found.end == len(WRITTEN_BY_MINDSPORE) - 17


def test_a_tensor_split_into_records_of_one_tag_is_one_tensor(tmp_path: Path) -> None:
    halves = record("big", "Float32", [4], bytes(8)) * 2
    found = outline(save(tmp_path / "a.ckpt", halves + value_record("step_num", 1)))
    assert found.sizes == {"big": 16, "step_num": 8}


def test_a_split_tensor_that_lacks_a_part_is_cut(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ckpt", record("big", "Float32", [4], bytes(8)) + value_record("step_num", 1))
    with pytest.raises(Unreadable, match="'big' has 8 of its 16 bytes"):
        outline(path)


def test_strings_maps_and_unknown_types_are_walked_over(tmp_path: Path) -> None:
    embedding = field(0x0A, field(0x0A, b"map") + field(0x1A, bytes(300)))
    odd = record("odd", "Float4E2M1", [3], bytes(2))
    found = outline(save(tmp_path / "a.ckpt", value_record("note", "ünïcode") + embedding + odd))
    assert list(found.sizes) == ["note", "map", "odd"]


def test_tensors_longer_than_the_window_are_skipped_not_read(tmp_path: Path) -> None:
    big = record("big", "Int8", [1 << 20], bytes(1 << 20))
    path = save(tmp_path / "a.ckpt", big * 1 + value_record("step_num", 5))
    read: list[int] = []
    with opened(str(path), read.append) as file:
        assert outline_of(file).numbers == {"step_num": 5}
    assert sum(read) < 40_000


@pytest.mark.parametrize(
    "data",
    [b"PK\x03\x04" + bytes(100), b"\x80\x02}q\x00.", bytes(50), b"\x7f encrypted"],
    ids=["zip", "pickle", "zeros", "cipher"],
)
def test_other_peoples_files_are_foreign(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(Foreign):
        outline(save(tmp_path / "a.ckpt", data))


def test_a_length_beyond_the_file_costs_no_memory(tmp_path: Path) -> None:
    huge = b"\x0a" + encode_varint(1 << 50) + field(0x0A, b"w") + b"\x12" + encode_varint((1 << 50) - 20)
    with pytest.raises(Unreadable):
        outline(save(tmp_path / "a.ckpt", huge))


# -- what the numbers mean


def test_periodic_step_num_is_global(tmp_path: Path) -> None:
    save(tmp_path / "net-3_4.ckpt", ckpt(3, 12))
    entry = only(tmp_path)
    assert (entry.kind, entry.epoch, entry.step_in_epoch, entry.global_step) == (Kind.PERIODIC, 3, 4, 12)


def test_breakpoint_step_num_is_within_the_epoch_so_the_optimizers_count_is_taken(tmp_path: Path) -> None:
    save(tmp_path / "net-2_15_breakpoint.ckpt", ckpt(2, 15, global_step=55))
    entry = only(tmp_path)
    assert (entry.kind, entry.epoch, entry.step_in_epoch, entry.global_step) == (Kind.GASP, 2, 15, 55)


def test_breakpoint_without_the_optimizers_count_gets_its_step_from_a_periodic_sibling(
    tmp_path: Path,
) -> None:
    save(tmp_path / "net-2_15_breakpoint.ckpt", ckpt(2, 15))
    assert only(tmp_path).global_step is None, "alone it only knows its epoch"
    save(tmp_path / "net-2_10.ckpt", ckpt(2, 50))
    steps = {entry.kind: entry.global_step for entry in catalog_of(tmp_path).scan().entries}
    assert steps == {Kind.PERIODIC: 50, Kind.GASP: 55}


def test_mindx_breakpoints_store_the_running_count(tmp_path: Path) -> None:
    save(tmp_path / "Exception-2_15_breakpoint.ckpt", ckpt(2, 55))
    assert only(tmp_path).global_step == 55


def test_steps_of_a_session_that_counts_from_zero_again_follow_from_epochs(tmp_path: Path) -> None:
    """``initial_epoch`` continues the epochs; ``step_num`` and a fresh optimizer's count start at zero."""
    for epoch in (1, 2, 3):
        save(tmp_path / f"lenet-{epoch}_40.ckpt", ckpt(epoch, epoch * 40, global_step=epoch * 40))
    save(tmp_path / "lenet_1-4_40.ckpt", ckpt(4, 40, global_step=40))
    newest = max(catalog_of(tmp_path).scan().entries, key=lambda entry: entry.global_step or 0)
    assert (Path(newest.path).name, newest.global_step) == ("lenet_1-4_40.ckpt", 160)


def test_names_of_a_session_that_began_within_an_epoch_count_for_less_than_the_optimizer(
    tmp_path: Path,
) -> None:
    """Resumed at step 289, in epoch 8 of 40 steps: its 20th step is 309, and its 40th, in epoch 9, is 329."""
    for epoch in (6, 7):
        save(tmp_path / f"net-{epoch}_40.ckpt", ckpt(None, None, global_step=epoch * 40))
    for name, step in (("net_1-8_20", 309), ("net_1-9_40", 329), ("net_1-9_20", 349)):
        save(tmp_path / f"{name}.ckpt", ckpt(None, None, global_step=step))
    steps = {Path(entry.path).stem: entry.global_step for entry in catalog_of(tmp_path).scan().entries}
    assert {name: steps[name] for name in steps if "_1-" in name} == {
        "net_1-8_20": 309, "net_1-9_40": 329, "net_1-9_20": 349,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "series", "session", "kind"),
    [
        ("resnet-1_5.ckpt", "resnet-", 0, Kind.PERIODIC),
        ("resnet_3-2_5.ckpt", "resnet-", 3, Kind.PERIODIC),
        ("resnet512-1_5.ckpt", "resnet512-", 0, Kind.PERIODIC),
        ("lenet-1-7_1875.ckpt", "lenet-", 1, Kind.PERIODIC),
        ("resnet_1_1-1_5_breakpoint.ckpt", "resnet-", 1, Kind.GASP),
        ("best_acc.ckpt", "best_acc", 0, Kind.BEST),
        ("weights.ckpt", "weights", 0, Kind.PERIODIC),
    ],
)
def test_names(tmp_path: Path, name: str, series: str, session: int, kind: Kind) -> None:
    save(tmp_path / name, ckpt(1, 5))
    entry = only(tmp_path)
    assert (entry.series, entry.session, entry.kind) == (series, session, kind)


@pytest.mark.parametrize("directory", ["rank_3", "ckpt_3", "rank3", "device_3", "out/rank_3"])
def test_the_rank_comes_from_the_directory(tmp_path: Path, directory: str) -> None:
    save(tmp_path / directory / "pangu3-1_20.ckpt", ckpt(1, 20))
    entry = only(tmp_path)
    assert (entry.rank, entry.series) == (3, "pangu-")


# -- when a file is whole


def test_appended_numbers_prove_the_end(tmp_path: Path) -> None:
    save(tmp_path / "net-3_4.ckpt", ckpt(3, 12))
    assert judge(tmp_path, "net-3_4.ckpt") == Verdict(
        whole=True, why="5 records, the appended ones included", depth=Depth.STRUCTURE
    )


def test_a_checksum_is_compared_and_a_flipped_bit_is_found(tmp_path: Path) -> None:
    data = bytearray(ckpt(3, 12, crc=True))
    save(tmp_path / "net-3_4.ckpt", bytes(data))
    assert judge(tmp_path, "net-3_4.ckpt").depth is Depth.CHECKSUM
    assert judge(tmp_path, "net-3_4.ckpt").whole
    data[30] ^= 1
    save(tmp_path / "net-3_4.ckpt", bytes(data))
    assert judge(tmp_path, "net-3_4.ckpt").why == "its checksum does not match its bytes"
    assert judge(tmp_path, "net-3_4.ckpt", Depth.STRUCTURE).whole, "the structure alone does not show it"


def test_a_lone_writable_file_without_any_proof_of_its_end_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "net.ckpt", ckpt(None, None))
    verdict = judge(tmp_path, "net.ckpt")
    assert not verdict.whole
    assert verdict.provisional, "a second save may yet prove it"
    assert verdict.why.startswith("nothing proves its end")


def test_a_lone_read_only_file_is_whole_because_mindspore_makes_it_so_after_the_last_byte(
    tmp_path: Path,
) -> None:
    save(tmp_path / "net.ckpt", ckpt(None, None), mode=0o400)
    assert judge(tmp_path, "net.ckpt").why == "3 records, and read-only, which it became after the last byte"


def test_the_same_records_in_a_save_of_another_step_prove_the_end(tmp_path: Path) -> None:
    save(tmp_path / "net-1_1.ckpt", ckpt(None, None))
    save(tmp_path / "net-1_2.ckpt", ckpt(None, None))
    assert judge(tmp_path, "net-1_2.ckpt").why == "3 records, the same as net-1_1.ckpt"


def test_the_same_records_of_another_rank_at_the_same_step_prove_nothing(tmp_path: Path) -> None:
    """One event cuts both: two ranks killed while they wrote the same record."""
    save(tmp_path / "rank_0/net-1_1.ckpt", ckpt(None, None))
    save(tmp_path / "rank_1/net-1_1.ckpt", ckpt(None, None))
    assert not judge(tmp_path, "rank_0/net-1_1.ckpt").whole


def test_an_optimizer_that_skipped_an_update_long_ago_makes_no_breakpoint_suspect(tmp_path: Path) -> None:
    save(tmp_path / "net-1_20.ckpt", ckpt(1, 20, global_step=19))
    save(tmp_path / "net-1_25_breakpoint.ckpt", ckpt(1, 25, global_step=24))
    assert judge(tmp_path, "net-1_25_breakpoint.ckpt").whole


def test_a_dying_gasp_with_more_in_it_accuses_no_periodic_save_of_another_writer(tmp_path: Path) -> None:
    save(tmp_path / "net-1_25_breakpoint.ckpt", ckpt(1, 25, crc=True, moment=[0.0] * 4, global_step=25))
    save(tmp_path / "net-1_30.ckpt", ckpt(None, None), mode=0o400)
    assert judge(tmp_path, "net-1_30.ckpt").whole
    save(tmp_path / "net-1_40.ckpt", ckpt(None, None))
    assert judge(tmp_path, "net-1_40.ckpt").why == "3 records, the same as net-1_30.ckpt"
    save(tmp_path / "net_1-1_40.ckpt", ckpt(1, 40))
    assert judge(tmp_path, "net_1-1_40.ckpt").whole


def test_a_dying_gasp_accuses_a_lone_periodic_save_that_may_have_been_cut(tmp_path: Path) -> None:
    save(tmp_path / "net-1_25_breakpoint.ckpt", ckpt(1, 25))
    save(tmp_path / "net-1_30.ckpt", b"".join(records(WEIGHTS)))
    verdict = judge(tmp_path, "net-1_30.ckpt")
    assert verdict.why == "cut after record 3 of 5: net-1_25_breakpoint.ckpt goes on with 'epoch_num'"


# -- every prefix of a file

SHAPES = {
    "plain": ckpt(None, None),
    "appended": ckpt(3, 12, global_step=12),
    "crc": ckpt(3, 12, crc=True),
    "crc without appended": ckpt(None, None, crc=True),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_cut_of_a_lone_file_is_refused_or_complete(tmp_path: Path, shape: str) -> None:
    """Complete means: all weights and all counts are there; only the checksum behind them may be gone."""
    data = SHAPES[shape]
    content = data.removesuffix(data[-17:]) if b"crc_num" in data else data
    for size in range(len(data)):
        save(tmp_path / "net-3_4.ckpt", data[:size])
        verdict = judge(tmp_path, "net-3_4.ckpt")
        complete = size == len(content) and b"epoch_num" in data
        assert verdict.whole == complete, (size, verdict)


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sibling", ["net-2_4.ckpt", "net-3_3.ckpt"])
def test_every_cut_of_a_file_with_a_whole_sibling_is_refused(
    tmp_path: Path, shape: str, sibling: str
) -> None:
    data = SHAPES[shape]
    save(tmp_path / sibling, data)
    for size in range(len(data)):
        save(tmp_path / "net-3_4.ckpt", data[:size], mode=0o400)
        verdict = judge(tmp_path, "net-3_4.ckpt")
        assert not verdict.whole, (size, verdict)
        assert verdict.why
    save(tmp_path / "net-3_4.ckpt", data)
    assert judge(tmp_path, "net-3_4.ckpt").whole
