"""The screen of ``status --watch`` on terminals of several widths."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from faultrun.observe.standby_words import StandbyTally
from faultrun.observe.status.screen import fitted
from faultrun.observe.status.status import (
    LastIncident,
    NewestCheckpoint,
    Outlook,
    RankState,
    RestartsSpent,
    RunStatus,
    Supervised,
)
from faultrun.observe.status.words import COLUMNS, facts

LONG = "/a/shared/folder/with/a/long/name/that/goes/on/and/on/checkpoints/step_1234567/and/further/on.ckpt"
STATUS = RunStatus(
    run_id="calm-heron-3f7a", command="train.py", log_dir="faultrun_log", supervisor=Supervised.GONE,
    phase="draining", why=f"rank 1: killed by SIGKILL {LONG}", suspected="rank 2 may hang",
    incarnation=3, world_size=2, here=2, elapsed_s=7263.0, last_event_age_s=1.0, step=1_234_567,
    standbys=StandbyTally(wanted=2, off=LONG),
    slowest_step=1_234_560, rate=12.34,
    spent=RestartsSpent(restarts=2, counted=1, incidents=2, high_step=9, allowed=3, left=2, window_s=3600.0),
    last_incident=LastIncident(number=2, headline=f"incident 2  {LONG}", age_s=5.0),
    resumed_from=LONG, resumed_step=1_234_000,
    last_checkpoint=NewestCheckpoint(path=LONG, step=1_234_000, age_s=5.0, size_bytes=1 << 30),
    outlook=Outlook(restarts=True, number=2, allowed=3, backoff_s=1.0, text=f"restart 2 of 3 in 1h {LONG}"),
    ended=None,
    ranks=tuple(
        RankState(
            rank=rank, pid=4_194_300 + rank, state="training", what=LONG, step=1_234_567, doing="checkpoint",
            step_age_s=725.0, rate=12.34, rss_bytes=123_456 << 20, cpu=15.99,
        )
        for rank in (0, 1023)
    ),
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_no_name_and_no_number_is_cut_at_the_usual_widths(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=40, color_system=None)
    console.print(fitted(STATUS, console))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    rows = shown.splitlines()
    assert max(map(len, rows)) <= width
    for name, _ in facts(STATUS):
        assert any(row.strip().startswith(name) for row in rows), name
    (head,) = [row for row in rows if "steps/s" in row and "last step" in row]
    assert all(column in head for column in COLUMNS)
    for rank in ("0", "1023"):
        (row,) = [row for row in rows if row.split()[:1] == [rank]]
        for cell in ("checkpoint", "1,234,567", "12.3", "12 min 5 s", "123,456 MiB", "1599%"):
            assert cell in row


def test_nothing_that_was_ordered_is_called_a_fault() -> None:
    ordered = LastIncident(
        number=2, headline="incident 2  all workers stopped to be more", age_s=5.0, ordered=True
    )
    assert dict(facts(STATUS))["last fault"].startswith("incident 2")
    told = dict(facts(replace(STATUS, last_incident=ordered)))
    assert told["newest"].startswith("incident 2  all workers stopped to be more")
    assert "last fault" not in told
