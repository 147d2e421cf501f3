"""Candidates that a survey must not trust: quarantined, written after a death, of another life."""

import json
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.checkpoints.catalog import Catalog
from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.events import NothingWhole
from faultrun.model.plan import Attempt
from faultrun.model.spec.run_spec import Replicas
from support.checkpoints.ckpt_bytes import ckpt, save
from support.checkpoints.surveys import AGAIN, answers, finder, put, step_of


def test_a_quarantined_checkpoint_gives_way_to_an_older_one(tmp_path: Path) -> None:
    put(tmp_path, 10, 20)
    request = without(tmp_path, 20)
    assert step_of(finder(tmp_path).find(request, 0.0)) == 10
    (tmp_path / "ckpt/net-1_20.ckpt").rename(tmp_path / "ckpt/prev-1_20.ckpt")
    assert step_of(finder(tmp_path).find(request, 0.0)) == 10
    put(tmp_path, 20)
    assert step_of(finder(tmp_path).find(request, 0.0)) == 20, "written anew"


def test_a_quarantined_checkpoint_is_still_better_than_none(tmp_path: Path) -> None:
    put(tmp_path, 20)
    assert step_of(finder(tmp_path).find(without(tmp_path, 20), 0.0)) == 20


def without(root: Path, step: int) -> FindRecoveryPoint:
    """A survey that leaves out the checkpoint of ``step`` as it is now."""
    path = f"{root}/ckpt/net-1_{step}.ckpt"
    (entry,) = (one for one in Catalog([f"{root}/ckpt"]).scan().entries if one.path == path)
    return replace(AGAIN, quarantine=(Attempt(path=path, failures=2, identity=entry.identity),))


FAULT = replace(AGAIN, fault_at_s=0.0)


@pytest.mark.long
@pytest.mark.parametrize("clock_s", [0.0, -5.0, -86400.0, 86400.0])
def test_a_breakpoint_file_that_came_with_a_fault_stays_doubtful(tmp_path: Path, clock_s: float) -> None:
    """Whatever the clock of the file server says."""
    put(tmp_path, 10)
    looking = finder(tmp_path)
    assert step_of(looking.find(AGAIN, 0.0)) == 10
    breakpoint_file(tmp_path, 12, mtime_s=time.time() + clock_s)
    assert step_of(looking.find(FAULT, 0.0)) == 10
    assert step_of(looking.find(AGAIN, 0.0)) == 10
    assert step_of(finder(tmp_path).find(FAULT, 0.0)) == 10, "the next supervisor knows it too"


@pytest.mark.parametrize("name", ["net-1_12_breakpoint.ckpt", "moved-1_12_breakpoint.ckpt"])
def test_a_breakpoint_file_that_was_there_when_the_life_began_counts(tmp_path: Path, name: str) -> None:
    put(tmp_path, 10)
    saved = breakpoint_file(tmp_path, 12)
    assert step_of(finder(tmp_path).find(AGAIN, 0.0)) == 12
    saved.rename(saved.with_name(name))
    assert step_of(finder(tmp_path).find(FAULT, 0.0)) == 12
    breakpoint_file(tmp_path, 14)
    assert step_of(finder(tmp_path).find(FAULT, 0.0)) == 12


def test_a_gasp_that_was_seen_before_its_manifest_counts_once_that_is_there(tmp_path: Path) -> None:
    looking, data = finder(tmp_path), ckpt(1, 12)
    gasp = save(tmp_path / "ckpt/gasp-step_12.ckpt", data)
    (refused,) = answers(NothingWhole, looking.find(FAULT, 0.0)).refused
    assert refused.why.startswith("may be half updated")
    facts = {"schema": 1, "path": gasp.name, "step": 12, "world_size": 2, "rank": 0, "replica_group": [0, 1]}
    digest = f"crc32:{zlib.crc32(data):08x}"
    told = {
        **facts,
        "size_bytes": len(data),
        "digest": digest,
        "run_id": "calm-heron-3f7a",
        "incarnation": 2,
        "node": "n",
    }
    save(Path(f"{gasp}.manifest.json"), json.dumps(told).encode())
    assert step_of(looking.find(FAULT, 0.0)) == 12
    assert step_of(finder(tmp_path).find(FAULT, 0.0)) == 12, "the next supervisor takes it, too"


def test_the_breakpoint_file_of_a_lone_rank_counts_since_no_peer_had_died(tmp_path: Path) -> None:
    put(tmp_path, 10)
    breakpoint_file(tmp_path, 12)
    assert step_of(finder(tmp_path, workers=1).find(FAULT, 0.0)) == 12


def breakpoint_file(root: Path, step: int, mtime_s: float | None = None) -> Path:
    return save(root / "ckpt" / f"net-1_{step}_breakpoint.ckpt", ckpt(1, step), mtime_s=mtime_s)


def test_shards_of_a_dead_life_are_not_taken_together_with_those_that_came_later(tmp_path: Path) -> None:
    """The files tell no life: one rank died before it saved step 20, in the next life the other did."""

    def shard(rank: int, step: int) -> None:
        save(tmp_path / f"ckpt/rank_{rank}/net-1_{step}.ckpt", ckpt(1, step))

    for rank, step in ((0, 10), (1, 10), (0, 20)):
        shard(rank, step)
    assert step_of(finder(tmp_path, replicas=Replicas.GROUP_INFO).find(FAULT, 0.0)) == 10
    shard(1, 20)
    later = replace(FAULT, incarnation=3)
    assert step_of(finder(tmp_path, replicas=Replicas.GROUP_INFO).find(later, 0.0)) == 10
    shard(0, 30)
    shard(1, 30)
    assert step_of(finder(tmp_path, replicas=Replicas.GROUP_INFO).find(later, 0.0)) == 30
