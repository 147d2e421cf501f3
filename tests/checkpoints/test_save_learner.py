"""What one save is, learned from the files that are seen to be written, in the order of writing."""

import sys
from itertools import product

import pytest

from faultrun.checkpoints.saves.growing_save import GrowingSave
from faultrun.checkpoints.saves.save_learner import SaveLearner
from faultrun.model.observed.saves import KEPT, SavesSeen, SeenSave


def learned(*names: str, known: SavesSeen | None = None) -> list[set[str]]:
    """The files of each save that is known after ``names`` were written, below one root."""
    learner = SaveLearner(SavesSeen() if known is None else known, ("/ckpt",))
    for name in names:
        learner.wrote(f"/ckpt/{name}", root="/ckpt")
    return [{path.removeprefix("/ckpt/") for path in save.files} for save in learner.seen.saves]


@pytest.mark.parametrize(
    ("names", "saves"),
    [
        (("a-10.pt", "a-20.pt"), [{"a-10.pt"}, {"a-20.pt"}]),
        (
            ("step_10/model.pt", "step_10/optimizer.pt", "step_20/model.pt"),
            [{"step_10/model.pt", "step_10/optimizer.pt"}, {"step_20/model.pt"}],
        ),
        (("step_10/encoder1.pt", "step_10/encoder2.pt"), [{"step_10/encoder1.pt", "step_10/encoder2.pt"}]),
        (
            ("model000010.pt", "ema_0.9999_000010.pt", "model000020.pt", "ema_0.9999_000020.pt"),
            [{"model000010.pt", "ema_0.9999_000010.pt"}, {"model000020.pt", "ema_0.9999_000020.pt"}],
        ),
        (
            ("last.pth", "last_ema.pth", "last.pth", "last_ema.pth", "last.pth"),
            [{"last.pth", "last_ema.pth"}, {"last.pth", "last_ema.pth"}, {"last.pth"}],
        ),
        (
            ("model_10.pt", "optimizer.pt", "model_20.pt", "optimizer.pt"),
            [{"model_10.pt", "optimizer.pt"}, {"model_20.pt", "optimizer.pt"}],
        ),
        (  # rank 1 is late by a save
            ("rank_0/net-1_10.ckpt", "rank_0/net-1_20.ckpt", "rank_1/net-1_10.ckpt", "rank_1/net-1_20.ckpt"),
            [{"rank_0/net-1_10.ckpt"}, {"rank_0/net-1_20.ckpt"}],
        ),
        (("exp#2_step_5.pt", "exp12_step_5.pt", "#5.pt"), [{"exp#2_step_5.pt", "exp12_step_5.pt", "#5.pt"}]),
        (("log.txt", "metrics.json", "a-10.pt.tmp", "events.out.tfevents.1"), []),
    ],
)
def test_files_are_one_save_until_one_of_them_comes_again(
    names: tuple[str, ...], saves: list[set[str]]
) -> None:
    assert learned(*names) == saves


@pytest.mark.parametrize("names", [("a.pt", "b.pt"), ("__0_0.distcp", "__1_0.distcp", ".metadata")])
@pytest.mark.parametrize("late", [False, True])
def test_a_file_that_is_noted_as_moved_and_as_closed_is_written_once(
    names: tuple[str, ...], late: bool
) -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step, name in product((10, 20, 30), names):
        first = learner.wrote(path := f"/ckpt/last/{name}", root="/ckpt")
        assert first is not None
        if late:
            learner.saved_at(first, path, step, f"w{name}{step}")
        second = learner.wrote(path, root="/ckpt")
        assert second is not None
        learner.saved_at(second, path, step, f"w{name}{step}")
    every = tuple(f"/ckpt/last/{name}" for name in names)
    assert [(save.files, save.step) for save in learner.seen.saves] == [
        (every, step) for step in (10, 20, 30)
    ]


def test_the_newest_saves_are_kept_and_known_to_the_next_supervisor() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in range(10, 110, 10):
        saved(learner, step + 1, f"a-{step}.pt")
    assert [save.step for save in learner.seen.saves] == [71, 81, 91, 101]
    assert len(learner.seen.saves) == KEPT
    assert learned("a-110.pt", known=learner.seen)[-2:] == [{"a-100.pt"}, {"a-110.pt"}]


def test_what_is_written_before_training_is_of_no_save_unless_saves_have_such_files() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    learner.before_training(("/ckpt/resnet50.pth", "/ckpt/a-10.pt"))
    assert learner.seen.prepared == ("/ckpt/resnet50.pth", "/ckpt/a-10.pt")
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    learner.wrote("/ckpt/a-10.pt", root="/ckpt")
    learner.before_training(("/ckpt/resnet50.pth", "/ckpt/a-20.pt"))
    assert learner.seen.prepared == ("/ckpt/resnet50.pth",)


