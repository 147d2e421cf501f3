"""A short piece of ``make soak-everything``, and proof that its judge sees what it is there to see."""

import json
import struct
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from benchmarks.campaigns import everything_headline
from benchmarks.campaigns.everything_judge import (
    Cost,
    Right,
    Steps,
    grows,
    kept_by,
    lost_steps,
    out_of_step,
    perhaps_kept,
    ran_on,
    recovered_otherwise,
    saved_twice,
    unsaid,
    way_back,
)
from benchmarks.campaigns.everything_law import law_of
from benchmarks.campaigns.everything_plan import SETTINGS, Kind, Way, When, draw, rounds
from benchmarks.campaigns.everything_presets import of_a_day, of_kills, of_places, of_standbys
from benchmarks.campaigns.ledgers import Ledgers, Life, Told
from benchmarks.jobs import everything_notes
from benchmarks.jobs import everything_numbers as numbers
from benchmarks.jobs.everything_notes import PAGE
from benchmarks.tests.campaign import carried_out


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--faults=2", "--seed=1", "--only=8"), id="thousand", marks=pytest.mark.torch),
        pytest.param(("--preset=stay", "--faults=2", "--seed=3"), id="stay", marks=pytest.mark.torch),
        pytest.param(("--preset=places", "--faults=3", "--seed=2"), id="places", marks=pytest.mark.torch),
        pytest.param(("--preset=nodes", "--faults=6", "--seed=11"), id="nodes"),
        pytest.param(("--preset=kills", "--faults=1", "--seed=7"), id="kills", marks=pytest.mark.torch),
        pytest.param(("--preset=day", "--faults=5", "--seed=7"), id="day"),
    ],
)
def test_faults_over_a_training_break_no_promise(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Of the thousand a rank that is killed, and one after it that fails before its first step."""
    carried_out("everything", *words, f"--see={tmp_path / 'see'}", TMPDIR=str(tmp_path))


def test_a_seed_draws_the_same_faults_and_all_that_there_are() -> None:
    drawn = [draw(number, seed=5) for number in range(10 * len(SETTINGS))]
    assert drawn == [draw(number, seed=5) for number in range(len(drawn))]
    assert {one.setting for one in drawn[: len(SETTINGS)]} == set(SETTINGS)
    faults = [fault for session in drawn for fault in session.faults]
    assert len(faults) >= 1000
    assert {fault.kind for fault in faults} == set(Kind) - {Kind.STUCK}
    assert {fault.when for fault in faults} == set(When)
    assert {session.setting.way for session in drawn} == set(Way) - {Way.CONFIG}
    assert all(session.faults[0].when is When.TRAINING for session in drawn)
    for session in drawn:
        numbered = list(enumerate(session.faults))
        assert [one for together in rounds(numbered) for one in together] == numbered


@pytest.mark.parametrize("world", [2, 3])
def test_the_weights_of_a_training_are_known_for_every_step(world: int) -> None:
    law = law_of(next(one for one in SETTINGS if (one.code, one.ranks) == ("ddp", world)))
    assert law(7, 0).digest == law(7, 1).digest != law(8, 0).digest
    within = range(1, numbers.STEPS_AN_EPOCH + 1)
    epoch = [sample for step in within for sample in law(step, 0).samples]
    assert sorted(epoch) == list(range(numbers.STEPS_AN_EPOCH * numbers.BATCH * world))
    sums = numbers.Sums(world)
    assert [sums.step_of(sums.after(step)) for step in (0, 1, 40, 777)] == [0, 1, 40, 777]


def told(life: int, rank: int, what: str, step: int, text: str = "", at_s: float = 0.0) -> Told:
    return Told(at_s=at_s, life=life, rank=rank, node="a", pid=1, what=what, step=step, path=text)


def right(step: int, _: int) -> Right:
    return Right(digest=f"d{step}", loss=1.0, total=6.0, samples=(0, 1))


def done(life: int, rank: int, step: int, more: str = "", digest: str = "") -> Told:
    return told(life, rank, "step", step, f"{digest or f'd{step}'} 1.0 6.0 {more or rank}")


BEGUN = [told(1, rank, "begin", 4, "0 1") for rank in (0, 1)]


def test_steps_with_their_own_bits_and_samples_are_not_accused() -> None:
    judge = Steps(right, full=2)
    assert judge.wrong([*BEGUN, *(done(1, rank, step) for step in (5, 6) for rank in (0, 1))]) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (done(1, 0, 6), "step 6 came after step 4"),
        (done(1, 0, 4), "step 4 came after step 4"),
        (done(1, 0, 5, digest="x"), "ended with x instead of d5"),
        (told(1, 0, "step", 5, "d5 1.5 6.0 0"), "had loss 1.5 instead of 1.0"),
    ],
)
def test_a_step_that_is_not_right_is_seen(line: Told, said: str) -> None:
    judge = Steps(right, full=2)
    assert said in " ".join(judge.wrong([*BEGUN, line]))


def test_samples_read_twice_are_seen_and_a_smaller_world_is_held_to_its_sums() -> None:
    judge = Steps(right, full=2)
    assert "read [0, 0]" in " ".join(judge.wrong([*BEGUN, done(1, 0, 5), done(1, 1, 5, more="0")]))
    smaller = [told(2, 0, "begin", 5, "0"), told(2, 0, "step", 6, "rounded 2.0 6.0 0 1")]
    assert judge.wrong(smaller) == []
    assert "had losses of 1.0 instead of 2.0" in " ".join(judge.wrong([done(2, 0, 7, more="0 1")]))
    assert "weights of 7.0" in " ".join(judge.wrong([told(2, 0, "step", 8, "x 2.0 7.0 0 1")]))


def test_a_step_that_others_have_done_is_judged_by_their_words_alone() -> None:
    judge = Steps(right, full=2)
    assert judge.wrong([*BEGUN, told(1, 0, "taken", 5), done(1, 0, 6)]) == []


def test_who_is_missing_is_no_rank_of_an_incarnation_that_trains_without_it(tmp_path: Path) -> None:
    lines = [told(1, rank, "begin", 4, "0 2 3") for rank in (0, 2, 3)]
    lines += [done(1, rank, 5) for rank in (0, 2)]
    ledgers = Ledgers(tmp_path)
    for at, one in enumerate([*lines, done(1, 3, 5)]):
        assert ledgers.trains_since(-1.0) is None
        path = tmp_path / f"{at}.notes"
        path.write_text(json.dumps(asdict(one)) + "\n")
        ledgers.read()
    assert (ledgers.ranks(1), ledgers.trains_since(-1.0)) == ([0, 2, 3], 0.0)


def test_ranks_that_do_not_begin_alike_or_at_an_old_save_are_seen() -> None:
    there = told(1, 0, "there", 4)
    assert not list(out_of_step([*BEGUN, there], since_life=0))
    assert "began at steps [3, 4]" in " ".join(out_of_step([*BEGUN, told(1, 1, "begin", 3, "0 1")], 0))
    assert "and 5 was whole" in " ".join(out_of_step([*BEGUN, told(1, 1, "there", 5)], 0))
    assert "has a wrong weight at step 4" in " ".join(out_of_step([*BEGUN, told(1, 1, "wrong", 4)], 0))
    stuck = [told(number, 0, "there", 5) for number in (1, 2)]
    assert "and 5 was whole" in " ".join(out_of_step([done(0, 0, 5), *BEGUN, *stuck], 0))
    again = [told(3, 0, "there", 5), told(3, 0, "begin", 4, "0 1")]
    assert "incarnation 3" not in " ".join(out_of_step([done(0, 0, 5), *BEGUN, *stuck, *again], 0))
    assert lost_steps([done(0, 0, 6), *BEGUN], 0, 1) == 2


def life(tmp_path: Path, number: int, rank: int, born_s: float, beat_s: float) -> Life:
    page = tmp_path / f"{number}_{rank}_1_a.rank"
    page.write_bytes(struct.pack(PAGE, born_s, beat_s))
    return Life(number, rank, 1, "a", page, born_s, "")


def test_whoever_runs_beside_a_newer_incarnation_is_seen_and_a_survivor_is_none(tmp_path: Path) -> None:
    lives = [life(tmp_path, 0, 0, 1.0, 9.0), life(tmp_path, 0, 1, 1.0, 4.0), life(tmp_path, 1, 1, 5.0, 9.0)]
    plan = {"event": "PlanAdopted", "plan": {"incarnation": 1, "kept": [0]}}
    assert not list(ran_on(lives, kept_by([plan])))
    assert list(ran_on(lives, {})) == ["rank 0 of incarnation 0 ran for 4.000 s beside a newer one"]
    assert not list(ran_on(lives, perhaps_kept(lives, {})))
    twice = [*lives, life(tmp_path, 1, 0, 5.0, 9.0)]
    assert list(ran_on(twice, perhaps_kept(twice, {}))) == list(ran_on(lives, {}))


def test_a_death_that_is_blamed_on_another_or_needs_two_restarts_is_seen() -> None:
    killed = {"event": "WorkerExit", "incarnation": 0, "rank": 1, "status": {"is": "Signaled", "signum": 9}}
    told = {**killed, "rank": 0, "status": {"is": "Exited", "code": 143}}
    assert not list(recovered_otherwise([killed, told], 0, 1, 1))
    assert "rank 0 is blamed" in " ".join(recovered_otherwise([told, killed], 0, 1, 1))
    assert "not recovered at the first" in " ".join(recovered_otherwise([killed], 0, 2, 1))


def test_a_supervisor_that_grows_is_seen() -> None:
    costs = [Cost(descriptors=20, processes=9, rss_mib=30.0 + at) for at in range(4)]
    assert not list(grows(costs))
    assert list(grows([*costs, replace(costs[0], descriptors=21)])) == [
        "descriptors of the supervisor grew from 20 to 21"
    ]


def test_a_seed_draws_the_same_kills() -> None:
    drawn = [of_kills(number, seed=1) for number in range(50)]
    assert drawn == [of_kills(number, seed=1) for number in range(50)]
    assert {session.setting.way for session in drawn} == {Way.BARE, Way.CONFIG}
    assert {session.faults[0].kind for session in drawn} == {Kind.KILL, Kind.RANK}
    assert len({fault.kind for fault in of_a_day(0, seed=1).faults}) == 4
    places = [fault for number in range(9) for fault in of_places(number, seed=1).faults]
    assert {When.EMPTY, When.COMES, When.REPAIR, When.AT_ONCE} <= {fault.when for fault in places}
    kills = of_standbys(0, seed=1)
    assert kills.watched
    assert {fault.kind for fault in kills.faults} == {Kind.RANK, Kind.STANDBY}


def test_a_save_that_came_twice_is_seen() -> None:
    saves = [told(1, 0, "saved", 20), told(1, 1, "saved", 20), told(2, 0, "saved", 20)]
    assert not list(saved_twice(saves, []))
    assert list(saved_twice([*saves, saves[0]], [])) == ["save of rank 0 in incarnation 1 came twice"]
    gasp = {"event": "GaspSaved", "incarnation": 0, "rank": 1, "path": "x"}
    assert list(saved_twice([], [gasp, gasp])) == ["gasp of rank 1 in incarnation 0 came twice"]


def test_a_silence_without_training_is_seen() -> None:
    marks = [(1.0, True), (30.0, False), (60.0, True)]
    assert list(unsaid(marks, [], 0.0, 0.0)) == ["for 29.0 s nobody said why nothing goes on"]
    assert not list(unsaid(marks, [(3.0, "rank 1 was killed")], 0.0, 0.0))


def test_the_way_back_is_told_by_the_journal() -> None:
    def started(rank: int, *, standby: bool) -> dict[str, object]:
        return {"event": "WorkerStarted", "incarnation": 1, "rank": rank, "standby": standby}

    kept = {"event": "PlanAdopted", "plan": {"incarnation": 1, "kept": [0]}}
    same = {0: 2, 1: 2}
    assert way_back([], 1, 1, same) == "went on by itself"
    assert way_back([started(1, standby=True), kept], 0, 1, same) == "survivors stayed"
    assert way_back([started(rank, standby=True) for rank in (0, 1)], 0, 1, same) == "warm restart"
    assert (
        way_back([started(0, standby=True), started(1, standby=False)], 0, 1, same) == "partly warm restart"
    )
    assert way_back([started(0, standby=False)], 0, 1, same) == "cold restart"
    assert way_back([], 0, 1, {0: 2, 1: 1}) == "shrunk"
    assert way_back([], 0, 1, {0: 1, 1: 2}) == "grown"
    assert way_back([kept], 0, 1, {0: 2, 1: 1}) == "trained on"
    assert way_back([kept], 0, 2, {0: 2, 1: 1, 2: 2}) == "trained on and healed"


def a_row(run: str, **more: object) -> dict[str, object]:
    usual: dict[str, object] = {"run": run, "when": "training", "lives": 1, "load": "1.5", "broken": {}}
    return {**usual, "recovery_s": 2.0, "lost": 0, **more}


def test_the_readmes_table_tells_of_the_rows_that_there_are(tmp_path: Path) -> None:
    alone, several = "ddp, 1 node, 2 ranks, SDK, standbys", "mindspore, 3 nodes, no SDK"
    rows = [
        a_row(alone),
        a_row(alone, recovery_s=4.0, lost=3, when="as the others are told", load="12.0"),
        a_row(alone, lives=0, recovery_s=None, lost=None),
        a_row(several, recovery_s=None, broken={"steps": ["step 3 ended with 7 instead of 8"]}),
    ]
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- thousand: begin -->\nold\n<!-- thousand: end -->\nafter\n")
    for _ in range(2):
        everything_headline.write(rows, (page,))
        text = page.read_text()
        assert text.startswith("before\n<!-- thousand: begin -->\n| training | faults |")
        assert text.endswith("\n<!-- thousand: end -->\nafter\n")
    lines = text.splitlines()
    assert "| torch, `DistributedDataParallel`, one node | 3 | 3.0 s, 4.0 s | 1.5, 3 | 0 |" in lines
    assert "| MindSpore, three nodes | 1 | – | 0, 0 | 1 |" in lines  # noqa: RUF001  as it is printed
    assert "| all | 4 | 3.0 s, 4.0 s | 0, 3 | 1 |" in lines
    assert "**4 of 1000 faults** were run so far, 1 of them in the way back from another" in text
    assert "(load 1.5 to 12)" in text
    assert everything_headline.counted(1000, 1000, "faults") == "All **1000 faults** were run"


def test_parts_of_two_lives_are_no_whole_save_in_the_campaign_s_own_look_either(tmp_path: Path) -> None:
    def save(rank: int, step: int, life: int) -> None:
        path = tmp_path / f"rank_{rank}" / f"gasp-step_{step}.pt"
        path.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("data", "x")
        path.with_name(f"{path.name}.manifest.json").write_text(json.dumps({"incarnation": life}))

    save(0, 44, 1)
    save(1, 44, 1)
    save(0, 46, 1)
    save(1, 46, 0)
    assert everything_notes.newest_whole(tmp_path, parts=2) == 44
    assert everything_notes.newest_whole(tmp_path, parts=1) == 46
