"""Journals that earlier versions wrote: each is kept as it was, and means today what it meant then."""

import json
from pathlib import Path

import pytest

from faultrun.journal.read import Past, replay
from faultrun.model.run import Phase
from support.places import DATA
from support.stories.story import new_run

KEPT = sorted((DATA / "journals").glob("*.jsonl"))
PREEMPTED = next(path for path in KEPT if path.stem == "a_fault_then_two_preemptions")


def replayed(lines: list[str], folder: Path) -> Past:
    journal = folder / "journal.jsonl"
    journal.write_text("".join(lines))
    return replay(journal, new_run(2))


@pytest.mark.long
@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_every_line_is_understood_and_leads_where_it_led(kept: Path, tmp_path: Path) -> None:
    lines = kept.read_text().splitlines(keepends=True)
    for count, line in enumerate(lines, start=1):
        past, told = replayed(lines[:count], tmp_path), json.loads(line)
        assert past.torn == ""
        assert past.state.phase is Phase(told["phase"]), line
        assert past.state.incarnation == told["incarnation"] or told["why"].startswith("stale"), line


def test_a_stopped_run_of_an_earlier_version_is_gone_on_with_a_finished_one_is_not(tmp_path: Path) -> None:
    lines = PREEMPTED.read_text().splitlines(keepends=True)
    ends = [
        number for number, line in enumerate(lines, start=1) if json.loads(line)["event"] == "RunFinished"
    ]
    states = [replayed(lines[:count], tmp_path).state for count in ends]
    assert [(state.exit_code, state.stop is not None) for state in states] == [
        (143, True), (143, True), (0, False),
    ]  # fmt: skip
    assert [state.incidents for state in states] == [1, 1, 1]
    assert states[0].run.high_step == 6
