"""When SLURM ends a job, by what ``scontrol`` answers: a stand-in of it on PATH."""

from datetime import datetime
from pathlib import Path

import pytest

from faultrun.supervisor.platform.slurm_job import asks_slurm, ends_at_utc_s, read_end
from support.machine.processes import lives, wait_until

NOW_S = datetime(2026, 11, 28, 12, 0, 0).timestamp()


@pytest.mark.parametrize(
    ("said", "left_s"),
    [
        ("JobState=RUNNING EndTime=2026-11-28T12:01:30 PreemptTime=None", 90),
        ("JobState=COMPLETING EndTime=2026-11-28T13:00:00", 30),
        ("JobState=RUNNING EndTime=2026-11-28T11:59:59", 30),
        ("JobState=RUNNING EndTime=Unknown", None),
        ("slurm_load_jobs error: Invalid job id specified", None),
        ("", None),
    ],
)
def test_the_end_is_the_jobs_or_that_of_the_kill_which_is_under_way(said: str, left_s: float | None) -> None:
    assert read_end(said, NOW_S) == (None if left_s is None else NOW_S + left_s)


def test_one_node_asks_and_an_answer_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "scontrol"
    stand_in.write_text('#!/bin/sh\necho "JobId=$4 JobState=RUNNING EndTime=2026-11-28T12:01:30"\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert ends_at_utc_s("7", NOW_S) == NOW_S + 90
    assert [asks_slurm({"SLURM_JOB_ID": "7", "SLURM_NODEID": node}) for node in "01"] == [True, False]
    assert not asks_slurm({})
    stand_in.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {tmp_path}/below\nwait\n")
    assert ends_at_utc_s("7", NOW_S) is None
    below = int((tmp_path / "below").read_text())
    wait_until(lambda: not lives(below), what="the end of what a wrapper started")
    stand_in.unlink()
    assert ends_at_utc_s("7", NOW_S) is None
