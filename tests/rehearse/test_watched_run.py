"""What is seen of a run that is rehearsed."""

from pathlib import Path

from faultrun.rehearse.log_progress import LogsSeen
from faultrun.rehearse.observed_saves import RehearsedSaves
from faultrun.rehearse.watched_run import WatchedRun
from support.stories.story import first_plan


def test_the_last_lines_of_a_life_are_read_though_the_next_has_begun_by_then(tmp_path: Path) -> None:
    run = WatchedRun((), tmp_path, logs=LogsSeen(tmp_path, 2), saves=RehearsedSaves((str(tmp_path),)))
    log = tmp_path / "incarnation_0" / "worker_1.log"
    log.parent.mkdir()
    run.view.plan = first_plan(2)
    run.look()
    log.write_text("step 3\nPermissionError: [Errno 13] Permission denied\n")
    run.view.plan = first_plan(2, incarnation=2)
    run.look()
    assert run.logs.last_words(0, 1).endswith("Permission denied")
