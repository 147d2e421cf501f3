"""Real ranks on gloo, real kills: the others train on with the same global batch while a place is empty."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from sdk.support.rejoin_stage import Rank
from sdk.support.torch_imports import IMPORTS
from sdk.support.train_on_stage import TrainOnStage, training_on
from support.places import TESTS

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = TESTS / "sdk" / "scripts" / "train_shares.py"
_undisturbed: dict[tuple[tuple[str, ...], int], Any] = {}


def stage_of(folder: Path, *words: str, world: int = 3):  # type: ignore[no-untyped-def]
    return training_on(folder, SCRIPT, *words, world=world, imports=IMPORTS)


def weights(stage: TrainOnStage) -> Any:
    """The parameters at the end, which all that live have alike."""
    assert set(stage.wait_ended()) == {0}, stage.logs()
    ends = {(stage.folder / f"final_{rank.number}").read_text() for rank in stage.living}
    assert len(ends) == 1, "not all have the same parameters"
    return torch.load(stage.folder / f"weights_{stage.living[0].number}.pt")


def undisturbed(folder: Path, words: tuple[str, ...], world: int = 3) -> Any:
    """What nobody's death leads to; before a stage begins, which works while the test waits on it."""
    if (words, world) not in _undisturbed:
        with stage_of(folder / "undisturbed", *words, world=world) as stage:
            stage.begin()
            found = weights(stage)
            _undisturbed[words, world] = found, steps_of(stage)
    return _undisturbed[words, world]


def loses(stage: TrainOnStage, rank: int, *, behind: int, until_trained: int = 0) -> None:
    """``rank`` is killed, and the others need not wait behind step ``behind``."""
    stage.begin()
    stage.wait_able()
    stage.kill(rank)
    stage.goes_on_behind(behind)
    if until_trained:
        stage.wait_trained(until_trained)


def steps_of(stage: TrainOnStage) -> dict[int, list[int]]:
    """The samples of each step as it stands, whoever has done them, sorted."""
    told: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
    for rank in range(stage.world):
        for line in (stage.folder / f"samples_{rank}").read_text().splitlines():
            step, incarnation, *samples = map(int, line.split())
            told[step].setdefault(incarnation, []).extend(samples)
    return {step: sorted(lives[max(lives)]) for step, lives in sorted(told.items())}


def leads(stage: TrainOnStage, rank: int, step: int) -> bool:
    """Whether this rank did the step, and was the first of those that did."""
    lines = (stage.folder / f"steps_{rank}").read_text().splitlines()
    told = {int(number): leader for number, _, _, leader in map(str.split, lines)}
    return told.get(step) == "1"


def assert_is_that_of(stage: TrainOnStage, expected: Any) -> None:
    """The same samples in every step, and the same parameters but for the order of sums."""
    parameters, steps = expected
    found = weights(stage)
    assert steps_of(stage) == steps
    torch.testing.assert_close(found, parameters, rtol=1e-5, atol=1e-6)


DDP = ("3", "50", "4", "ddp")
HAND = ("3", "50", "4", "hand")


@pytest.mark.parametrize("words", [DDP, HAND], ids=" ".join)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_is_lost_and_the_others_do_its_share_to_the_end(
    words: tuple[str, ...], rank: int, tmp_path: Path
) -> None:
    expected = undisturbed(tmp_path, words)
    with stage_of(tmp_path / "hit", *words, "waits-6") as stage:
        loses(stage, rank, behind=6)
        assert_is_that_of(stage, expected)
        assert len(stage.incidents) == 1
        leaders = {step: [who for who in range(3) if leads(stage, who, step)] for step in (1, 8)}
        assert leaders == {1: [0], 8: [min(one.number for one in stage.living)]}


