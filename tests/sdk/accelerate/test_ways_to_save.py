"""Every way in which accelerate opens data, resumed in the middle of an epoch: no batch twice or left out."""

from pathlib import Path

import pytest

from examples.launched import TORCHRUN, run_to_the_end
from support.machine.installed import need
from support.places import TESTS

need("accelerate")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = TESTS / "sdk" / "scripts" / "accelerate_ways.py"


def test_every_kind_of_loader_goes_on_where_it_was_from_either_kind_of_save(tmp_path: Path) -> None:
    command = (*TORCHRUN, "--standalone", "--nproc-per-node=2", SCRIPT, tmp_path)
    told = run_to_the_end(*command, cwd=tmp_path, within_s=240)
    lines = [line for line in told.splitlines() if line.startswith("rank ")]
    assert len(set(lines)) == 2 * 9 * 2
    assert [line for line in lines if not line.endswith(" same")] == []
