"""The draw of ``make soak-nodes``, and proof that what judges nodes sees what it is there to see."""

import os
import subprocess
from pathlib import Path

from benchmarks.campaigns.everything_plan import When, Whom
from benchmarks.campaigns.everything_presets import of_nodes
from benchmarks.campaigns.judge_nodes import (
    UNNAMED_S,
    cards_differ,
    journals_disagree,
    read_journal,
    unequal_ends,
    unnamed_waits,
    waits_said,
)
from benchmarks.campaigns.ledgers import Census, Ledgers, Life, Told

from support.machine.processes import wait_until


def test_a_seed_draws_the_same_faults_over_three_nodes() -> None:
    sessions = [of_nodes(number, seed=5) for number in range(60)]
    assert sessions == [of_nodes(number, seed=5) for number in range(60)]
    faults = [fault for session in sessions for fault in session.faults]
    assert {fault.whom for fault in faults} == set(Whom)
    assert all(session.faults[0].when is When.TRAINING for session in sessions)
    assert {session.setting.code for session in sessions} == {"plain", "gloo"}
    assert {session.setting.ranks for session in sessions} == {3, 6}
    assert {session.stopped for session in sessions} == {True, False}


def told(life: int, rank: int, what: str, step: int, at_s: float = 0.0) -> Told:
    return Told(at_s=at_s, life=life, rank=rank, node="a", pid=1, what=what, step=step)


def test_a_rank_that_lives_beside_a_newer_incarnation_is_seen(tmp_path: Path) -> None:
    census = Census(tmp_path, Ledgers(tmp_path))
    older = subprocess.Popen(["sleep", "1000"])
    try:
        page = tmp_path / f"0_0_{older.pid}_a.rank"
        page.write_bytes(bytes(16))
        wait_until(lambda: len(census.lives) == 1, what="the first rank")
        (tmp_path / f"1_1_{os.getpid()}_b.rank").write_bytes(bytes(16))
        wait_until(lambda: bool(census.together), what="both")
        assert census.together == ["rank 0 of incarnation 0 lives although rank 1 of incarnation 1 was born"]
        assert census.lives[0].lives()
    finally:
        census.close()
        older.kill()
        older.wait()
    assert not census.lives[0].lives()


def test_a_long_time_without_training_of_which_nobody_says_why_is_seen(tmp_path: Path) -> None:
    lines = [told(0, 0, "step", 1, at_s=10.0)]
    born = [Life(1, 0, 1, "a", tmp_path / "1_0_1_a.rank", 20.0 + UNNAMED_S, "")]
    assert list(unnamed_waits(lines, born, [(12.0, "a: node c was lost")], 9.0, 60.0)) == [
        f"for {UNNAMED_S + 8:.1f} s nobody said what the run waits for"
    ]
    said = [(14.0, "faultrun: waiting for node c, until 21:40:05 (--node_wait, 60 s)")]
    assert not list(unnamed_waits(lines, born, said, 9.0, 60.0))
    assert waits_said(said, 0.0) == ["NODE"]
    assert not list(unnamed_waits(lines, born, [(20.0, "a: run soak1")], 9.0, 60.0)), (
        "nobody was there before"
    )


def test_ends_that_are_not_one_are_seen() -> None:
    assert not list(unequal_ends({"a": 0, "b": 0}, [], 0))
    assert list(unequal_ends({"a": 0, "b": 69}, ["c"], 0)) == [
        "exit codes {'a': 0, 'b': 69}",
        "c did not end with the others",
        "ended with [0, 69] instead of 0",
    ]


def test_journals_that_are_torn_or_disagree_are_seen() -> None:
    lines, wrong = read_journal(b'{"event": "A"}\n{"ev\n{"event": "B"}\n{"cut')
    assert [line["event"] for line in lines] == ["A", "B"]
    assert wrong == ["line 2 of a journal is no JSON"]
    started = {"event": "WorkerStarted", "incarnation": 1, "rank": 0}
    plan = {"event": "PlanAdopted", "incarnation": 1, "plan": {"point": {"path": "x", "global_step": 5}}}
    other = {"event": "PlanAdopted", "incarnation": 1, "plan": {"point": None}}
    found = " ".join(journals_disagree({"a": [plan, started], "b": [other, started]}))
    assert "plans of incarnation 1 differ" in found
    assert "rank 0 of incarnation 1 was started on a and b" in found
    older = {**started, "incarnation": 0}
    assert list(journals_disagree({"a": [started, older]})) == [
        "a started a rank of incarnation 0 after one of 1"
    ]


def test_cards_that_differ_are_seen() -> None:
    cards = {"incident_1.txt": {"a": "x", "b": "x"}, "incident_2.txt": {"a": "x", "c": "y"}}
    assert list(cards_differ(cards)) == ["incident_2.txt is not the same on a c"]