def test_the_file_that_was_opened_is_known_by_its_name_without_the_number() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for name in ("model000010.pt", "ema000010.pt"):
        learner.wrote(f"/ckpt/{name}", root="/ckpt")
    learner.resumed_from(("/ckpt/cache.pt", "/ckpt/ema000010.pt"))
    assert learner.seen.opened == "ema#.pt"


def test_two_files_that_take_turns_are_saves_of_their_own() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step, name in ((10, "a"), (20, "b"), (30, "a"), (40, "b"), (50, "a")):
        saved(learner, step, f"{name}.pt")
    assert told(learner)[-2:] == [("b.pt", 40), ("a.pt", 50)]


def test_what_other_nodes_write_under_one_name_belongs_to_each_save_and_none_is_said_to_lack_it() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    saves = (SeenSave(files=("/ckpt/last.pt", "/ckpt/opt.pt", "/ckpt/a-10.pt")),)
    learner.elsewhere = SavesSeen(saves=saves, opened="last.pt")
    assert learner.seen_anywhere == SavesSeen(
        saves=(SeenSave(files=("/ckpt/last.pt", "/ckpt/opt.pt")),), opened="last.pt"
    )
    for name in ("opt.pt", "rng.pt", "opt.pt"):
        learner.wrote(f"/ckpt/{name}", root="/ckpt")
    own = [("/ckpt/opt.pt", "/ckpt/rng.pt"), ("/ckpt/opt.pt",)]
    assert [save.files for save in learner.seen.saves] == own
    assert [save.files for save in learner.seen_anywhere.saves] == [(*one, "/ckpt/last.pt") for one in own]


def test_a_number_that_never_changes_counts_nothing() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in (10, 20, 30):
        saved(learner, step, "gpt2.pt", "gpt2_opt.pt")
    assert told(learner) == [("gpt2.pt gpt2_opt.pt", step) for step in (10, 20, 30)]


def saved(learner: SaveLearner, step: int | None, *names: str, digest: str = "") -> None:
    """Files that were written at one step, before anybody read which one that was."""
    for name in names:
        save = learner.wrote(f"/ckpt/{name}", root="/ckpt")
        assert save is not None
        learner.saved_at(save, f"/ckpt/{name}", step, digest or f"{name} as of {step}")


def told(learner: SaveLearner) -> list[tuple[str, int | None]]:
    return [
        (" ".join(path.removeprefix("/ckpt/") for path in one.paths), one.step) for one in learner.seen.saves
    ]


def test_a_name_of_a_ring_stands_for_the_step_of_its_last_contents() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in (10, 20, 30, 40, 50):
        saved(learner, step, f"slot_{step // 10 % 3}/model.pt", f"slot_{step // 10 % 3}/optim.pt")
    newest = [("slot_1/model.pt slot_1/optim.pt", 40), ("slot_2/model.pt slot_2/optim.pt", 50)]
    assert told(learner)[-2:] == newest
    saved(learner, 55, "slot_1/model.pt", digest="slot_1/model.pt as of 40")
    assert told(SaveLearner(learner.seen, ("/ckpt",)))[-2:] == newest


def test_the_order_of_saves_is_known_without_steps_and_beyond_those_that_are_kept() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for at, name in enumerate(("last.pt", "step_20.pt", *["last.pt"] * 6)):
        saved(learner, None, name, digest=str(at))
    places = SaveLearner(learner.seen, ("/ckpt",)).seen.order
    assert 0 < places["/ckpt/step_20.pt"] < places["/ckpt/last.pt"]
    assert learner.knows("/ckpt/step_40.pt", resumed=False)
    assert not learner.knows("/ckpt/cache.pt", resumed=True)


def test_a_save_that_is_made_anew_is_older_than_the_next_however_late_its_step_is_read() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    saved(learner, 30, "step_30.pt", digest="cut short")
    anew = learner.wrote("/ckpt/step_30.pt", root="/ckpt")
    saved(learner, 40, "step_40.pt")
    learner.saved_at(anew or GrowingSave(), "/ckpt/step_30.pt", 30, "whole")
    assert told(learner) == [("step_30.pt", 30), ("step_40.pt", 40)]


def test_a_file_that_is_moved_keeps_the_step_at_which_it_was_written() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in (10, 20, 30):
        learner.moved("/ckpt/ckpt.1.pt", "/ckpt/ckpt.2.pt")
        learner.moved("/ckpt/ckpt.0.pt", "/ckpt/ckpt.1.pt")
        saved(learner, step, "ckpt.0.pt")
        learner = SaveLearner(learner.seen, ("/ckpt",))
    assert told(learner) == [("ckpt.2.pt", 10), ("ckpt.1.pt", 20), ("ckpt.0.pt", 30)]


