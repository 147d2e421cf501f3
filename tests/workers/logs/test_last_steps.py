"""How far ranks came, by what they leave behind: the page where they report, else their logs."""

import os
from pathlib import Path

from faultrun.model.observed.progress import RankStep
from faultrun.model.wire import SLOT_BYTES, pack_word
from faultrun.workers.logs.last_steps import LastSteps, last_steps, progress_of
from faultrun.workers.logs.log_files import LogFiles


def files(log_dir: Path) -> LogFiles:
    made = LogFiles(log_dir=log_dir, worker_name="worker", incarnation=2)
    made.folder.mkdir()
    return made


def write_page(logs: LogFiles, *steps: int | None) -> None:
    """One slot a rank; None: it has not written yet."""
    words = [
        b"" if step is None else pack_word(step, epoch=-1, phase=0, at_monotonic_s=1.0, count=1)
        for step in steps
    ]
    logs.progress.write_bytes(b"".join(word.ljust(SLOT_BYTES, b"\0") for word in words))


def test_what_ranks_report_counts_and_their_logs_do_not(tmp_path: Path) -> None:
    logs = files(tmp_path)
    write_page(logs, 30, None)
    logs.worker(4).write_text("step 99 loss 0.5\n")
    found = last_steps(logs, (4, 5))
    assert (found.steps, found.by_log) == ((RankStep(rank=4, step=30),), False)
    assert [seen.step if seen is not None else None for seen in progress_of(logs)] == [30, None]


def test_where_nobody_reports_the_last_step_of_each_log_counts(tmp_path: Path) -> None:
    logs = files(tmp_path)
    write_page(logs, None, None, None)
    logs.worker(0).write_text("step 84 loss 0.5\nstep 85 loss 0.4\nBroken pipe\n")
    logs.worker(1).write_text("max step: 900\n")
    os.utime(logs.worker(0), ns=(1, 10**18))
    os.utime(logs.worker(1), ns=(1, 5))
    os.utime(logs.progress, ns=(1, 5))
    found = last_steps(logs, range(3))
    assert found == LastSteps(steps=(RankStep(rank=0, step=85),), by_log=True, changed_utc_ns=10**18)


def test_steps_that_count_anew_in_every_epoch_are_no_global_ones(tmp_path: Path) -> None:
    logs = files(tmp_path)
    logs.worker(0).write_text("epoch: 3 step: 7, loss is 0.5\n")
    assert last_steps(logs, (0,)).steps == ()


def test_where_nothing_is_left_nothing_is_known(tmp_path: Path) -> None:
    gone = LogFiles(log_dir=tmp_path, worker_name="worker", incarnation=7)
    assert last_steps(gone, (0, 1)) == LastSteps(by_log=True)
