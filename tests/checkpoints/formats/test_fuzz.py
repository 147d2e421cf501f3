"""Any bytes at all: a parser of ours answers or refuses, in bounded memory; it never raises anything else."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from faultrun.checkpoints import reading
from faultrun.checkpoints.format import Listing, Look, Stamp, Unreadable
from faultrun.checkpoints.formats import faultrun_manifest
from faultrun.checkpoints.formats.mindspore.ckpt import MINDSPORE_CKPT
from faultrun.checkpoints.formats.mindspore.ckpt_records import numbers_at, outline_of
from faultrun.checkpoints.formats.mindspore.ttp import TTP
from faultrun.checkpoints.reading import opened
from faultrun.checkpoints.registry import builtin_formats
from faultrun.model.checkpoint import Entry, Kind
from faultrun.text.protobuf import encode_varint
from support.checkpoints.ckpt_bytes import ckpt, field, record, with_crc

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

SEEDS = [
    ckpt(3, 12, global_step=12),
    ckpt(3, 12, crc=True),
    ckpt(None, None, note="text"),
    record("big", "Float32", [4], bytes(8)) * 2,
    field(0x0A, field(0x0A, b"map") + field(0x1A, bytes(30))),
]


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes] = SEEDS) -> bytes:
    """A real file with some bytes overwritten, cut out, doubled, or a hostile length put in."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["set", "cut", "double", "length", "tail"])):
            case "set":
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "cut":
                del data[at : at + draw(st.integers(1, 40))]
            case "double":
                data[at:at] = data[at : at + draw(st.integers(1, 40))]
            case "length":
                data[at : at + 1] = encode_varint(draw(st.integers(0, 1 << 66)))
            case _:
                data += draw(st.binary(max_size=20))
    return bytes(data)


def entry_for(path: Path, kind: Kind = Kind.GASP) -> Entry:
    info = path.stat()
    return Entry(
        path=str(path), format="mindspore", kind=kind, size_bytes=info.st_size, mtime_ns=info.st_mtime_ns,
        inode=info.st_ino, epoch=1, step_in_epoch=2, global_step=2,
    )  # fmt: skip


@QUICK
@given(data=st.one_of(mutated(), st.binary(max_size=200)))
@example(data=b"")
@example(data=b"crc_num" + bytes(10))
@example(data=b"\x0a\x80")
def test_records_are_outlined_or_unreadable(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "net-1_2.ckpt"
    path.write_bytes(data)
    with opened(str(path)) as file:
        try:
            outline = outline_of(file)
        except Unreadable as err:
            assert err.why
            return
        assert sum(outline.sizes.values()) <= len(data)
        found = numbers_at(file, outline.offsets)
        assert found == {tag: outline.numbers[tag] for tag in outline.offsets}


@QUICK
@given(data=mutated(), sibling=mutated())
def test_verdicts_on_mutated_files_never_raise_anything_else(
    tmp_path: Path, data: bytes, sibling: bytes
) -> None:
    path, other = tmp_path / "net-1_2_breakpoint.ckpt", tmp_path / "net-1_1.ckpt"
    path.write_bytes(data)
    other.write_bytes(sibling)
    for one in (MINDSPORE_CKPT, TTP):
        try:
            verdict = one.verify(one.read(entry_for(path)), Look(siblings=[entry_for(other, Kind.PERIODIC)]))
        except Unreadable:
            continue
        assert verdict.why


@QUICK
@given(
    data=mutated(), offsets=st.dictionaries(st.sampled_from(["step_num", "global_step"]), st.integers(0, 300))
)
def test_numbers_are_looked_for_anywhere_without_harm(
    tmp_path: Path, data: bytes, offsets: dict[str, int]
) -> None:
    path = tmp_path / "a.ckpt"
    path.write_bytes(data)
    with opened(str(path)) as file:
        try:
            numbers = numbers_at(file, offsets)
        except Unreadable:
            return
        assert numbers is None or set(numbers) == set(offsets)


@pytest.mark.long
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            field(0x0A, field(0x0A, b"t") + field(0x12, b"\x1a\x00")) * 20_000, id="20,000 equal records"
        ),
        pytest.param(
            b"".join(record(f"{n}", "Int8", [0], b"") for n in range(20_000)), id="20,000 empty tensors"
        ),
        pytest.param(
            b"\x0a" + encode_varint(1 << 40) + b"\x0a" + encode_varint(1 << 39), id="a tag of half a tebibyte"
        ),
        pytest.param(record("x" * 4000, "Int8", [1] * 4000, b"\x00") * 100, id="4000 dimensions"),
        pytest.param(with_crc(bytes(4 << 20)), id="4 MiB of zeros"),
    ],
)
def test_hostile_files_cost_little_memory(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.ckpt"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with opened(str(path)) as file:
            outline_of(file)
    except Unreadable:
        pass
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes < 16 << 20


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "schema", "path", "kind", "step", "epoch", "step_in_epoch", "world_size", "rank", "replica_group",
    "size_bytes", "digest", "run_id", "incarnation", "node",
)  # fmt: skip
GOOD = {
    "schema": 1, "path": "a.pt", "step": 5, "epoch": 1, "step_in_epoch": 5, "world_size": 4, "rank": 1,
    "replica_group": [0, 1], "size_bytes": 1, "digest": "crc32:00000000", "run_id": "r",
    "incarnation": 0, "node": "n",
}  # fmt: skip


@QUICK
@given(
    changes=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4), raw=st.binary(max_size=60) | st.none()
)
def test_manifests_are_checked_or_unreadable(
    tmp_path: Path, changes: dict[str, object], raw: bytes | None
) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"x")
    text = json.dumps({**GOOD, **changes}).encode() if raw is None else raw
    Path(f"{path}{faultrun_manifest.SUFFIX}").write_bytes(text)
    try:
        manifest = faultrun_manifest.read_manifest(str(path))
    except Unreadable as err:
        assert err.why
        return
    assert 0 <= manifest.rank < manifest.world_size


@QUICK
@given(text=st.binary(max_size=200))
@example(text=b"0" * 64)
@example(text=b"\\" + b"0" * 64 + b"  a.pt\n")
def test_sidecars_give_a_digest_or_nothing(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.pt"
    Path(f"{path}{reading.SIDECAR}").write_bytes(text)
    digest = reading.stored_digest(str(path))
    assert digest is None or (digest.startswith("sha256:") and len(digest) == 71)


@QUICK
@given(
    names=st.lists(
        st.text(st.characters(codec="utf-8", blacklist_characters="/\0"), min_size=1, max_size=40), max_size=6
    )
)
@example(names=["-1_5.ckpt", ".ckpt", "_1-1_1.ckpt", "a-99999999999999999999_1.ckpt", "ttp_rank_0-1_1.ckpt"])
def test_any_names_are_claimed_without_harm(names: list[str]) -> None:
    for directory in ("/ckpt/rank_3", "/ckpt/ttp_saved_checkpoints-step_9/rank_0", "/"):
        listing = Listing(path=directory, files={name: Stamp(1, 1, 1) for name in names})
        for one in builtin_formats():
            for claim in one.claim(listing):
                assert set(claim.members) <= set(names)
