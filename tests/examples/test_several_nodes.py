"""examples/14_several_nodes: a host dies, the spare takes its place, and not a bit of the result changes."""

import shutil
import sys
from pathlib import Path

import pytest

from examples.launched import FAULTRUN, run_to_the_end
from faultrun.nodes.etcd.own_server import etcd_of_package
from support.machine.processes import marked
from support.places import ROOT

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("etcd") or etcd_of_package()), reason="there is no etcd"),
]

SCRIPT = ROOT / "examples" / "14_several_nodes" / "laptop.py"
TRAIN = ROOT / "examples" / "02_torch_ddp" / "train.py"


def test_a_dead_host_changes_no_bit_of_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    told = run_to_the_end(sys.executable, SCRIPT, "--step_delay_s=0.03", cwd=tmp_path, within_s=240)
    undisturbed = run_to_the_end(
        *FAULTRUN, "--nproc-per-node=2", "--tee=3", TRAIN, cwd=tmp_path, within_s=240
    )
    final = next(line for line in undisturbed.splitlines() if "final step" in line).partition("final step")[2]
    assert f"final step{final}; exit codes [0, 0]" in told
    assert "dies with everything on it" in told
    assert "trains in its place" in told
    assert marked("LAPTOP_HOST=") == []
