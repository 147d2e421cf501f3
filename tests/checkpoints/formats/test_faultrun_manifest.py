"""faultrun's own saves: a file and the manifest that was written last."""

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from faultrun.core.recovery.choose import Chosen, NoneUsable
from faultrun.core.recovery.need import Need, Whose, World
from faultrun.model.checkpoint import Depth, Kind
from support.checkpoints.catalogs import judge, only, reasons, survey_of
from support.checkpoints.ckpt_bytes import ckpt, save

STATE = b"any bytes of any framework"


def manifest(data: bytes, **changes: object) -> bytes:
    fields = {
        "schema": 1, "path": "net-2_15.pt", "step": 55, "epoch": 2, "step_in_epoch": 15, "world_size": 4,
        "rank": 1, "replica_group": [0, 1, 2, 3], "size_bytes": len(data),
        "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "run_id": "r1",
        "incarnation": 3, "node": "n0",
    }  # fmt: skip
    return json.dumps({**fields, **changes}).encode()


def gasp(root: Path, data: bytes = STATE, **changes: Any) -> Path:
    path = save(root / "net-2_15.pt", data)
    save(root / "net-2_15.pt.manifest.json", manifest(data, **changes))
    return path


def test_everything_is_read_from_the_manifest(tmp_path: Path) -> None:
    gasp(tmp_path)
    entry = only(tmp_path)
    assert (entry.format, entry.kind, entry.consistent) == ("faultrun", Kind.GASP, True)
    assert (entry.rank, entry.epoch, entry.step_in_epoch, entry.global_step) == (1, 2, 15, 55)
    assert (entry.world_size, entry.run_id, entry.incarnation) == (4, "r1", 3)
    assert entry.replica_group == (0, 1, 2, 3)


def test_a_verified_gasp_serves_its_replica_group(tmp_path: Path) -> None:
    gasp(tmp_path)
    found = survey_of(tmp_path, Need(world=World(size=4), whose=Whose(run_id="r1")))
    assert isinstance(found.choice, Chosen)
    assert [file.from_rank for file in found.choice.point.files] == [1, 1, 1, 1]
    (verdict,) = found.verdicts.values()
    assert (verdict.depth, verdict.digest[:7]) == (Depth.CHECKSUM, "sha256:")


@pytest.mark.parametrize(
    "digest", [f"crc32:{zlib.crc32(STATE):08x}", f"sha256:{hashlib.sha256(STATE).hexdigest()}"]
)
def test_a_flipped_bit_is_found_by_either_digest(tmp_path: Path, digest: str) -> None:
    gasp(tmp_path, digest=digest)
    assert judge(tmp_path, "net-2_15.pt").whole
    save(tmp_path / "net-2_15.pt", b"Any" + STATE[3:])
    assert judge(tmp_path, "net-2_15.pt").why == "its bytes do not match the digest in its manifest"


def test_every_cut_of_the_file_is_refused(tmp_path: Path) -> None:
    path = gasp(tmp_path)
    for size in range(len(STATE)):
        save(path, STATE[:size])
        assert not judge(tmp_path, "net-2_15.pt", Depth.STRUCTURE).whole, size


@pytest.mark.long
def test_every_cut_of_the_manifest_is_refused(tmp_path: Path) -> None:
    gasp(tmp_path)
    data = manifest(STATE)
    for size in range(len(data)):
        save(tmp_path / "net-2_15.pt.manifest.json", data[:size])
        assert isinstance(survey_of(tmp_path, Need(world=World(size=4))).choice, NoneUsable), size


def test_a_file_whose_manifest_was_never_written_is_what_its_own_format_says(tmp_path: Path) -> None:
    save(tmp_path / "net-2_15_breakpoint.ckpt", ckpt(2, 15, global_step=55))
    entry = only(tmp_path)
    assert (entry.format, entry.consistent) == ("mindspore", False)


def test_a_manifest_without_its_file_is_nothing(tmp_path: Path) -> None:
    save(tmp_path / "gone.pt.manifest.json", manifest(STATE))
    assert survey_of(tmp_path).scan.entries == ()


def test_the_manifest_of_somebody_else_leaves_the_file_to_its_own_format(tmp_path: Path) -> None:
    save(tmp_path / "net-1_2.ckpt", ckpt(1, 2))
    save(tmp_path / "net-1_2.ckpt.manifest.json", b'{"layers": []}')
    assert only(tmp_path).format == "mindspore"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"path": "../../etc/passwd"}, "its manifest is of '../../etc/passwd'"),
        ({"path": 5}, "its manifest has no usable path"),
        ({"schema": 2}, "its manifest has schema 2, this faultrun knows 1"),
        ({"step": -1}, "its manifest has no usable step"),
        ({"step": True}, "its manifest has no usable step"),
        ({"step": 1 << 70}, "its manifest has no usable step"),
        ({"rank": 4}, "its manifest is of rank 4 among 4"),
        ({"digest": "md5:00"}, "its manifest has a digest of an unknown kind"),
        ({"replica_group": [0, "1"]}, "its manifest has a replica_group that is no list of ranks"),
        ({"kind": "weekly"}, "its manifest names an unknown kind"),
    ],
)
def test_impossible_manifests_are_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    gasp(tmp_path, **changes)
    assert judge(tmp_path, "net-2_15.pt").why == why


def test_a_save_on_request_says_that_it_is_periodic(tmp_path: Path) -> None:
    gasp(tmp_path, kind="periodic")
    assert only(tmp_path).kind is Kind.PERIODIC


def test_a_manifest_of_a_megabyte_is_not_parsed(tmp_path: Path) -> None:
    gasp(tmp_path, node="x" * (1 << 20))
    assert judge(tmp_path, "net-2_15.pt").why.startswith("its manifest has 10")


def test_a_gasp_of_another_run_is_not_ours(tmp_path: Path) -> None:
    gasp(tmp_path)
    save(tmp_path / "net-1_2.ckpt", ckpt(1, 2))
    found = survey_of(tmp_path, Need(world=World(size=4), whose=Whose(run_id="r2")))
    assert isinstance(found.choice, Chosen)
    assert reasons(found, tmp_path) == {"net-2_15.pt": "written by run r1, this is run r2"}
