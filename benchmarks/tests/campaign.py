"""A short piece of a campaign, as a person runs it."""

import os
import subprocess
import sys

import pytest
from benchmarks.campaigns.engine import NOT_POSSIBLE

from support.lightly import lightly
from support.places import ROOT


def carried_out(name: str, *words: str, within_s: float = 560, **more: str) -> str:
    """What it prints; ``more`` are variables. Every promise was kept; skipped where this is not possible."""
    command = (sys.executable, "-m", f"benchmarks.campaigns.{name}", *words)
    environ = {**os.environ, **lightly("launcher", "tests", "."), **more}
    ended = subprocess.run(
        command, cwd=ROOT, env=environ, timeout=within_s, check=False, capture_output=True, text=True
    )
    if ended.returncode == NOT_POSSIBLE:
        pytest.skip(ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
