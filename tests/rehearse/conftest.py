"""Rehearsals in full, as a person would type them; whoever cannot have a private view skips them by name."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.places import TESTS
from support.rehearsals import rehearse_command

SCRIPT = TESTS / "rehearse" / "scripts" / "train.py"
RESUME = "--resume_arg=--resume={checkpoint}"


@pytest.fixture
def rehearse(tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Rehearse the small training: our options in a tuple, its own behind; the exit code and the JSON."""

    def run(
        *options: str, script: tuple[str, ...] = (), minutes: float = 5.0, least_s: float = 4.8
    ) -> tuple[int, dict[str, Any]]:
        words = ("--worker_num=2", "--checkpoint_dir=ckpt", RESUME, *options, str(SCRIPT), *script)
        done = subprocess.run(
            [*rehearse_command(least_s), "--json", f"--minutes={minutes}", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=minutes * 60 + 120,
            check=False,
        )
        if "does not allow a safe rehearsal" in done.stderr:
            pytest.skip("no private view of the file system is allowed here")
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, found

    return run
