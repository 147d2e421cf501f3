"""DeepSpeed with ZeRO-1, two CPU workers: whatever ends it, the last line is that of the undisturbed run."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.launched import FAULTRUN, ROOT, TORCHRUN, Run, launched, run_to_the_end

EXAMPLE = ROOT / "examples" / "13_deepspeed" / "train.py"
DEEPSPEED = ROOT / ".codes" / "deepspeed"
START = ("--recipe=deepspeed", "--worker_num=2", "--grace=500ms", EXAMPLE)
STEPS = 40
ENVIRONMENT = (
    "env",
    f"PYTHONPATH={os.pathsep.join([str(DEEPSPEED), str(ROOT / 'tests' / 'support' / 'light')])}",
    f"PATH={DEEPSPEED / 'bin'}:{os.environ['PATH']}",
    f"TORCH_EXTENSIONS_DIR={DEEPSPEED.with_name('extensions')}",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.skipif(not (DEEPSPEED / ".ready").exists(), reason="DeepSpeed is missing: make deepspeed"),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The last line under torchrun."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ports = ("--standalone", "--nproc_per_node=2")
    printed = run_to_the_end(
        *ENVIRONMENT, *TORCHRUN, *ports, EXAMPLE, f"--steps={STEPS}", cwd=folder, within_s=120
    )
    return final(printed)


@contextmanager
def training(folder: Path, *, step_s: float = 0.05) -> Iterator[Run]:
    words = (f"--steps={STEPS}", f"--step_s={step_s}")
    with launched(*ENVIRONMENT, *FAULTRUN, *START, *words, cwd=folder) as run:
        yield run


def final(text: str) -> str:
    (line,) = re.findall(r"^final step .+$", text, re.MULTILINE)
    return str(line)


def step(run: Run, life: int) -> int:
    return max(map(int, re.findall(r"^step (\d+) ", run.output(life).text, re.MULTILINE)), default=0)


def resumed(run: Run, life: int) -> int:
    (found,) = re.findall(r"^resumed at step (\d+)$", run.output(life).text, re.MULTILINE)
    return int(found)


def test_a_killed_rank_costs_the_steps_since_the_last_save_and_nothing_else(
    tmp_path: Path, undisturbed: str
) -> None:
    with training(tmp_path) as run:
        run.wait_until(lambda: step(run, 0) >= 24, within_s=90)
        run.kill(1)
        assert run.wait_for_the_end(within_s=90) == 0
        assert resumed(run, 1) == 20
        assert final(run.output(1).text) == undisturbed
        assert (tmp_path / "zero" / "latest").read_bytes() == b"global_step40"


def test_killed_during_a_save_it_goes_on_from_one_that_is_whole(tmp_path: Path, undisturbed: str) -> None:
    with training(tmp_path) as run:
        run.wait_until((tmp_path / "zero" / "global_step20").exists, within_s=90)
        run.kill(1)
        assert run.wait_for_the_end(within_s=90) == 0
        assert resumed(run, 1) in (10, 20)
        assert final(run.output(1).text) == undisturbed


@pytest.mark.parametrize("spoiled", ["torn", "pointer gone"])
def test_stopped_and_spoiled_by_hand_the_same_command_goes_on(
    tmp_path: Path, undisturbed: str, spoiled: str
) -> None:
    zero = tmp_path / "zero"
    shard = zero / "global_step20" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    with training(tmp_path) as run:
        run.wait_until(lambda: step(run, 0) >= 22, within_s=90)
        os.kill(run.supervisor, signal.SIGTERM)
        assert run.wait_for_the_end(within_s=60) == 143
    if spoiled == "torn":
        shard.write_bytes(shard.read_bytes()[:1000])
    else:
        (zero / "latest").unlink()  # DeepSpeed alone would begin at step 1 and only log it
    with training(tmp_path, step_s=0.0) as run:
        assert run.wait_for_the_end(within_s=90) == 0
        life = max(int(one.name.partition("_")[2]) for one in run.log_dir.glob("incarnation_*"))
        assert resumed(run, life) == (20 if spoiled == "pointer gone" else 10)
        assert final(run.output(life).text) == undisturbed
        rewritten = [(one["file"], one["after"]) for one in run.journal("ConfigRewritten")]
        expected = "global_step20" if spoiled == "pointer gone" else "global_step10"
        assert rewritten == [(str(zero / "latest"), expected)]
        refused = [one["why"] for event in run.journal("RecoveryPointChosen") for one in event["refused"]]
        assert (spoiled == "pointer gone") == (not any(shard.name in why for why in refused))
