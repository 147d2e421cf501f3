"""Which of the programs below a rank the recovery point is of."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from faultrun.sdk.session import ResumePoint, Session
from faultrun.sdk.worker.programs import RankProgram, RankPrograms

GONE, ALIVE = -1, os.getppid()


def program(words: str, folder: str = "") -> RankProgram:
    return RankProgram(name=words.split(maxsplit=1)[0], call=words, folder=folder)


TRAIN, TUNE, EVALUATE = (
    program("train.py", "/ck/train"),
    program("tune.py", "/ck/tune"),
    program("evaluate.py", "/ck/evaluate"),
)
FIRST, SECOND = program("train.py --lr=1", "/ck/1"), program("train.py --lr=2", "/ck/2")


@dataclass
class Rank:
    """The processes of one rank, life after life."""

    log_dir: Path
    life: int = 0
    point: str = ""
    maker: RankProgram | None = None
    pids: list[int] = field(default_factory=lambda: [GONE])

    def restarts_from(self, maker: RankProgram | None) -> None:
        self.life += 1
        self.maker = maker
        self.point = f"{maker.folder if maker else '/ck'}/step-{self.life}"

    def asks(self, own: RankProgram, *does: str, alive: bool = False) -> bool:
        """Whether a process of this program is given the point."""
        return not self.refuses(own, *does, alive=alive)[0]

    def refuses(self, own: RankProgram, *does: str, alive: bool = False) -> tuple[str, bool]:
        page = self.log_dir / f"incarnation_{self.life}" / "progress"
        page.parent.mkdir(exist_ok=True)
        point = ResumePoint(path=self.point, step=5, epoch=None, reason="fault", incarnation=self.life)
        session = Session(progress=f"{page}:0", point=point if self.point else None)
        self.pids.append(ALIVE if alive else self.pids[-1] - 1)
        programs = RankPrograms(session, self.pids[-1])
        why = programs.why_not(own, self.maker)
        for what in does:
            getattr(programs, what)()
        return why, programs.is_beside


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def test_a_stage_is_not_given_what_the_next_one_saved_and_that_one_is(rank: Rank) -> None:
    rank.asks(TRAIN, "stepped", "ended")
    rank.asks(TUNE, "stepped")
    rank.restarts_from(TUNE)
    assert "tune.py, which saves in /ck/tune" in rank.refuses(TRAIN, "stepped", "ended")[0]
    assert rank.asks(TUNE, "stepped")


def test_the_next_stage_is_not_given_what_the_one_before_saved(rank: Rank) -> None:
    rank.asks(TRAIN, "stepped")
    rank.restarts_from(TRAIN)
    assert rank.asks(TRAIN, "stepped", "ended")
    assert not rank.asks(TUNE, "stepped")


def test_stages_that_share_a_folder_are_told_apart_as_both_were_seen(rank: Rank) -> None:
    pre, fine = replace(TRAIN, folder="/ck"), replace(TUNE, folder="/ck")
    rank.asks(pre, "stepped", "ended")
    rank.asks(fine, "stepped")
    rank.restarts_from(fine)
    assert not rank.asks(pre, "stepped", "ended")
    assert rank.asks(fine)


@pytest.mark.parametrize("maker", [FIRST, None], ids=["saved by the SDK", "a file of the script's own"])
def test_the_second_trial_of_a_search_is_not_given_the_first_ones_state(
    rank: Rank, maker: RankProgram | None
) -> None:
    rank.asks(FIRST, "stepped", "ended")
    rank.asks(SECOND, "stepped")
    rank.restarts_from(maker)
    assert rank.asks(FIRST, "ended")
    assert not rank.asks(SECOND)


def test_the_first_trial_of_a_search_is_not_given_the_second_ones_state_life_after_life(rank: Rank) -> None:
    rank.asks(FIRST, "stepped")
    rank.restarts_from(FIRST)
    assert rank.asks(FIRST, "stepped", "ended")
    rank.asks(SECOND, "stepped")
    for _ in range(2):
        rank.restarts_from(SECOND)
        assert not rank.asks(FIRST, "stepped", "ended")
        assert rank.asks(SECOND)


def test_trials_by_variables_are_told_apart_by_where_they_save(rank: Rank) -> None:
    one, two = program("train.py", "/ck/1"), program("train.py", "/ck/2")
    rank.asks(one, "stepped", "ended")
    rank.asks(two, "stepped")
    rank.restarts_from(two)
    assert not rank.asks(one, "ended")
    assert rank.asks(two)


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_an_evaluation_beside_the_training_is_not_given_its_state(rank: Rank, *, first: bool) -> None:
    rank.restarts_from(TRAIN)
    if first:
        assert not rank.asks(EVALUATE)
    assert rank.asks(TRAIN, alive=True)
    assert not rank.asks(EVALUATE)


def test_steps_beside_a_training_that_lives_are_not_the_ranks(rank: Rank) -> None:
    rank.restarts_from(None)
    assert rank.asks(TRAIN, "stepped", alive=True)
    assert rank.refuses(EVALUATE) == (f"train.py, process {ALIVE}, went on from it", True)


def test_the_steps_of_a_stage_behind_one_that_ended_are_the_ranks(rank: Rank) -> None:
    rank.restarts_from(None)
    assert rank.asks(TRAIN, "stepped", "ended", alive=True)
    assert rank.refuses(TUNE) == (f"train.py, process {ALIVE}, went on from it", False)


def test_a_program_that_only_looks_takes_nothing_from_the_one_that_trains(rank: Rank) -> None:
    for maker in (None, TRAIN):
        assert rank.asks(program("look.py"), "ended")
        assert rank.asks(TRAIN, "stepped")
        rank.restarts_from(maker)
    assert rank.asks(program("look.py"), "ended") is False
    assert rank.asks(program("train.py --dry-run", "/ck/train"), "ended")
    assert rank.asks(TRAIN)


def test_the_same_command_is_given_it_again_until_it_has_trained_to_its_end(rank: Rank) -> None:
    rank.asks(TRAIN, "stepped")
    rank.restarts_from(TRAIN)
    assert rank.asks(TRAIN, "stepped")
    assert rank.asks(TRAIN, "stepped", "ended")
    assert not rank.asks(TRAIN)


def test_a_training_whose_arguments_or_folder_bear_a_time_goes_on(rank: Rank) -> None:
    def dated(day: int) -> RankProgram:
        return program(f"train.py --out={day}", f"/ck/{day}")

    rank.asks(dated(0), "stepped")
    for life in range(1, 4):
        rank.restarts_from(dated(life - 1))
        assert rank.asks(dated(life), "stepped")
    rank.life += 1  # nothing was saved, and the clock's minute is the same
    assert rank.asks(dated(3))


def test_a_folder_that_the_script_dates_is_a_training_of_the_same_command(rank: Rank) -> None:
    rank.asks(program("train.py", "/ck/0"), "stepped")
    rank.restarts_from(program("train.py", "/ck/0"))
    assert rank.asks(program("train.py", "/ck/1"), "stepped")
    assert rank.asks(program("train.py", "/ck/2"))  # `until train.py`


def test_another_file_that_goes_on_in_the_folder_of_the_first_is_its_training(rank: Rank) -> None:
    rank.asks(program("train.py", "/ck"), "stepped")
    again = program("again.py", "/ck")
    for _ in range(2):
        rank.restarts_from(program("train.py", "/ck"))
        assert rank.asks(again, "stepped")
        rank.restarts_from(again)
        assert rank.asks(again, "stepped")


def test_a_training_that_asks_before_it_says_where_it_saves_is_known_by_its_last_life(rank: Rank) -> None:
    for one in (FIRST, SECOND):
        rank.asks(replace(one, folder=""), "stepped")
        rank.asks(one, "stepped")
    rank.restarts_from(SECOND)
    assert not rank.asks(replace(FIRST, folder=""), "stepped")
    assert rank.asks(replace(SECOND, folder=""), "stepped")
    rank.restarts_from(program("train.py --lr=2 --resume=x", "/ck/2"))
    assert rank.asks(replace(SECOND, folder=""), "stepped")


def test_a_copy_of_another_rank_serves_though_each_rank_has_a_folder_of_its_own(rank: Rank) -> None:
    own = program("train.py", "/ck/rank0")
    rank.asks(own, "stepped")
    rank.restarts_from(program("train.py", "/ck/rank1"))
    assert rank.asks(own)


def test_notes_that_cannot_be_read_refuse_nothing(rank: Rank) -> None:
    rank.asks(TRAIN, "stepped")
    (notes,) = rank.log_dir.glob("*/programs_0.jsonl")
    notes.write_bytes(notes.read_bytes() + b'{"pid": 3, "na')
    rank.restarts_from(TRAIN)
    assert rank.asks(TRAIN)
    notes.write_text("[]")
    assert rank.asks(TRAIN)