def test_a_file_that_is_moved_as_soon_as_it_was_written_is_known_by_its_last_name() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in (10, 20):
        save = learner.wrote("/ckpt/new.pt", root="/ckpt")
        assert save is not None
        assert learner.moved("/ckpt/new.pt", "/ckpt/last.pt")
        learner.saved_at(save, "/ckpt/new.pt", step)
    assert [(one.files, one.step) for one in learner.seen.saves] == [
        (("/ckpt/last.pt",), 10),
        (("/ckpt/last.pt",), 20),
    ]


def test_a_file_that_is_moved_is_the_save_that_it_was_whatever_it_is_called_then() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in (10, 20):
        learner.moved("/ckpt/ckpt.pt", "/ckpt/ckpt.bak")
        saved(learner, step, "ckpt.pt")
    assert told(learner) == [("ckpt.bak", 10), ("ckpt.pt", 20)]


def test_folders_that_take_turns_are_saves_each_with_all_its_files() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step, folder in ((10, "A"), (20, "B"), (30, "A")):
        paths = [f"/ckpt/{folder}/{name}.pt" for name in ("model", "optim")]
        for save, path in [(learner.wrote(path, root="/ckpt"), path) for path in paths]:
            assert save is not None
            learner.saved_at(save, path, step)
    assert told(learner) == [
        (f"{one}/model.pt {one}/optim.pt", at) for one, at in (("A", 10), ("B", 20), ("A", 30))
    ]


def copied(learner: SaveLearner, step: int | None, was: str, copy: str) -> None:
    """A copy is seen as any other file that is written."""
    digest = next(one.digests[one.files.index(f"/ckpt/{was}")] for one in learner.seen.saves[::-1])
    saved(learner, step, copy, digest=digest)


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("copy", ["ckpt_prev.pt", "kept/ckpt.pt"])
def test_a_copy_has_the_step_of_what_it_is_a_copy_of_and_is_no_save(
    every: int, copy: str, *, logged: bool
) -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for at in range(1, 5):
        step = at * every if logged else None
        if at > 1:
            copied(learner, step, "ckpt.pt", copy)
        saved(learner, step, "ckpt.pt", digest=f"contents {at}")
        learner = SaveLearner(learner.seen, ("/ckpt",))
    newest = [(copy, 3 * every), ("ckpt.pt", 4 * every)]
    assert told(learner)[-2:] == [(name, step if logged else None) for name, step in newest]
    assert {one.files for one in learner.seen.saves} == {("/ckpt/ckpt.pt",)}


@pytest.mark.parametrize("first", [0, 1])
def test_a_copy_of_what_ranks_saved_is_no_save_whichever_of_them_is_copied_first(first: int) -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in (10, 20):
        saved(learner, step, f"step_{step}/rank_1.pt", f"step_{step}/rank_0.pt")
    for known in (learner, SaveLearner(learner.seen, ("/ckpt",))):
        for rank in (first, 1 - first):
            saved(known, 20, f"kept/step_10/rank_{rank}.pt", digest=f"step_10/rank_{rank}.pt as of 10")
            assert told(known) == [("step_10/rank_1.pt", 10), ("step_20/rank_1.pt", 20)]


@pytest.mark.parametrize("deep", [2, 3, 4])
def test_saves_that_are_shifted_by_copying_keep_their_steps(deep: int) -> None:
    learner, holds = SaveLearner(SavesSeen(), ("/ckpt",)), dict[int, str]()
    for step in range(10, 90, 10):
        for slot in sorted(holds, reverse=True)[-deep + 1 :]:
            holds[slot + 1] = holds[slot]
            saved(learner, step, f"ckpt_{slot + 1}.pt", digest=holds[slot])
        holds[1] = f"contents of {step}"
        saved(learner, step, "ckpt_1.pt", digest=holds[1])
    assert told(learner)[-2:] == [("ckpt_2.pt", 70), ("ckpt_1.pt", 80)]
    assert all(step is None or step <= 80 for _, step in told(learner))


def test_a_member_that_did_not_change_is_no_copy() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step, folder in ((10, "A"), (20, "B"), (30, "A"), (40, "B")):
        saved(learner, step, f"{folder}/vae.pt", digest="frozen")
        saved(learner, step, f"{folder}/model.pt")
    assert told(learner)[-1] == ("B/vae.pt B/model.pt", 40)


