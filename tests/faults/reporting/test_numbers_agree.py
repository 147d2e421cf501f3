"""A real run: whoever tells of it says the same numbers, and those of its journal.

``tests/observe/test_numbers_agree.py`` asks the same of kept journals of every kind.
"""

import json
import sys

from support.places import TESTS
from support.reporting.outlets import all_agree
from support.runs import Launcher

STEPS = (sys.executable, str(TESTS / "faults" / "scripts" / "steps.py"))
OPTIONS = ("--worker_num=2", "--metrics_file=run.prom", "--on_event=(cat; echo) >> told.jsonl")


def test_saves_of_the_sdk_and_two_kills(launcher: Launcher) -> None:
    words = (*OPTIONS, *STEPS, "160", "save", "0:1:20:9", "1:1:40:9")
    run = launcher.command(*words, environ={"FAULTRUN_REPORT": "True"})
    assert run.ends() == 0
    told = [json.loads(line) for line in (launcher.folder / "told.jsonl").read_text().splitlines() if line]
    exposition = (launcher.folder / "run.prom").read_text()
    truth = all_agree(run.log_dir, console=run.text, announced=told, exposition=exposition)
    assert (truth.incidents, truth.restarts, truth.saves, truth.newest_step) == (2, 2, 2, 160)
    # Ranks do not wait for each other here: what is lost is how far they are apart at the save.
    assert truth.lost_steps is not None
    assert truth.lost_steps < 20
    assert "2 of 3 left this hour (1 earlier one given back for progress)" in run.card(2)
