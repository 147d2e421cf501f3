"""A short piece of the campaign with the real MindSpore: a rank dies in a step, all go on bit for bit."""

import os
import subprocess
import sys

import pytest

from support.lightly import lightly
from support.places import ROOT

pytestmark = [pytest.mark.mindspore, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_rank_that_dies_in_a_step_costs_at_most_one_step() -> None:
    """As ``DyingGasp()`` comes; one that copies every step is in ``tests/sdk``."""
    words = ("--framework=mindspore", "--runs=1", "--seed=5")
    campaign = (sys.executable, "-m", "benchmarks.campaigns.gasps", *words)
    environ = {**os.environ, **lightly()}
    ended = subprocess.run(
        campaign, cwd=ROOT, env=environ, timeout=500, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 deaths kept every promise" in ended.stdout