@pytest.mark.parametrize("rank", [0, 1])
def test_who_is_lost_behind_the_loop_has_to_end_again_only_where_it_ends_for_all(
    rank: int, tmp_path: Path
) -> None:
    with stage_of(tmp_path, *DDP, "rests") as stage:
        stage.begin()
        rest = [stage.folder / f"rests_{one}" for one in range(3)]
        stage.wait_for(lambda: all(one.exists() for one in rest), "the end of the loop")
        stage.kill(rank)
        assert set(stage.wait_ended()) == {0}, stage.logs()
        needed = [one for one in stage.heard("cannot_rejoin") if "has to end, too" in one["why"]]
        assert bool(needed) is (rank == 0)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_place_is_filled_while_the_others_train(rank: int, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, DDP)
    with stage_of(tmp_path / "hit", *DDP, "waits-3", "waits-6") as stage:
        loses(stage, rank, behind=3, until_trained=1)
        stage.heal(rank, behind=6)
        assert_is_that_of(stage, expected)
        assert len(stage.incidents) == 2
        assert not stage.missing


def test_two_places_are_empty_one_after_the_other_and_both_are_filled_at_once(tmp_path: Path) -> None:
    words = ("4", "60", "3", "ddp")
    expected = undisturbed(tmp_path, words, world=4)
    with stage_of(tmp_path / "hit", *words, "waits-3", "waits-6", "waits-9", world=4) as stage:
        loses(stage, 1, behind=3, until_trained=1)
        stage.wait_able()
        stage.kill(0)
        stage.goes_on_behind(6)
        stage.wait_trained(2)
        stage.heal(0, 1, behind=9)
        assert_is_that_of(stage, expected)
        assert len(stage.incidents) == 3


PHASES = ("begin", "forward", "backward", "parted", "reduced", "update", "updated")


@pytest.mark.parametrize("phase", PHASES)
def test_a_second_rank_may_die_in_any_phase_of_a_step_in_parts(phase: str, tmp_path: Path) -> None:
    words = ("2", "50", "4", "ddp")
    expected = undisturbed(tmp_path, words)
    with stage_of(tmp_path / "hit", *words, "waits-3", f"kill-2-6-{phase}") as stage:
        loses(stage, 0, behind=3)
        assert_is_that_of(stage, expected)
        assert len(stage.incidents) == 2


def test_places_are_filled_again_and_again_in_the_middle_of_steps(tmp_path: Path) -> None:
    words = ("12", "72", "4", "ddp", "workers")
    kills = [f"kill-{step % 3}-{step}-{PHASES[step % 7]}" for step in (8, 21, 34, 47)]
    before_the_next = (15, 28, 41, 60)
    waits = [f"waits-{step}" for step in before_the_next]
    expected = undisturbed(tmp_path, words)
    with stage_of(tmp_path / "hit", *words, *kills, *waits) as stage:
        stage.begin()
        for number, step in enumerate(before_the_next):
            stage.wait_trained(2 * number + 1)
            stage.heal(*stage.missing, behind=step)
        assert len(stage.incidents) == 2 * len(kills)
        assert_is_that_of(stage, expected)


def test_a_newcomer_that_dies_as_it_comes_costs_the_others_nothing(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, DDP)
    with stage_of(tmp_path / "hit", *DDP, "waits-3", "waits-6") as stage:
        loses(stage, 1, behind=3, until_trained=1)
        struck: list[int] = []

        def strike(rank: Rank, content: dict[str, Any]) -> None:
            if content["kind"] == "hello" and rank.number == 1 and rank.joined and not struck:
                struck.append(rank.process.pid)
                rank.process.kill()

        stage.on_message = strike
        stage.heal(1, behind=6)
        assert_is_that_of(stage, expected)
        assert struck
        assert set(stage.missing) == {1}


def test_shares_are_read_by_processes_that_begin_as_those_of_the_scripts_loader_do(tmp_path: Path) -> None:
    words = (*DDP, "opens")
    expected = undisturbed(tmp_path, words)
    with stage_of(tmp_path / "hit", *words, "waits-6") as stage:
        loses(stage, 1, behind=6)
        assert_is_that_of(stage, expected)


def test_zero_grad_at_the_beginning_of_a_step_drops_nothing_of_its_earlier_parts(tmp_path: Path) -> None:
    words = (*DDP, "zeroes")
    expected = undisturbed(tmp_path, words)
    with stage_of(tmp_path / "hit", *words, "waits-3", "waits-6") as stage:
        loses(stage, 1, behind=3, until_trained=1)
        stage.heal(1, behind=6)
        assert_is_that_of(stage, expected)


