"""A short, seeded piece of the campaign ``benchmarks/campaigns/torn_saves.py``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT


@pytest.mark.slow
def test_savers_killed_at_random_moments_never_lead_to_a_torn_or_an_older_choice(tmp_path: Path) -> None:
    savers = ("in place", "in place, bare", "renamed", "with manifest")
    words = ("--saves=48", "--seed=7", f"--keep={tmp_path / 'rows'}", *(f"--saver={one}" for one in savers))
    campaign = (sys.executable, "-m", "benchmarks.campaigns.torn_saves", *words)
    told = subprocess.run(campaign, cwd=ROOT, timeout=200, check=False)
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    tallies = {row["saver"]: row for row in rows}
    assert set(tallies) == set(savers)
    for saver, tally in tallies.items():
        assert (tally["chosen_torn"], tally["chosen_older"]) == (0, 0), saver
        assert tally["saves"] == 12
    assert told.returncode == 0
    assert sum(tally["torn"] for tally in tallies.values()) >= 5, "the kills must hit saves in the middle"