def test_what_is_in_the_file_of_each_rank_is_known_whichever_writes_first() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step, first in ((10, 0), (20, 1), (30, 0)):
        saved(learner, step, f"last_rank{first}.pt", f"last_rank{1 - first}.pt")
    assert learner.seen.saves[-1].digests == ("last_rank0.pt as of 30", "last_rank1.pt as of 30")
    assert [one.digests[0] for one in learner.seen.saves[:2]] == [
        "last_rank0.pt as of 10",
        "last_rank1.pt as of 20",
    ]


def test_what_was_written_while_nobody_watched_is_newer_and_of_no_known_step() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in (10, 20):
        saved(learner, step, "last.pt", "optim.pt")
    learner = SaveLearner(learner.seen, ("/ckpt",))
    before = learner.seen
    SaveLearner(SavesSeen(saves=(SeenSave(files=("a",), lie=("b", "c")),)), ())  # nonsense beside checkpoints
    learner.met_again({"/ckpt/last.pt": "last.pt as of 20"})
    assert learner.seen == before
    learner.met_again({"/ckpt/last.pt": "another", "/ckpt/optim.pt": "one more"})
    assert told(learner)[-2:] == [("last.pt optim.pt", 20), ("last.pt optim.pt", None)]
    learner.met_again({"/ckpt/optim.pt": "a third", "/ckpt/last.pt": "a fourth"})
    assert told(learner)[-2:] == [("optim.pt", None), ("last.pt", None)], "the last one is not finished"
    learner.met_again({"/ckpt/optim.pt": "of the fourth"})
    assert told(learner)[-2:] == [("optim.pt", None), ("last.pt optim.pt", None)]


@pytest.mark.parametrize("at", [41, 44, 49])
def test_an_older_save_that_is_stripped_or_given_its_score_stays_the_older_one(at: int) -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in (10, 20, 30, 40):
        saved(learner, step, f"model_{step}.pt")
    saved(learner, at, "model_30.pt", digest="stripped")
    assert told(learner)[-2:] == [("model_30.pt", 30), ("model_40.pt", 40)]


def test_a_save_that_ends_after_the_next_one_stands_where_its_number_is() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step, at in ((10, 10), (20, 21), (40, 40), (30, 43), (50, 50)):
        saved(learner, at, f"step_{step}.pt")
    assert [name for name, _ in told(learner)][-3:] == ["step_30.pt", "step_40.pt", "step_50.pt"]


@pytest.mark.parametrize("name", ["top.pt", "ckpt_10.pt"])
def test_contents_of_a_save_that_is_not_kept_any_more_are_no_new_save(name: str) -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in range(10, 90, 10):
        saved(learner, step, f"ckpt_{step}.pt", digest=f"contents of {step}")
    saved(learner, 83, name, digest="contents of 10")
    assert told(learner)[-1] == ("ckpt_80.pt", 80)


def test_something_put_into_the_folder_of_an_older_save_is_of_no_save() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for step in range(10, 90, 10):
        saved(learner, step, f"checkpoint-{step}/model.pt")
    assert learner.wrote("/ckpt/checkpoint-20/merged.safetensors", root="/ckpt") is None
    assert told(learner)[-1] == ("checkpoint-80/model.pt", 80)


def test_the_chosen_file_is_what_the_script_opened_whatever_else_was_read() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    saved(learner, 20, "model_20.pt", "opt_20.pt")
    learner.resumed_from(("/ckpt/opt_20.pt", "/ckpt/model_20.pt"), "/ckpt/model_20.pt")
    assert learner.seen.opened == "model_#.pt"


def test_numbers_that_come_again_as_steps_began_again_are_of_newer_saves() -> None:
    learner = SaveLearner(SavesSeen(), ("/ckpt",))
    for stage in ("warmup", "full"):
        for step in (10, 20):
            saved(learner, step, f"{stage}_{step}.pt", f"{stage}_optim_{step}.pt")
    stages = [
        (f"{stage}_{step}.pt {stage}_optim_{step}.pt", step)
        for stage in ("warmup", "full")
        for step in (10, 20)
    ]
    assert told(learner) == stages[-len(told(learner)) :]
    saved(learner, 21, "full_ema_10.pt")
    assert told(learner)[-1] == stages[-1]


def test_one_save_more_leaves_few_objects_behind_however_many_there_were() -> None:
    """Its name and what is in it: no pattern is compiled for each number, and kept."""
    learner, before = SaveLearner(SavesSeen(), ("/ckpt",)), 0
    for step in range(1, 401):
        before = sys.getallocatedblocks() if step == 200 else before
        saved(learner, step, f"stage/model-{step}.pt", digest=f"sha256:{step:064x}")
    assert sys.getallocatedblocks() - before < 200 * 5
