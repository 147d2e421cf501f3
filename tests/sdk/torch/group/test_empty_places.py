"""A world of three of which one is missing: its ranks are still 0 and 2, and its averages through three."""

import json
from typing import Any

import pytest

pytest.importorskip("torch")

from faultrun.sdk.torch.group.empty_places import ScriptMeetings, why_no_places
from sdk.support.torch_imports import IMPORTS
from support.places import TESTS
from support.preloaded import preloaded

pytestmark = pytest.mark.torch

SCRIPT = TESTS / "sdk" / "scripts" / "meet_with_gaps.py"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """By rank."""
    folder, ranks = tmp_path_factory.mktemp("gaps"), {}
    for rank in (0, 2):
        with (folder / str(rank)).open("wb") as log:
            words = (str(rank), str(folder))
            ranks[rank] = preloaded(*IMPORTS).start(SCRIPT, *words, env={}, log=log.fileno())
    codes = [one.wait() for one in ranks.values()]
    texts = {rank: (folder / str(rank)).read_text() for rank in ranks}
    assert codes == [0, 0], texts
    return {rank: json.loads(text.splitlines()[-1]) for rank, text in texts.items()}


def test_torch_can_have_such_a_group() -> None:
    assert why_no_places() == ""


def test_the_world_keeps_its_size_and_its_ranks_their_numbers(told: dict[int, Any]) -> None:
    assert {rank: (one["rank"], one["size"]) for rank, one in told.items()} == {0: (0, 3), 2: (2, 3)}


def test_sums_are_those_of_the_members_and_averages_these_through_the_world(told: dict[int, Any]) -> None:
    for one in told.values():
        assert one["SUM"] == one["functional"] == [4.0]
        assert one["AVG"] == [pytest.approx(4 / 3)]
        assert one["MAX"] == [3.0]
    assert told[2]["reduced"] == [4.0]


def test_what_a_member_gives_arrives_by_its_rank(told: dict[int, Any]) -> None:
    for one in told.values():
        assert one["broadcast"] == one["coalesced"] == [3.0]
        assert one["objects"] == [2]
        assert one["exchanged"] == [[0, 7], [2, 7]]
    assert told[2]["received"] == [1.0]


def test_what_needs_the_missing_is_refused_by_name(told: dict[int, Any]) -> None:
    for one in told.values():
        for words in one["refused"]:
            assert words.startswith("NeedsAllRanks: ")
            assert words.endswith(" place in the process group is empty")


def test_what_the_script_did_before_training_and_what_the_sdk_does_keeps_nobody() -> None:
    meetings = ScriptMeetings()
    meetings.sees("all_gather", (), needs_all=True)
    meetings.begin()
    with meetings.ours():
        meetings.sees("all_gather", (), needs_all=True)
    meetings.in_attempt = True
    meetings.sees("all_reduce", (), sums=True)
    assert meetings.why == ""
    meetings.in_attempt = False
    meetings.sees("barrier", (), sums=True)
    assert meetings.why == "its ranks meet outside of guard.attempt() (barrier)"


def test_a_step_that_gathers_is_seen_while_all_are_there() -> None:
    meetings = ScriptMeetings()
    meetings.begin()
    meetings.in_attempt = True
    meetings.sees("all_gather", (), needs_all=True)
    assert meetings.why == "its steps call all_gather, which takes a part of every rank"
