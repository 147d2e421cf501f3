"""examples/99_chaos: whatever is rehearsed, the last line is the one of a training without faults."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from examples.launched import FAULTRUN
from support.places import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "99_chaos"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("chaos", ["kill:rank=1,step=50", "segv:rank=3,step=30;kill:rank=0,step=170,life=1"])
def test_a_rehearsed_fault_changes_nothing_about_the_end(chaos: str, tmp_path: Path) -> None:
    assert f"`{chaos}`" in README or f"'{chaos}'" in README
    done = subprocess.run(
        [*FAULTRUN, "--worker_num=4", "--checkpoint_dir=ckpt", str(EXAMPLE / "train.py"), "--step_s=0.01"],
        cwd=tmp_path,
        env={**os.environ, "FAULTRUN_CHAOS": chaos},
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
    (promised,) = re.findall(r"`(final step \d+, weight \d+)`", README)
    for rank in range(4):
        log = (tmp_path / "faultrun_log" / f"worker_{rank}.log").read_text()
        assert log.endswith(f"rank {rank}: {promised}\n")
    incidents = len(list((tmp_path / "faultrun_log").glob("incident_*.json")))
    assert incidents == chaos.count(";") + 1
