"""Real ranks on gloo, real kills: survivors keep their process, and the end is that of an undisturbed run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sdk.support.rejoin_stage import RejoinStage, rejoining
from sdk.support.torch_imports import IMPORTS
from support.places import TESTS

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = TESTS / "sdk" / "scripts" / "train_stay.py"
DDP = ("24", "ddp", "bn")
FSDP = ("24", "fsdp")
SHARDS = ("30", "fsdp", "loader")
SECOND = ("8", "hand", "bn")
LOADER = ("30", "hand", "bn", "loader", "workers")

Ends = list[str]
_undisturbed: dict[tuple[tuple[str, ...], int], Ends] = {}


def ends(stage: RejoinStage) -> Ends:
    """Checksums of parameters, optimizer, buffers and random numbers of each rank at its end."""
    assert stage.wait_ended() == [0] * stage.world, stage.logs()
    return [(stage.folder / f"final_{rank}").read_text() for rank in range(stage.world)]


def undisturbed(folder: Path, words: tuple[str, ...], world: int = 3) -> Ends:
    """The same of a run in which nobody dies."""
    if (words, world) not in _undisturbed:
        with stage_of(folder / "undisturbed", *words, world=world) as stage:
            stage.begin()
            _undisturbed[words, world] = ends(stage)
    return _undisturbed[words, world]


def stage_of(folder: Path, *words: str, world: int = 3):  # type: ignore[no-untyped-def]
    return rejoining(folder, SCRIPT, *words, world=world, imports=IMPORTS)


def steps_of(stage: RejoinStage, rank: int) -> list[tuple[int, int]]:
    """The steps that a rank has finished, each with the process that did it."""
    lines = (stage.folder / f"steps_{rank}").read_text().splitlines()
    return [(int(step), int(pid)) for step, pid, _ in map(str.split, lines)]


def assert_groups_have_the_timeout_of_the_script(stage: RejoinStage) -> None:
    """torch only warns where it cannot give them theirs."""
    assert "Set timeout" not in stage.logs()


def assert_all_did_every_step_once(stage: RejoinStage, last: int) -> None:
    for rank in range(stage.world):
        steps = [step for step, _ in steps_of(stage, rank)]
        assert steps == sorted(set(steps)), "a step was done twice"
        assert set(steps) >= set(range(1, last + 1)) - {int(one) for one in killed_in(stage, rank)}


def assert_nothing_was_half_done_behind_a_step(stage: RejoinStage) -> None:
    """Whatever a script does behind an attempt finds the state of the step that ``done`` tells."""
    for rank in range(stage.world):
        lines = (stage.folder / f"stands_{rank}").read_text().splitlines()
        told = {tuple(line.split()) for line in lines}
        assert all(step == of_guard for step, of_guard, *_ in told)
        assert len(told) == len({step for step, *_ in told}), "two states of one step"


def killed_in(stage: RejoinStage, rank: int) -> set[int]:
    """The steps in which this rank was killed: it may have finished them, and not written it down."""
    return {int(place.name.split("_")[2]) for place in stage.folder.glob(f"struck_{rank}_*")}


def test_a_rank_of_ddp_may_die_in_any_phase_of_a_step(tmp_path: Path) -> None:
    kills = (
        *("kill-1-5-begin", "kill-2-8-forward", "kill-0-11-backward"),
        *("kill-1-14-reduced", "kill-2-17-update", "kill-0-20-updated"),
    )
    with stage_of(tmp_path / "hit", *DDP, *kills) as stage:
        stage.begin()
        first = stage.pids()
        assert ends(stage) == undisturbed(tmp_path, DDP)
        assert_all_did_every_step_once(stage, 24)
        assert_nothing_was_half_done_behind_a_step(stage)
        assert_groups_have_the_timeout_of_the_script(stage)
        assert len(stage.incidents) == len(kills)
        assert {incident.rank for incident in stage.incidents} == {0, 1, 2}
        for rank, pid in enumerate(first):
            died_in = min(killed_in(stage, rank))
            assert {by for step, by in steps_of(stage, rank) if step < died_in} == {pid}


def test_a_rank_that_dies_in_the_second_step_has_left_a_note_of_its_own_buffers(tmp_path: Path) -> None:
    with stage_of(tmp_path / "hit", *SECOND, "kill-1-2-updated", world=2) as stage:
        stage.begin()
        assert ends(stage) == undisturbed(tmp_path, SECOND, world=2)


def test_a_pass_without_gradients_leaves_nobody_waiting_for_buffers(tmp_path: Path) -> None:
    words = ("14", "ddp", "bn", "evaluates")
    with stage_of(tmp_path / "hit", *words, "kill-1-5-evaluated", "kill-0-9-forward") as stage:
        stage.begin()
        assert ends(stage) == undisturbed(tmp_path, words)


def test_a_shard_of_fsdp2_that_dies_with_its_rank_comes_back_from_memory(tmp_path: Path) -> None:
    hits = ("kill-1-5-begin", "kill-0-9-backward", "kill-2-13-update", "kill-1-17-updated", "kill-0-21-after")
    with stage_of(tmp_path / "hit", *FSDP, "every-1", *hits) as stage:
        stage.begin()
        assert ends(stage) == undisturbed(tmp_path, FSDP)
        assert len(stage.incidents) == len(hits)
        assert [redone(stage, number) for number in range(len(hits))] == [0] * len(hits)


@pytest.mark.parametrize("layout", [("fsdp", "nested"), ("hsdp",), ("hsdp", "nested")], ids=" ".join)
def test_an_interrupted_backward_pass_leaves_no_gradients_in_the_modules_that_fully_shard_wraps(
    layout: tuple[str, ...], tmp_path: Path
) -> None:
    words = ("24", *layout)
    kills = ("kill-1-5-backward", "kill-0-9-backward", "kill-1-13-forward", "kill-0-17-reduced")
    with stage_of(tmp_path / "hit", *words, "every-1", *kills, world=2) as stage:
        stage.begin()
        assert ends(stage) == undisturbed(tmp_path, words, world=2)
        assert len(stage.incidents) == len(kills)
        assert [redone(stage, number) for number in range(len(kills))] == [0] * len(kills)


def test_shards_that_are_copied_every_four_steps_go_back_by_four_at_most(tmp_path: Path) -> None:
    kills = ("kill-1-7-reduced", "kill-0-9-begin", "kill-1-14-updated", "kill-2-22-after")
    with stage_of(tmp_path / "hit", *SHARDS, "every-4", "gate", *kills) as stage:
        stage.begin_with_memory()
        assert ends(stage) == undisturbed(tmp_path, SHARDS)
        assert len(stage.incidents) == len(kills)
        lost = [redone(stage, number) for number in range(len(kills))]
        assert max(lost) <= 4
        assert lost[0] == 2, "from step 4"


def test_nobody_goes_back_into_an_epoch_that_the_script_has_left(tmp_path: Path) -> None:
    """Its count of epochs, and what stands between two, would be those of the next: a copy is made there."""
    words = (*SHARDS, "epochs")
    with stage_of(tmp_path / "hit", *words, "every-4", "gate", "kill-1-11-reduced", world=2) as stage:
        stage.begin_with_memory()
        assert ends(stage) == undisturbed(tmp_path, words, world=2)
        assert {one["step"] for one in stage.incidents[0].rejoined.values()} == {10}, "and not 8, of epoch 0"


def test_a_copy_that_fails_its_checksum_is_loaded_by_nobody(tmp_path: Path) -> None:
    with stage_of(tmp_path / "hit", *FSDP, "every-4", "gate", "kill-1-15-end", world=2) as stage:
        stage.damages = True
        (told,) = refusals(stage)
        assert (told["rank"], told["why"]) == (
            1,
            "its memory snapshot of step 12 is damaged: its checksum is another",
        )


def refusals(stage: RejoinStage) -> list[dict[str, object]]:
    """Who gives up after the first death; nobody takes its place."""

    def gives_up(rank: object, content: dict[str, object]) -> None:
        stage.replaces &= content["kind"] != "cannot_rejoin"

    stage.on_message = gives_up
    stage.begin_with_memory()
    stage.wait_for(lambda: bool(stage.heard("cannot_rejoin")), "a rank that gives up")
    return stage.heard("cannot_rejoin")


def redone(stage: RejoinStage, number: int) -> int:
    """How many steps all ranks did again that all had finished before that death."""
    incident = stage.incidents[number]
    strikes = [place.name.split("_") for place in stage.folder.glob(f"struck_{incident.rank}_*")]
    at = sorted((int(step) - (phase != "after")) for _, _, step, phase in strikes)
    earlier = [one for one in stage.incidents[:number] if one.rank == incident.rank]
    back = {int(told["step"]) for told in incident.rejoined.values()}
    assert len(back) == 1, "not all ranks went back to the same step"
    return at[len(earlier)] - back.pop()


def test_ranks_without_memory_for_copies_do_not_say_that_they_could_come_back_and_nobody_waits_for_them(
    tmp_path: Path,
) -> None:
    """Neither where all agree on how often copies are made, nor at the end."""
    with stage_of(tmp_path / "refused", "24", "fsdp", "grows-2") as stage:
        stage.refused = frozenset({1})
        stage.begin()
        ends(stage)
        assert 0 in {one["rank"] for one in stage.heard("can_rejoin")}
        assert 1 not in {one["rank"] for one in stage.heard("can_rejoin")}
        whys = {one["rank"]: one["why"] for one in stage.heard("cannot_rejoin")}
        assert whys[2].startswith("its memory snapshot is too small")
        assert whys[0] == whys[1] == "all its steps are done"
        assert "this rank's shard is copied into memory every" in stage.logs()


def test_where_one_rank_refuses_all_do_and_nobody_waits(tmp_path: Path) -> None:
    with stage_of(tmp_path / "refused", "4", "ddp", "subgroup", world=2) as stage:
        stage.begin()
        ends(stage)
        assert not stage.heard("can_rejoin")
        whys = {one["rank"]: one["why"] for one in stage.heard("cannot_rejoin")}
        assert whys[1] == f"rank 0 cannot: {whys[0]}"


def test_ranks_whose_copies_were_asked_for_otherwise_refuse_by_name_and_nobody_waits(tmp_path: Path) -> None:
    with stage_of(tmp_path / "refused", "4", "fsdp", "unlike") as stage:
        stage.begin()
        ends(stage)
        assert not stage.heard("can_rejoin")
        whys = {one["rank"]: one["why"] for one in stage.heard("cannot_rejoin")}
        assert "snapshot_every=0" in whys[0]
        for rank in (1, 2):
            assert whys[rank].startswith("snapshot_every is ")
            assert whys[rank].endswith(": all ranks must be given the same")
        assert whys[1] == whys[2]


def test_a_part_that_no_rank_shares_comes_back_from_memory_too(tmp_path: Path) -> None:
    words = ("12", "hand", "own", "every-1")
    with stage_of(tmp_path / "hit", *words, "kill-1-6-update") as stage:
        stage.begin()
        assert ends(stage) == undisturbed(tmp_path, words)
        assert {one["step"] for one in stage.incidents[0].rejoined.values()} == {5}, "no copy of another's"


def test_a_newcomer_whose_state_no_rank_shares_adds_up_gradients_in_the_order_of_the_others(
    tmp_path: Path,
) -> None:
    words = ("12", "ddp", "own", "every-1")
    with stage_of(tmp_path / "hit", *words, "kill-1-6-forward") as stage:
        stage.begin()
        assert ends(stage) == undisturbed(tmp_path, words)


def test_groups_that_a_loop_has_made_are_refused_by_name_before_anybody_dies(tmp_path: Path) -> None:
    with stage_of(tmp_path / "refused", "6", "hand", "besides-3", world=2) as stage:
        stage.begin()
        ends(stage)
        assert all("guard.run" in one["why"] for one in stage.heard("cannot_rejoin"))
        assert len(stage.heard("cannot_rejoin")) == 2


def test_a_second_training_of_a_script_is_refused_by_name_and_who_took_a_place_in_the_first_is_in_it(
    tmp_path: Path,
) -> None:
    words = ("12", "hand", "again")
    with stage_of(tmp_path / "hit", *words, "kill-1-6-update", world=2) as stage:
        stage.begin()
        assert ends(stage) == undisturbed(tmp_path, words, world=2)
        assert len(stage.incidents) == 1
        whys = [(one["rank"], one["why"]) for one in stage.heard("cannot_rejoin")]
        assert sorted(rank for rank, why in whys if "more than one training" in str(why)) == [0, 1]


def test_loaders_and_their_workers_are_kept_and_give_the_same_batch_again(tmp_path: Path) -> None:
    kills = ("kill-1-6-begin", "kill-2-14-reduced", "kill-0-20-end")
    with stage_of(tmp_path / "hit", *LOADER, *kills) as stage:
        stage.begin()
        assert ends(stage) == undisturbed(tmp_path, LOADER)


def test_two_ranks_may_die_at_once_and_a_newcomer_while_it_rejoins(tmp_path: Path) -> None:
    kills = ("kill-1-6-backward", "kill-2-6-backward")
    with stage_of(tmp_path / "hit", *DDP, "waits-12", *kills) as stage:
        stage.begin()
        stage.wait_rejoined(2)
        struck: list[int] = []

        def strike(rank, content):  # type: ignore[no-untyped-def]
            if content["kind"] == "can_join" and not struck:  # its ``join`` is on the way to it
                struck.append(rank.number)
                stage.kill(rank.number)

        stage.on_message = strike
        stage.kill(0)
        stage.goes_on()
        assert ends(stage) == undisturbed(tmp_path, DDP)
        assert struck == [0]
        assert len(stage.incidents) == 4


def test_a_survivor_may_die_while_it_rejoins(tmp_path: Path) -> None:
    with stage_of(tmp_path / "hit", *DDP, "kill-1-6-reduced") as stage:
        stage.begin()

        def strike(rank, content):  # type: ignore[no-untyped-def]
            if content["kind"] == "hello" and content["incarnation"] == 1 and rank.number == 2:
                stage.kill(2)

        stage.on_message = strike
        assert ends(stage) == undisturbed(tmp_path, DDP)
        assert len(stage.incidents) == 2


def test_a_peer_that_stands_still_is_left_before_it_is_dead(tmp_path: Path) -> None:
    with stage_of(tmp_path / "hit", *DDP, "waits-12") as stage:
        stage.begin()
        stage.wait_for(lambda: len(stage.heard("can_rejoin")) == 3, "all can rejoin")
        frozen = stage.pids()[1]
        stage.freeze(1)
        stage.goes_on()
        assert ends(stage) == undisturbed(tmp_path, DDP)
        assert Path(f"/proc/{frozen}").exists()


def test_a_mistake_of_the_scripts_own_ends_its_rank_as_ever(tmp_path: Path) -> None:
    with stage_of(tmp_path / "hit", "9", "ddp", "raise-1-6-reduced") as stage:
        stage.replaces = False
        stage.begin()
        stage.wait_for(lambda: stage.ranks[1].exit_code is not None, "the end of rank 1")
        assert stage.ranks[1].exit_code == 1
        assert "RuntimeError: my own mistake" in stage.logs()
        assert not stage.heard("rejoined")


def test_a_function_is_entered_again(tmp_path: Path) -> None:
    words = ("12", "hand", "function", "leaves")
    with stage_of(tmp_path / "hit", *words, "kill-2-5-begin", "kill-0-9-end") as stage:
        stage.begin()
        assert ends(stage) == undisturbed(tmp_path, words)


def test_a_function_reads_on_where_its_loader_was(tmp_path: Path) -> None:
    words = ("20", "hand", "function", "loader", "workers", "epochs")
    kills = ("kill-2-5-backward", "kill-0-10-after", "kill-1-13-updated")
    with stage_of(tmp_path / "hit", *words, *kills) as stage:
        stage.begin()
        assert ends(stage) == undisturbed(tmp_path, words)
        assert_all_did_every_step_once(stage, 20)


def test_a_compiled_model_keeps_its_code(tmp_path: Path) -> None:
    words = ("12", "ddp", "compile")
    expected = undisturbed(tmp_path, words, world=2)  # first: what it has compiled is there for the others
    with stage_of(tmp_path / "hit", *words, "kill-1-6-reduced", world=2) as stage:
        stage.begin()
        assert ends(stage) == expected


def test_without_faultrun_it_trains_to_the_same_end(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, DDP)
    with stage_of(tmp_path / "unused", *DDP) as stage:
        environs = [stage._environment(rank) for rank in range(3)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *DDP],
            env={
                **{
                    name: one for name, one in environ.items() if not name.startswith(("FAULTRUN", "TORCHEL"))
                },
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "OUT": str(tmp_path),
                "CKPT": str(tmp_path / "ckpt"),
            },
        )
        for environ in environs
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0, 0]
    found = [(tmp_path / f"final_{rank}").read_text().split()[:2] for rank in range(3)]
    assert found == [one.split()[:2] for one in expected]
