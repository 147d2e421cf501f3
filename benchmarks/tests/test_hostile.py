"""A short piece of ``make soak-hostile``, and proof that its judge sees what it is there to see."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.campaigns.hostile_files import Shelf
from benchmarks.campaigns.hostile_judge import broken
from benchmarks.campaigns.hostile_plan import Blow, Deed, End, History, Session, draw
from benchmarks.campaigns.hostile_run import Ended, Told
from benchmarks.tests.campaign import carried_out

QUIET = Session(strikes=(), end=End.FINISH, end_after=5, deeds_between=(), folder_gone=False)


@pytest.mark.slow
def test_hostile_histories_break_no_promise() -> None:
    assert "6 of 6 histories kept every promise" in carried_out("hostile", "--histories=6", "--seed=3")


def test_a_seed_draws_the_same_histories_and_all_that_there_is() -> None:
    histories = [draw(number, seed=5) for number in range(200)]
    assert histories == [draw(number, seed=5) for number in range(200)]
    sessions = [session for history in histories for session in history.sessions]
    strikes = [strike for session in sessions for strike in session.strikes]
    assert {session.end for session in sessions} == set(End)
    assert {strike.blow for strike in strikes} == set(Blow)
    assert {deed for strike in strikes for deed in strike.deeds} == set(Deed)
    assert all(history.sessions[-1].end is End.FINISH for history in histories)


def _told(folder: Path, notes: Sequence[tuple[int, int, str, int]], **changes: Any) -> Told:
    """A history of one rank: (life, seconds, what, step) as its ledger has them, and how it ended."""
    history = History(
        number=0, workers=1, guard="none", wrapped=False, requeued=False, save_every=3, sessions=(QUIET,)
    )
    lines = [
        {"at_s": float(at_s), "life": life, "pid": 1, "what": what, "step": step, "path": f"step_{step}"}
        for life, at_s, what, step in notes
    ]
    (folder / "ledger_0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = Told(history, folder, Shelf(folder / "ckpt"))
    ended = {"end": End.FINISH, "exit_code": 0, "stop_took_s": None, "orphans": 0, **changes}
    told.ended.append(Ended(**ended))
    return told


def _reported(folder: Path, incidents: Sequence[Mapping[str, Any]] = (), share: float | None = None) -> None:
    (folder / "log").mkdir()
    report = {"incidents": list(incidents), "incidents_total": len(incidents)}
    whole = {**report, "productive_share": share, "wall_s": 10.0}
    (folder / "log" / "report.json").write_text(json.dumps(whole))


WELL = [(0, 1, "begin", 0), (0, 2, "step", 1), (0, 3, "step", 2), (0, 4, "save", 2), (0, 5, "final", 2)]
STRUCK = [*WELL[:4], (1, 6, "begin", 2), (1, 7, "step", 3), (1, 8, "final", 3)]


def test_a_history_in_which_all_was_kept_is_judged_so(tmp_path: Path) -> None:
    _reported(tmp_path)
    assert broken(_told(tmp_path, WELL)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"orphans": 2}, "2 orphans"),
        ({"exit_code": 93}, "ended with 93"),
        ({"end": End.TERM, "exit_code": 143, "stop_took_s": 30.0}, "30.0 s to stop"),
        ({"overdue": "the supervisor did not end"}, "did not end"),
    ],
)
def test_a_session_that_ends_badly_is_seen(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    _reported(tmp_path)
    notes = WELL if changes.get("exit_code") != 93 else WELL[:4]
    assert any(said in one for one in broken(_told(tmp_path, notes, **changes)))


def test_a_life_that_begins_before_what_was_saved_is_seen(tmp_path: Path) -> None:
    _reported(tmp_path)
    notes = [*WELL[:4], (1, 6, "begin", 0), (1, 7, "step", 1), (1, 8, "final", 1)]
    assert "life 1 began at step 0 although step 2 was saved" in broken(_told(tmp_path, notes))


def test_an_incident_without_a_blow_is_a_healthy_training_that_was_killed(tmp_path: Path) -> None:
    _reported(tmp_path, [{"number": 1, "recovery_s": None, "lost_steps": None}])
    (tmp_path / "log" / "incident_1.json").write_text("{}")
    found = broken(_told(tmp_path, STRUCK))
    assert "1 incidents, but only 0 blows" in found


def test_numbers_that_the_ledger_knows_better_are_seen(tmp_path: Path) -> None:
    _reported(tmp_path, [{"number": 1, "recovery_s": 0.1, "lost_steps": 7}], share=0.95)
    told = _told(tmp_path, STRUCK)
    told.blows.append((4.5, 0, 0))
    found = " ".join(broken(told))
    assert "95.0% productive" in found
    assert "recovery 0.10 s in the report, 2.50 s in truth" in found
    assert "7 steps lost in the report, 0 in truth" in found