@pytest.mark.parametrize(
    ("word", "dead", "why"),
    [
        ("gathers-5", 1, "its steps call all_gather, which takes a part of every rank"),
        ("evaluates-5", 1, "its steps call all_reduce as the model evaluates"),
        ("logs-5", 1, "its steps call all_reduce before a backward pass or behind an update"),
        ("broadcasts-5", 0, "its steps call broadcast, which needs rank 0"),
        ("counts-5", 1, "steps change buffers (2.passes)"),
        ("comes-5", 1, "steps change buffers (2.passes)"),
        ("drops", 1, "its steps drop the gradients of their earlier parts"),
        ("wipes-5", 1, "its steps drop the gradients of their earlier parts"),
        ("lacks", 1, "its loader cannot read for another rank (RuntimeError: no process of a loader)"),
        ("returns-5", 1, "its steps drop the gradients of their earlier parts"),
        ("sums-5", 1, "its steps call all_reduce in a part of a step that is not its last"),
    ],
    ids=lambda one: one if isinstance(one, str) and " " not in one else "",
)
def test_where_a_step_needs_every_rank_all_that_live_wait_for_the_missing_one(
    word: str, dead: int, why: str, tmp_path: Path
) -> None:
    words = HAND if "returns" in word else DDP
    expected = undisturbed(tmp_path, words)
    with stage_of(tmp_path / "hit", *words, word, "waits-3") as stage:
        loses(stage, dead, behind=3)
        stage.wait_for(lambda: any(stage.refusals().values()), "a rank that cannot train on")
        assert set(stage.refusals().values()) <= {"", why}
        stage.wait_together(dead)
        assert_is_that_of(stage, expected)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("ddp", "bn"), "2 (BatchNorm1d) trains, and is no sum over samples"),
        (("ddp", "counts"), "steps change buffers (2.passes)"),
        (("ddp", "comes-2"), "steps change buffers (2.passes)"),
        (("ddp", "centres"), "steps change buffers (criterion.passes)"),
        (("ddp", "norms"), "norm (BatchNorm1d) trains, and is no sum over samples"),
        (("ddp", "averages"), ""),
        (("ddp", "frozen"), ""),
        (("ddp", "frozen", "second"), "its steps read a DataLoader that is not that of guard.batches"),
        (("ddp", "gathers-1"), "its steps call all_gather, which takes a part of every rank"),
        (("ddp", "evaluates-2"), "its steps call all_reduce as the model evaluates"),
        (("hand", "logs-1"), "its steps call all_reduce before a backward pass or behind an update"),
        (("hand", "meets"), "its ranks meet outside of guard.attempt() (all_reduce)"),
        (("ddp", "ignores"), "its steps do not ask for guard.weight and guard.accumulating"),
        (("ddp", "second"), "its steps read a DataLoader that is not that of guard.batches"),
        (("ddp", "twice"), "its steps average the gradients of a DistributedDataParallel more than once"),
        (("ddp", "breaks"), ""),
        (("ddp", "compiles"), ""),
        (("hand", "twice"), "its steps sum gradients up before all of them are there"),
        (("hand", "attacks"), "its steps drop gradients between two backward passes"),
        (("ddp", "own"), "its loader draws from generators, or keeps counts, of its own"),
        (("ddp", "apart"), "objects (apart) differ from rank to rank"),
        (("hand", "draws"), "all ranks draw the same numbers from Python's random"),
        (("hand", "steps"), "its steps are not those of guard.batches"),
        (("hand", "function"), "its steps are in a function for guard.run"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_what_cannot_train_on_is_refused_by_name_before_anybody_has_died(
    words: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    with stage_of(tmp_path / "refused", "3", "24", "4", *words, world=2) as stage:
        stage.begin()
        assert set(stage.wait_ended()) == {0}, stage.logs()
        assert stage.refusals() == {0: why, 1: why}
