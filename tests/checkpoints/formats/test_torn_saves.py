"""A short, seeded piece of the campaign ``benchmarks/campaigns/torn_saves.py``."""

import json
import subprocess
import sys

import pytest

from support.places import ROOT


@pytest.mark.slow
def test_savers_killed_at_random_moments_never_lead_to_a_torn_or_an_older_choice() -> None:
    savers = ("in place", "in place, bare", "renamed", "with manifest")
    told = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.campaigns.torn_saves", "--saves=48", "--seed=7", "--json",
            *(f"--saver={saver}" for saver in savers),
        ],
        cwd=ROOT, stdout=subprocess.PIPE, timeout=200, check=False,
    )  # fmt: skip
    tallies = {tally["saver"]: tally for tally in json.loads(told.stdout)}
    assert set(tallies) == set(savers)
    for saver, tally in tallies.items():
        assert (tally["chosen_torn"], tally["chosen_older"]) == (0, 0), saver
        assert tally["saves"] == 12
    assert told.returncode == 0
    assert sum(tally["torn"] for tally in tallies.values()) >= 5, "the kills must hit saves in the middle"
