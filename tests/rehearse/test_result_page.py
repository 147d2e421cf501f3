import json
from dataclasses import replace

from faultrun.rehearse.outcome import (
    Ailment,
    Fate,
    Likeness,
    LossCheck,
    RehearsalOutcome,
    Trial,
    Tried,
    Undisturbed,
)
from faultrun.rehearse.result_page import as_json, page

FOUND = RehearsalOutcome(
    tried=(
        Tried(
            trial=Trial.RANK,
            fate=Fate.SURVIVED,
            lost_steps=3,
            again_s=1.25,
            resumed="step 40, net-40.pt",
            life=1,
            losses=LossCheck(likeness=Likeness.SAME, compared=7, words=""),
        ),
        Tried(trial=Trial.STOP, fate=Fate.LOST, ailments=(Ailment.STUCK_IN_STOP,), note="it had not ended"),
        Tried(trial=Trial.TORN, fate=Fate.NOT_TRIED, note="the 3 minutes were over"),
    ),
    undisturbed=Undisturbed(trained_s=20.0, first_step_s=2.0, last_step=90, first_save_s=4.0),
    minutes=3.0,
    took_s=61.5,
    isolation="kept apart",
    watched=31,
)


def test_a_page_has_a_row_for_each_fault_and_says_what_was_kept() -> None:
    text = page(FOUND)
    rows = text.splitlines()
    assert rows[2].split("  ")[0] == "SIGKILL of a rank"
    assert "1.2 s" in rows[2] and "the same (7 compared)" in rows[2]
    assert rows[3].split() == ["stopped", "(SIGTERM),", "started", "again", "NO", "?", "-", "-", "-"]
    assert rows[4].endswith("not tried")
    assert "stopped (SIGTERM), started again: it had not ended" in text
    assert "grade D at best" in text
    assert "your files are exactly as they were: 31 compared" in text


def test_changed_files_are_told_loudly_and_not_all_of_a_thousand() -> None:
    text = page(replace(FOUND, changed=tuple(f"/data/{number}" for number in range(1000))))
    assert "WARNING: 1000 of your files are NOT as they were" in text
    assert "... and 980 more" in text
    assert "exactly as they were:" not in text


def test_json_holds_all_of_it() -> None:
    found = json.loads(json.dumps(as_json(FOUND)))
    assert (found["grade"], found["complete"], found["survived"]) == ("D", False, False)
    assert [one["outcome"] for one in found["faults"]] == ["survived", "not survived", "not tried"]
    assert found["faults"][0]["steps_lost"] == 3
    assert found["found"] == ["does not end after SIGTERM"]
    assert found["changed"] == []
