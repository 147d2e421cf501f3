"""What a spare sees in its folders while others train, and once it takes part; real MindSpore files."""

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.model.events import RecoveryPointChosen
from support.checkpoints.ckpt_bytes import ckpt, save
from support.checkpoints.surveys import AGAIN, FIRST, answers, finder, put, step_of


def test_what_comes_while_a_spare_waits_is_its_runs_and_no_strangers(tmp_path: Path) -> None:
    put(tmp_path, 10)
    looking = finder(tmp_path)
    answer = answers(RecoveryPointChosen, looking.find(FIRST, 0.0))
    assert (answer.point, answer.left_alone) == (None, 1)
    save(tmp_path / "ckpt/net-1_20.ckpt", ckpt(1, 20))
    answer = answers(RecoveryPointChosen, looking.find(FIRST, 0.0))
    assert (answer.point, answer.left_alone) == (None, 0), "the others know whether it is whole and in doubt"
    assert step_of(looking.find(AGAIN, 0.0)) == 20
    (tmp_path / "ckpt/net-1_20.ckpt").unlink()
    assert step_of(looking.find(AGAIN, 0.0)) is None, "what was there before stays left alone"


def test_what_the_plan_of_a_node_that_came_late_resumed_from_is_no_strangers(tmp_path: Path) -> None:
    put(tmp_path, 10)
    put(tmp_path, 20)
    assert answers(RecoveryPointChosen, finder(tmp_path).find(FIRST, 0.0)).left_alone == 2
    for request, step in (
        (AGAIN, None),
        (replace(AGAIN, resumed=f"{tmp_path}/ckpt/net-1_20.ckpt"), 20),
        (AGAIN, 20),
    ):
        found = finder(tmp_path).find(request, 0.0)
        assert step_of(found) == step, "and the next supervisor knows it, too"
    (tmp_path / "ckpt/net-1_20.ckpt").unlink()
    assert step_of(finder(tmp_path).find(AGAIN, 0.0)) is None


def test_a_gasp_of_the_step_that_was_resumed_from_is_not_taken_back_with_it(tmp_path: Path) -> None:
    """It may be in doubt, which only those know who were there."""
    periodic, gasp = tmp_path / "ckpt/step_20.safetensors", tmp_path / "ckpt/rank_0/gasp.pt"
    header = json.dumps({"__metadata__": {"step": "20"}}).encode()
    save(periodic, struct.pack("<Q", len(header)) + header)
    save(gasp, b"state")
    told = {"schema": 1, "path": gasp.name, "kind": "gasp", "step": 20, "world_size": 2, "rank": 0,
            "replica_group": [0, 1], "size_bytes": 5, "digest": f"crc32:{zlib.crc32(b'state'):08x}",
            "run_id": "r", "incarnation": 0, "node": "n"}  # fmt: skip
    save(Path(f"{gasp}.manifest.json"), json.dumps(told).encode())
    catalog = Catalog((f"{tmp_path}/ckpt",), settle_s=0.0)
    entries = catalog.scan().entries
    assert {one.identity.told for one in entries} == {(20, None, None)}
    catalog.leave_alone(entries)
    catalog.take_back(str(periodic))
    assert [one.path for one in catalog.scan().entries] == [str(periodic)]
