"""Who is missing while the others train on, since when, and who is back: in words."""

from dataclasses import replace

import pytest

from faultrun.model.plan import Plan
from faultrun.observe.console_words import running_words
from faultrun.observe.missing_ranks import MissingRanks
from support.stories.story import first_plan


def plan(missing: set[int], *, heals: bool = False, workers: int = 4) -> Plan:
    first = first_plan(workers)
    return replace(first, kept=frozenset({0, 1}), missing=frozenset(missing), heals=heals)


@pytest.mark.parametrize(
    ("following", "parked", "words"),
    [
        (
            plan({2, 3}),
            (),
            "ranks 2 3 are missing; ranks 0 1 train on with the same global batch, "
            "ranks 2 3 heal beside them",
        ),
        (
            plan({3}),
            (),
            "rank 2 started again, 2 workers stayed; "
            "rank 3 is missing; ranks 0 1 2 train on with the same global batch, rank 3 heals beside them",
        ),
        (plan(set(), heals=True), (2, 3), "ranks 2 3 come back, 2 workers stayed"),
        (plan(set(), heals=True), (2,), "ranks 2 3 started again, 2 workers stayed"),
        (plan(set()), (), "ranks 2 3 started again, 2 workers stayed"),
        (plan(set(), workers=2), (), "2 workers stayed, one of them repaired in place"),
    ],
)
def test_the_console_says_who_comes_and_who_is_missing(
    following: Plan, parked: tuple[int, ...], words: str
) -> None:
    assert running_words((), following, 29500, parked) == words


def test_how_long_each_is_missing_is_counted_from_the_plan_without_it() -> None:
    known = MissingRanks()
    known.planned(plan({3}), 10.0)
    assert known.words(4, 22.0) == "3 of 4 train, rank 3 heals: 12 s"
    assert known.one_group(4, 23.0) == ("", ())
    known.planned(plan({2, 3}), 20.0)
    assert known.words(4, 22.0) == "2 of 4 train, rank 2 heals: 2 s, rank 3 heals: 12 s"
    known.planned(plan({2}, heals=True), 30.0)
    assert known.one_group(4, 31.0) == ("rank 3 is back after 21 s; 3 of 4 train", (3,))
    known.planned(plan(set(), heals=True), 40.0)
    assert known.one_group(4, 41.0) == ("rank 2 is back after 21 s; all 4 train", (2,))
    assert (known.one_group(4, 42.0), known.words(4, 42.0)) == (("", ()), "")


def test_once_a_rank_has_finished_nobody_is_said_to_heal() -> None:
    known, ends = MissingRanks(), plan({2, 3})
    assert running_words((), ends, 29500, (), {2}) == "rank 2 has finished, ranks 0 1 go on without"
    known.planned(ends, 10.0, {2})
    assert known.words(4, 22.0) == ""
