"""A later stage of one training counts from the beginning again, in a folder of its own."""

from faultrun.checkpoints.saves.stages import with_stages
from faultrun.model.checkpoint import Entry, Kind


def saved(path: str, at: int) -> Entry:
    step = int(path.rpartition("_")[2].partition(".")[0])
    return Entry(
        path=path, format="torch", kind=Kind.PERIODIC, size_bytes=1, mtime_ns=at, inode=at, global_step=step
    )


def stages(*paths: str) -> dict[str, int]:
    """The stage of each, written in this order."""
    found = with_stages([saved(path, at) for at, path in enumerate(paths, start=1)])
    return {one.path: one.stage for one in found}


def test_a_folder_that_counts_anew_once_the_other_gets_no_more_is_the_next_stage() -> None:
    found = stages("s1/step_10", "s1/step_20", "s1/step_30", "s2/step_10", "s2/step_20")
    assert {path for path, stage in found.items() if stage} == {"s2/step_10", "s2/step_20"}


def test_one_save_is_no_stage_yet() -> None:
    assert not any(stages("s1/step_10", "s1/step_20", "s2/step_10").values())


def test_a_folder_of_best_models_is_no_stage() -> None:
    found = stages("ckpt/step_10", "best/step_10", "ckpt/step_20", "best/step_20", "ckpt/step_30")
    assert not any(found.values())


def test_a_copy_of_older_saves_is_no_stage() -> None:
    assert not any(stages("ckpt/step_110", "ckpt/step_120", "old/step_90", "old/step_100").values())


def test_three_stages_follow_one_another() -> None:
    found = stages("a/step_1", "a/step_2", "a/step_3", "b/step_1", "b/step_2", "c/step_1", "c/step_2")
    assert [found[path] for path in ("a/step_3", "b/step_2", "c/step_2")] == [0, 1, 2]
