"""Three torch ranks in trouble that no single death makes: two at once, a peer that is frozen for good."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.campaigns.gasps_evidence import Reference, disturbed_bits, resumed_well, states
from benchmarks.campaigns.gasps_job import RUN_S, TORCH, orphans
from benchmarks.campaigns.gasps_run import life
from benchmarks.harness import journal
from benchmarks.harness.launched import Launched
from benchmarks.harness.launchers import LOG_DIR
from benchmarks.harness.notes import select

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SEED = 5
TRAINING = replace(TORCH, workers=3)
RANKS = set(range(TRAINING.workers))
VICTIMS = (0, 2)
KILLED = {"is": "Signaled", "signum": signal.SIGKILL}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return TRAINING.undisturbed(tmp_path_factory.mktemp("undisturbed"), SEED)


def test_two_ranks_that_die_at_once_cost_at_most_one_step(tmp_path: Path, reference: Reference) -> None:
    with Launched(TRAINING.command(SEED), tmp_path, {}) as run:
        run.wait_for(lambda: has_done(run, 7, VICTIMS), within_s=RUN_S, what="step 7")
        for rank in VICTIMS:
            os.kill(pid_of(run, rank), signal.SIGKILL)
        assert run.wait_for_the_end(within_s=RUN_S) == 0, run.console
        lines = journal.read(tmp_path)
        assert orphans(run, lines) == 0
        first, second = life(run.notes, lines, 0), life(run.notes, lines, 1)
    died = [line["rank"] for line in journal.of(lines, "WorkerExit") if line["status"] == KILLED]
    assert set(VICTIMS) <= set(died)
    assert {line["rank"] for line in journal.of(lines, "GaspSaved")} <= RANKS - set(VICTIMS)
    assert first.newest - second.resumed <= 1
    assert disturbed_bits(first, TRAINING.read_back(tmp_path, lines), reference) == []
    assert resumed_well(second, TRAINING.workers, reference) == []
    # Whether the card names both depends on the kernel: taking a torch process down can outlast the window.
    card = json.loads((tmp_path / LOG_DIR / "incident_1.json").read_text(encoding="utf-8"))
    assert card["incident"]["rank"] in VICTIMS


def test_ranks_that_wait_for_a_frozen_peer_are_saved_when_the_run_is_stopped(
    tmp_path: Path, reference: Reference
) -> None:
    """Their main threads sit in an all-reduce that never returns; SIGCONT does not help the peer."""
    with Launched(TRAINING.command(SEED, "--die=2:9:freeze:0"), tmp_path, {}) as run:
        run.wait_for(
            lambda: bool(select(run.notes, "frozen")) and has_done(run, 8, sorted(RANKS - {2})),
            within_s=RUN_S,
            what="everybody waits for rank 2",
        )
        stop = (sys.executable, "-m", "faultrun", "stop", "--log_dir", str(tmp_path / LOG_DIR))
        asked = subprocess.run(stop, capture_output=True, text=True, timeout=60, check=False)
        assert asked.returncode == 0, asked.stderr
        assert run.wait_for_the_end(within_s=60) == 143, run.console
        lines = journal.read(tmp_path)
        assert orphans(run, lines) == 0
        first = life(run.notes, lines, 0)
    assert first.newest == 8
    assert "saved step 8; exit code 143" in run.console
    assert not journal.of(lines, "TimerFired"), "the window ends with the verified save"
    frozen = [line["status"] for line in journal.of(lines, "WorkerExit") if line["rank"] == 2]
    assert frozen == [KILLED]
    files = TRAINING.read_back(tmp_path, lines)
    assert {one.step for one in files} == {8}
    assert disturbed_bits(first, files, reference) == []
    with Launched(TRAINING.command(SEED), tmp_path, {}) as again:
        assert again.wait_for_the_end(within_s=RUN_S) == 0, again.console
        second = life(again.notes, journal.read(tmp_path), 1)
    assert second.resumed == 8
    assert resumed_well(second, TRAINING.workers, reference) == []


def has_done(run: Launched, step: int, ranks: tuple[int, ...] | list[int]) -> bool:
    done = {one.rank for one in states(run.notes, "step") if one.step >= step}
    return set(ranks) <= done


def pid_of(run: Launched, rank: int) -> int:
    return select(run.notes, "running", life=0, rank=rank)[0].pid
