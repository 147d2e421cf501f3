"""accelerate with several models under the real program: killed ranks, and the end of an undisturbed run."""

from pathlib import Path

import pytest

from examples.codes import undisturbed
from support.machine.installed import need
from support.places import TESTS
from support.runs import Launcher

need("accelerate")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = TESTS / "sdk" / "scripts" / "accelerate_several.py"
IMPORTS = ("accelerate", "torch.distributed")


def test_several_models_with_optimizers_and_schedulers_of_their_own_come_back_bit_for_bit(
    tmp_path: Path,
) -> None:
    reference, hit = tmp_path / "reference", tmp_path / "hit"
    for folder in (reference, hit):
        folder.mkdir()
    words = ("3",)
    environ = {"OUT": str(reference), "CKPT": str(reference / "ck")}
    undisturbed(SCRIPT, *words, imports=IMPORTS, cwd=reference, workers=2, environ=environ)
    launcher = Launcher(hit)
    kills = ("kill-1-5-begin", "kill-0-12-backward", "kill-1-14-end", "kill-0-20-end")
    options = ("--framework=torch", "--worker_num=2", "--standby=none", "--checkpoint_dir=ck")
    more = ("--max_restarts=9", "--backoff=10ms..20ms")
    environ |= {"OUT": str(hit), "CKPT": str(hit / "ck")}
    run = launcher.command(*options, *more, str(SCRIPT), *words, *kills, environ=environ)
    try:
        assert run.ends(within_s=300) == 0, run.text
        for rank in range(2):
            assert (hit / f"final_{rank}").read_text() == (reference / f"final_{rank}").read_text()
        assert len(run.events("PlanAdopted")) == len(kills) + 1
        assert run.text.count("lost 0 steps") == len(kills)
    finally:
        launcher.close()
