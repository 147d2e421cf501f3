"""examples/12_fsdp2_dcp: ranks killed and stopped, a checkpoint torn; the same end as an undisturbed run."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from examples.codes import final_line, undisturbed
from examples.launched import FAULTRUN, Run, launched
from support.places import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = ROOT / "examples" / "12_fsdp2_dcp" / "train.py"
STEPS = ("--steps=30", "--save_every=10")
SLOW = (*STEPS, "--step_s=0.15")  # a test that sees a step late still strikes before the end
REPLICATED = ("--steps=16", "--save_every=10", "--replicate=2")

_STEP = re.compile(r"^step (\d+) loss", re.MULTILINE)
_RESUMED = re.compile(r"^resumed at step (\d+)$", re.MULTILINE)


IMPORTS = (
    *("torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.device_mesh"),
    *("torch.distributed.tensor", "sklearn.datasets"),
)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, final_line(undisturbed(SCRIPT, *STEPS, imports=IMPORTS, cwd=folder))


def faultrun(workers: int, *options: str) -> tuple[str | Path, ...]:
    return (*FAULTRUN, f"--nproc-per-node={workers}", "--checkpoint_dir=fsdp2", *options)


def step(run: Run, incarnation: int) -> int:
    return max(map(int, _STEP.findall(run.output(incarnation).text)), default=0)


def resumed_at(run: Run, incarnation: int) -> int:
    (found,) = _RESUMED.findall(run.output(incarnation).text)
    return int(found)


def test_killed_as_it_saves_then_told_to_stop_it_goes_on_to_the_same_end(
    reference: tuple[Path, str], tmp_path: Path
) -> None:
    """A rank dies while the second checkpoint is written; the stop comes in the life after that."""
    with launched(*faultrun(2), SCRIPT, *SLOW, cwd=tmp_path) as run:
        run.wait_until(lambda: step(run, 0) >= 15, within_s=120)
        run.wait_until((tmp_path / "fsdp2" / "step-20").exists, within_s=120)
        run.kill(1)
        run.wait_until(lambda: step(run, 1) >= 24, within_s=120)
        os.kill(run.supervisor, signal.SIGTERM)
        assert run.wait_for_the_end(within_s=60) == 143, run.console
        assert resumed_at(run, 1) in (10, 20)
        saved_after = [one["step"] for one in run.journal("GaspSaved") if one["incarnation"] == 0]
        card = (run.log_dir / "incident_1.txt").read_text(encoding="utf-8")
        stopped_at = step(run, 1)
    # Where the checkpoint was complete and is as new as what the survivor saved, that lacks nothing.
    lacks = "which lacks the part of the state that only rank 1 held" in card
    assert lacks == (max(saved_after) > resumed_at(run, 1)), card
    assert re.search(r"resume .*/fsdp2/step-(10|20) ", card), card
    saved = sorted(path.name for path in (tmp_path / "fsdp2" / "gasps").glob("rank_*/gasp-step_*.pt"))
    newest = [name for name in saved if name == saved[-1]]
    assert len(newest) == 2, saved
    with launched(*faultrun(2), SCRIPT, *STEPS, cwd=tmp_path) as again:
        assert again.wait_for_the_end(within_s=120) == 0, again.console
        assert resumed_at(again, 2) >= stopped_at
        assert final_line(again.output(2).text) == reference[1]


def test_a_torn_newest_checkpoint_is_passed_over_and_the_one_before_loads_into_another_number_of_ranks(
    reference: tuple[Path, str], tmp_path: Path
) -> None:
    shutil.copytree(reference[0] / "fsdp2", tmp_path / "fsdp2")
    os.truncate(tmp_path / "fsdp2" / "step-30" / "__1_0.distcp", 1000)
    with launched(*faultrun(1, "--resume=always"), SCRIPT, "--steps=22", cwd=tmp_path) as run:
        assert run.wait_for_the_end(within_s=120) == 0, run.console
        assert resumed_at(run, 0) == 20
        assert step(run, 0) == 22
        told = str(run.journal("RecoveryPointChosen")[0])
        assert "fsdp2/step-30" in told
        assert re.search(r"__1_0\.distcp\S* is cut", told), told


def test_a_replica_has_the_shards_of_a_killed_rank(tmp_path: Path) -> None:
    (tmp_path / "undisturbed").mkdir()
    where = tmp_path / "undisturbed"
    line = final_line(undisturbed(SCRIPT, *REPLICATED, imports=IMPORTS, cwd=where, workers=4))
    with launched(*faultrun(4), SCRIPT, *REPLICATED, "--step_s=0.1", cwd=tmp_path) as run:
        run.wait_until(lambda: step(run, 0) >= 7, within_s=120)
        run.kill(3)
        assert run.wait_for_the_end(within_s=120) == 0, run.console
        assert 0 <= step(run, 0) - resumed_at(run, 1) <= 1
        assert final_line(run.output(1).text) == line
