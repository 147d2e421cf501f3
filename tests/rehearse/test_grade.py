"""The grade that a rehearsal ends with, and the page that tells of it."""

import json
from dataclasses import replace

import pytest

from faultrun.rehearse.grade import Letter, grade
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

SAME = LossCheck(likeness=Likeness.SAME, compared=5, words="")
PART = Undisturbed(
    trained_s=20.0, first_step_s=2.0, last_step=90, first_save_s=4.0, save_every_s=2.0, saves=("a",)
)


def outcome(*tried: Tried, part: Undisturbed = PART) -> RehearsalOutcome:
    return RehearsalOutcome(tried=tried, undisturbed=part, minutes=3.0, took_s=60.0, isolation="kept apart")


def survived(trial: Trial, lost: int | None = 0, losses: LossCheck = SAME) -> Tried:
    return Tried(trial=trial, fate=Fate.SURVIVED, lost_steps=lost, again_s=1.0, life=1, losses=losses)


ALL = tuple(survived(trial) for trial in Trial)


def but(trial: Trial, tried: Tried) -> tuple[Tried, ...]:
    return tuple(tried if one.trial is trial else one for one in ALL)


def test_an_a_is_for_everything_tried_and_nothing_lost() -> None:
    judged = grade(outcome(*ALL))
    assert (judged.letter, judged.words, judged.reasons) == (Letter.A, "A", ())
    assert outcome(*ALL).survived


@pytest.mark.parametrize(
    ("tried", "letter"),
    [
        (survived(Trial.RANK, lost=2), Letter.B),
        (survived(Trial.RANK, lost=None), Letter.B),
        (survived(Trial.STOP, losses=LossCheck(likeness=Likeness.DIFFER, words="by 1")), Letter.C),
        (replace(survived(Trial.STOP), ailments=(Ailment.STUCK_IN_STOP,)), Letter.C),
        (Tried(trial=Trial.TORN, fate=Fate.LOST), Letter.D),
        (Tried(trial=Trial.FREEZE, fate=Fate.LOST, ailments=(Ailment.FREEZE_UNSEEN,)), Letter.D),
        (Tried(trial=Trial.RANK_0, fate=Fate.LOST), Letter.F),
    ],
)
def test_the_worst_that_was_found_gives_the_letter(tried: Tried, letter: Letter) -> None:
    assert grade(outcome(*but(tried.trial, tried))).letter is letter


def test_what_was_not_tried_limits_the_grade_and_is_named() -> None:
    late = Tried(trial=Trial.FREEZE, fate=Fate.NOT_TRIED, note="the 3 minutes were over")
    found = outcome(*but(Trial.FREEZE, late))
    assert grade(found).words == "A at best"
    assert "not tried, and so not known: a rank frozen (SIGSTOP)" in grade(found).reasons
    assert not found.survived


def test_what_nobody_asked_for_limits_the_grade_and_is_no_failure() -> None:
    found = replace(outcome(survived(Trial.STOP)), left_out=(Trial.TORN,))
    assert not grade(found).whole
    assert any("not asked for" in reason for reason in grade(found).reasons)
    assert found.survived


def test_nothing_tried_is_no_grade_and_no_success() -> None:
    late = tuple(Tried(trial=trial, fate=Fate.NOT_TRIED) for trial in Trial)
    assert grade(outcome(*late)).words == "none"
    assert not outcome(*late).survived
    assert not outcome().survived


def test_a_training_that_saves_nothing_is_told_so_with_the_time_and_the_step() -> None:
    part = replace(PART, first_save_s=None, saves=())
    tried = Tried(trial=Trial.RANK, fate=Fate.LOST, ailments=(Ailment.SAVES_NOTHING,))
    judged = grade(outcome(*but(Trial.RANK, tried), part=part))
    assert judged.letter is Letter.F
    assert judged.reasons[0].startswith("saves nothing: no checkpoint in 20 s of training (step 90)")


def test_a_training_that_saves_only_when_it_is_asked_to_saves() -> None:
    part = replace(PART, first_save_s=None, saves=())
    assert Ailment.SAVES_NOTHING not in outcome(*ALL, part=part).ailments


def test_saves_in_place_are_named_by_their_file() -> None:
    judged = grade(outcome(*ALL, part=replace(PART, in_place="ckpt/last.pt")))
    assert judged.letter is Letter.C
    assert "ckpt/last.pt is written over" in judged.reasons[0]


def test_every_ailment_has_its_sentence() -> None:
    for ailment in Ailment:
        tried = replace(
            survived(Trial.RANK, losses=LossCheck(likeness=Likeness.DIFFER, words="by 2")),
            ailments=(ailment,),
            note="as it was seen",
        )
        assert grade(outcome(tried)).reasons[0]


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
