"""DeepSpeed with ZeRO-1, two CPU workers: whatever ends it, the last line is that of the undisturbed run."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.launched import FAULTRUN, TORCHRUN, Run, launched, run_to_the_end
from support.lightly import LIGHT
from support.places import ROOT

EXAMPLE = ROOT / "examples" / "13_deepspeed" / "train.py"
DEEPSPEED = ROOT / ".codes" / "deepspeed"
START = ("--recipe=deepspeed", "--worker_num=2", "--grace=500ms", EXAMPLE)
STEPS = 40
WITHIN_S = 240
ENVIRONMENT = (
    "env",
    f"PYTHONPATH={os.pathsep.join([str(DEEPSPEED), str(LIGHT)])}",
    "LIGHT_WITH_COMPILER=1",
    f"PATH={DEEPSPEED / 'bin'}:{os.environ['PATH']}",
    f"TORCH_EXTENSIONS_DIR={DEEPSPEED.with_name('extensions')}",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.timeout(900),  # the first waits for the compiler
    pytest.mark.skipif(
        not (DEEPSPEED / ".installed").exists(), reason="DeepSpeed is missing: make deepspeed"
    ),
]


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    """DeepSpeed's one kernel is compiled here, while others test: it takes a minute the first time."""
    make = ("make", "--silent", "--old-file=.venv/.ready", "deepspeed")
    made = subprocess.run(
        make, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"DeepSpeed cannot be compiled: {made.stdout[-300:]}")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The last line under torchrun."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ports = ("--standalone", "--nproc_per_node=2")
    printed = run_to_the_end(
        *ENVIRONMENT, *TORCHRUN, *ports, EXAMPLE, f"--steps={STEPS}", cwd=folder, within_s=WITHIN_S
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


def test_killed_as_it_saves_and_later_it_goes_on_from_what_is_whole(tmp_path: Path, undisturbed: str) -> None:
    with training(tmp_path) as run:
        run.wait_until((tmp_path / "zero" / "global_step20").exists, within_s=WITHIN_S)
        run.kill(1)
        run.wait_until(lambda: step(run, 1) >= 24, within_s=WITHIN_S)
        run.kill(1)
        assert run.wait_for_the_end(within_s=WITHIN_S) == 0
        assert resumed(run, 1) in (10, 20)
        assert resumed(run, 2) == 20
        assert final(run.output(2).text) == undisturbed
        assert (tmp_path / "zero" / "latest").read_bytes() == b"global_step40"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of a training that was told to stop after step 22, and a copy of all that it left there."""
    folder = tmp_path_factory.mktemp("stopped")
    with training(folder) as run:
        run.wait_until(lambda: step(run, 0) >= 22, within_s=WITHIN_S)
        os.kill(run.supervisor, signal.SIGTERM)
        assert run.wait_for_the_end(within_s=60) == 143
    return folder, Path(shutil.copytree(folder, folder.with_name("copy"), symlinks=True))


@pytest.mark.parametrize("spoiled", ["torn", "pointer gone"])
def test_stopped_and_spoiled_by_hand_the_same_command_goes_on(
    stopped: tuple[Path, Path], undisturbed: str, spoiled: str
) -> None:
    folder, copy = stopped
    shutil.rmtree(folder)
    shutil.copytree(copy, folder, symlinks=True)
    zero = folder / "zero"
    shard = zero / "global_step20" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    if spoiled == "torn":
        shard.write_bytes(shard.read_bytes()[:1000])
    else:
        (zero / "latest").unlink()  # DeepSpeed alone would begin at step 1 and only log it
    with training(folder, step_s=0.0) as run:
        assert run.wait_for_the_end(within_s=WITHIN_S) == 0
        life = max(int(one.name.partition("_")[2]) for one in run.log_dir.glob("incarnation_*"))
        assert resumed(run, life) == (20 if spoiled == "pointer gone" else 10)
        assert final(run.output(life).text) == undisturbed
        rewritten = [(one["file"], one["after"]) for one in run.journal("ConfigRewritten")]
        expected = "global_step20" if spoiled == "pointer gone" else "global_step10"
        assert rewritten == [(str(zero / "latest"), expected)]
        refused = [one["why"] for event in run.journal("RecoveryPointChosen") for one in event["refused"]]
        assert (spoiled == "pointer gone") == (not any(shard.name in why for why in refused))
