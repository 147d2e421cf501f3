"""The crowd of simulated supervisors: every question is answered by a real etcd, and none is left out."""

import asyncio
from pathlib import Path

import pytest
from benchmarks.harness.benchmark import OURS
from benchmarks.harness.etcd import missing, three_members
from benchmarks.scale import BENCHMARK, IN_THE_PLAN, ask_everything

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing(OURS)), reason=missing(OURS))]

_OURS_ALONE = {"keepalives", "keepalive", "alarm"}


def test_a_small_crowd_measures_everything_and_loses_no_watch(tmp_path: Path) -> None:
    keys = {metric.key for metric in BENCHMARK.metrics}
    with three_members(tmp_path) as etcd:
        ours = asyncio.run(ask_everything(etcd, 20, OURS))
        assert ours.keys() == keys
        assert ours["lost"] == [0]
    assert not any(Path(f"/proc/{pid}/cmdline").exists() for pid in etcd.pids)


def test_the_other_way_measures_what_can_be_compared(tmp_path: Path) -> None:
    with three_members(tmp_path) as etcd:
        found = asyncio.run(ask_everything(etcd, 20, IN_THE_PLAN))
    assert {metric.key for metric in BENCHMARK.metrics} - found.keys() == _OURS_ALONE
    assert found["list"] == found["plan"]
