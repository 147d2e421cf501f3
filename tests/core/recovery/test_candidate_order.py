"""Which of two checkpoints is newer, when they tell different things."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.recovery.candidate_order import moments
from faultrun.model.checkpoint import Entry, Kind
from support.checkpoints.entries import candidate


def entry(path: str, step: int | None = None, epoch: int | None = None, **more: object) -> Entry:
    return candidate(path, step, epoch=epoch, **{"series": path, **more})


def newest_first(*entries: Entry) -> list[str]:
    return [one.path for moment in moments(entries) for one in moment.entries]


def test_a_later_epoch_is_newer_than_an_old_gasp_that_also_knows_its_step() -> None:
    gasp = entry("gasp", 500, 2, kind=Kind.GASP, mtime_ns=9)
    assert newest_first(gasp, entry("last", None, 9, mtime_ns=1)) == ["last", "gasp"]
    assert newest_first(gasp, entry("first", None, 1, mtime_ns=99)) == ["gasp", "first"]


def test_an_epoch_stands_between_the_steps_that_are_known_of_the_epochs_around_it() -> None:
    steps = [entry("s100", 100, 1), entry("s300", 300, 3), entry("s900", 900, 9)]
    assert newest_first(*steps, entry("e5", None, 5), entry("s310", 310)) == [
        "s900", "s310", "e5", "s300", "s100",
    ]  # fmt: skip


def test_in_the_same_epoch_the_file_that_knows_its_step_is_tried_first() -> None:
    assert newest_first(entry("e2", None, 2), entry("mid", 150, 2), entry("e1", 100, 1)) == [
        "mid",
        "e2",
        "e1",
    ]


def test_a_step_that_starts_anew_in_each_epoch_does_not_beat_a_later_epoch() -> None:
    told = [entry(f"{epoch}-{step}", step, epoch, series="s") for epoch, step in ((2, 90), (3, 20), (3, 60))]
    assert newest_first(*told) == ["3-60", "3-20", "2-90"]
    ends = [entry(f"end{epoch}", 100, epoch, series="s") for epoch in (1, 2, 3)]
    assert newest_first(*ends) == ["end3", "end2", "end1"]


def test_a_step_that_starts_anew_in_each_session_does_not_lose_to_an_old_gasp() -> None:
    old, new = entry("gasp", 500, 2, kind=Kind.GASP), entry("new", 100, 9)
    assert newest_first(old, new, entry("unknown", 50)) == ["new", "gasp", "unknown"]


def test_two_writers_of_whom_one_counts_epochs_from_one_are_ordered_by_their_steps() -> None:
    assert newest_first(entry("gasp", 390, 1, kind=Kind.GASP), entry("own", 350, 2)) == ["gasp", "own"]


def test_none_is_older_than_what_was_seen_to_be_written_before_it() -> None:
    told = [entry("s30", 30, written=1), entry("silent", mtime_ns=1, written=2), entry("s20", 20, written=3)]
    assert newest_first(entry("s99", 99), *told, entry("s29", 29)) == ["s99", "s20", "silent", "s30", "s29"]
    best = entry("best", 5, kind=Kind.BEST, written=4)
    gasp = entry("gasp", 31, kind=Kind.GASP)
    assert newest_first(*told[:2], best, gasp) == ["gasp", "silent", "s30", "best"]
    assert newest_first(entry("kept/s20", 20), *told) == ["s20", "silent", "s30", "kept/s20"]


def test_an_epochs_file_is_newer_than_a_best_one_that_was_seen_written_before_it() -> None:
    best = entry("best", 50, kind=Kind.BEST, written=2)
    assert newest_first(entry("epoch_4", None, 4, written=1), best, entry("epoch_8", None, 8, written=3)) == [
        *("epoch_8", "best", "epoch_4")
    ]


def test_a_best_file_has_its_place_by_what_it_tells_and_the_last_place_if_it_tells_nothing() -> None:
    best = entry("best", None, 3, kind=Kind.BEST, mtime_ns=99)
    assert newest_first(best, entry("last", None, 9), entry("silent", mtime_ns=100)) == [
        "last",
        "best",
        "silent",
    ]


def test_a_best_file_that_tells_only_its_step_is_before_no_save_that_tells_only_its_epoch() -> None:
    best = entry("best", 30, kind=Kind.BEST, mtime_ns=9)
    epochs = [entry(f"epoch_{epoch}", None, epoch, mtime_ns=epoch) for epoch in (3, 4)]
    assert newest_first(best, *epochs) == ["epoch_4", "epoch_3", "best"]
    assert newest_first(best, *epochs, entry("step_20", 20))[:2] == ["best", "step_20"], "steps compare"
    assert newest_first(best, entry("model_8", mtime_ns=8)) == ["model_8", "best"]


def test_of_what_was_written_together_a_file_that_tells_nothing_is_second() -> None:
    model, extra = entry("model_30", 30, written=2), entry("extra_30", mtime_ns=9, written=2)
    assert newest_first(entry("model_20", 20, written=1), model, extra) == [
        "model_30",
        "extra_30",
        "model_20",
    ]


def test_of_what_was_written_together_the_best_file_is_second() -> None:
    best, epoch = entry("best", 30, kind=Kind.BEST, written=1), entry("epoch_3", None, 3, written=1)
    assert newest_first(best, epoch) == ["epoch_3", "best"]


def test_a_best_file_that_tells_nothing_is_as_new_as_it_was_seen_to_be_written() -> None:
    told = entry("best_83", 30, kind=Kind.BEST, written=3)
    assert newest_first(told, entry("best_84", kind=Kind.BEST, written=4)) == ["best_84", "best_83"]


def test_a_name_that_counts_saves_puts_a_silent_file_behind_the_save_before_it() -> None:
    told = [entry(f"ck/{save}", 10 * save, series="#", save_number=save) for save in (1, 2)]
    silent = [entry(f"ck/{save}", series="#", save_number=save, mtime_ns=99 - save) for save in (3, 4)]
    assert newest_first(*told, *silent, entry("25", 25)) == ["25", "ck/4", "ck/3", "ck/2", "ck/1"]
    assert newest_first(*silent, entry("between", mtime_ns=97)) == ["between", "ck/4", "ck/3"]


entries = st.builds(
    entry,
    st.integers(0, 10**6).map(str),
    st.none() | st.integers(0, 30),
    st.none() | st.integers(0, 6),
    mtime_ns=st.integers(0, 3),
    kind=st.sampled_from(Kind),
    series=st.sampled_from("ab"),
    session=st.integers(0, 1),
    save_number=st.none() | st.integers(0, 3),
    rank=st.none() | st.integers(0, 2),
)
candidates = st.lists(entries, max_size=10, unique_by=lambda one: one.path)


def ranking(found: list[Entry]) -> dict[str, int]:
    """How new each file is: larger is newer, the same for files of one moment."""
    return {one.path: -index for index, moment in enumerate(moments(found)) for one in moment.entries}


def writer(one: Entry) -> tuple[object, ...]:
    return (one.series, one.session, one.kind)


def kept_for_quality(one: Entry, other: Entry) -> bool:
    """Whether one of them is: what it tells need not say which is older."""
    return Kind.BEST in {one.kind, other.kind}


@settings(max_examples=150, deadline=None)
@given(candidates)
def test_every_file_has_one_place_whatever_their_order_and_whatever_clocks_say(found: list[Entry]) -> None:
    places = ranking(found)
    assert set(places) == {one.path for one in found}
    assert ranking(found[::-1]) == places
    telling = [one for one in found if one.epoch is not None or one.global_step is not None]
    shaken = [replace(one, mtime_ns=7 * one.mtime_ns % 5) for one in telling]
    assert ranking(shaken) == ranking(telling)


@settings(max_examples=300, deadline=None)
@given(candidates)
def test_where_both_tell_it_the_greater_epoch_and_step_is_newer(found: list[Entry]) -> None:
    places = ranking(found)
    for one in found:
        for other in found:
            if one.epoch is None or other.epoch is None or kept_for_quality(one, other):
                continue
            newer = places[one.path] > places[other.path]
            if one.global_step is None or other.global_step is None:
                assert newer or one.epoch <= other.epoch
            elif writer(one) == writer(other):
                assert newer == ((one.epoch, one.global_step) > (other.epoch, other.global_step))
            elif one.epoch >= other.epoch + 2:
                assert newer


@settings(max_examples=150, deadline=None)
@given(candidates, st.integers(1, 5))
def test_while_steps_count_on_the_larger_step_is_newer(found: list[Entry], per_epoch: int) -> None:
    history = [
        replace(
            one, epoch=None if one.epoch is None or one.global_step is None else one.global_step // per_epoch
        )
        for one in found
    ]
    places = ranking(history)
    distinct = {(writer(one), one.global_step): one for one in history if one.global_step is not None}
    for one in distinct.values():
        for other in (other for other in distinct.values() if not kept_for_quality(one, other)):
            assert (places[one.path] > places[other.path]) == (
                (one.global_step or 0) > (other.global_step or 0)
            )


def test_files_that_were_seen_written_one_after_the_other_are_as_of_one_writer() -> None:
    last, before = entry("last", 0, 2, written=2), entry("last_prev", 7, 1, written=1)
    assert newest_first(before, last) == ["last", "last_prev"]
    assert newest_first(entry("gasp", 390, 1, written=2), entry("own", 350, 2, written=1))[0] == "gasp"
