"""Who trains on while the place of another is empty: by choice, and where it is possible."""

import pytest

from support.asking import plan, refusal


@pytest.mark.parametrize(
    ("words", "fewest"),
    [
        ((), 0),
        (("--while_missing=wait", "--min_worker_num=3"), 0),
        (("--while_missing=train",), 2),
        (("--while_missing=train", "--worker_num=5"), 3),
        (("--while-missing=train", "--min_worker_num=4"), 4),
        (("--min_worker_num=3",), 3),
    ],
)
def test_survivors_train_on_where_somebody_said_so_or_that_the_size_may_change(
    script: str, words: tuple[str, ...], fewest: int
) -> None:
    assert plan("--worker_num=4", *words, script).spec.supervision.windows.trains_from == fewest


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("--on_fault=restart",), "all ranks start again after a fault"),
        (("--worker_exit_codes=torchft",), "sees to its own ranks"),
        (("--worker_num=1",), "there is one worker"),
        (
            ("--local_worker_num=2", "--master_addr=192.0.2.1", "--node_rank=0"),
            "on several nodes survivors wait for the newcomer",
        ),
    ],
)
def test_where_they_cannot_it_is_said_by_name(script: str, words: tuple[str, ...], because: str) -> None:
    resolved = plan("--worker_num=4", "--while_missing=train", "--heal_timeout=2m", *words, script)
    assert resolved.spec.supervision.windows.trains_from == 0
    told = [note for note in resolved.notes if because in note]
    assert [any(name in note for note in told) for name in ("--while_missing", "--heal_timeout")] == [
        True
    ] * 2


def test_how_long_a_place_may_stay_empty_is_told_and_means_nothing_where_all_wait(script: str) -> None:
    words = ("--worker_num=4", "--heal_timeout=2m")
    assert plan(*words, "--while_missing=train", script).spec.supervision.windows.heal_s == 120.0
    notes = plan(*words, script).notes
    assert any(
        "--heal_timeout has no effect here: survivors wait (--while_missing=wait)" in one for one in notes
    )


@pytest.mark.parametrize("text", ["0", "999ms"])
def test_a_place_that_may_be_empty_for_no_time_at_all_is_refused(script: str, text: str) -> None:
    error = refusal("--worker_num=4", "--while_missing=train", f"--heal_timeout={text}", script)
    assert f"{text} is shorter than 1 s" in str(error)
