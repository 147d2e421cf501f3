"""When SLURM ends this job, by its own word: asked once, as the job is told to stop."""

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from faultrun.files import on_path

_WITHIN_S, _AT_MOST_S = "2", 2.2
_KILL_WAIT_S = 30.0
"""SLURM's default: so long after SIGTERM it kills what it has cancelled, requeued or timed out."""


def asks_slurm(environ: Mapping[str, str]) -> bool:
    """Whether this process is the one of its job that asks: a thousand would be too many."""
    return (
        bool(environ.get("SLURM_JOB_ID"))
        and environ.get("SLURM_NODEID", "0") == "0"
        and bool(on_path("scontrol"))
    )


def ends_at_utc_s(job_id: str, now_utc_s: float) -> float | None:
    """When it kills what still runs; None if unknown. Takes two seconds at most.

    A job that it is ending already has ``KillWait``, and its ``EndTime`` is over. ``timeout`` ends what a
    wrapper of the site's has started, too.
    """
    with suppress(OSError, subprocess.SubprocessError):
        command = ("timeout", "-s", "KILL", _WITHIN_S, "scontrol", "--oneliner", "show", "job", job_id)
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_AT_MOST_S, check=True)
        return read_end(asked.stdout, now_utc_s)
    return None


def read_end(answer: str, now_utc_s: float) -> float | None:
    """The moment in a line of ``scontrol show job``, whose times are local."""
    said = dict(word.split("=", 1) for word in answer.split() if "=" in word)
    with suppress(ValueError):
        end_utc_s = datetime.fromisoformat(said.get("EndTime", "")).timestamp()
        ending = said.get("JobState") != "RUNNING" or end_utc_s <= now_utc_s
        return now_utc_s + _KILL_WAIT_S if ending else end_utc_s
    return None
