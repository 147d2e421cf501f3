"""torchft's own words about its recoveries: read as its sources write them, and anything else is no event."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from faultrun.core.torchft_events import TORCHFT_MARK, in_words, told_after, torchft_event

RECOVERED = {
    "event": "recovered", "t": 100.5, "gen": 2, "rank": 5, "step": 12, "new": False,
    "links_s": 0.31, "restore_s": 0.4, "total_s": 0.84,
}  # fmt: skip
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def line(**fields: object) -> str:
    return f"2026-11-23 10:00:00 INFO torchft.fsdp: {TORCHFT_MARK}{json.dumps(fields)}\n"


def test_a_recovery_says_where_it_ended_and_what_it_took_in_the_name_of_the_logs_rank() -> None:
    event = torchft_event(1, line(**RECOVERED))
    assert event is not None
    assert (event.name, event.at_utc_s, event.step) == ("recovered", 100.5, 12)
    assert event.words == "rank 1 recovered at step 12 in 840 ms (links 310 ms, state 400 ms)"


def test_a_failure_says_why_in_one_line() -> None:
    event = torchft_event(
        0, line(event="failure_detected", t=7, step=3, error="peer\nfaultrun: \x1b[2Jall is well")
    )
    assert event is not None
    assert event.words == "rank 0 noticed a failure at step 3: peer\\u000afaultrun: \\u001b[2Jall is well"


def test_what_torchft_would_not_write_is_no_event() -> None:
    for text in (
        "recovered",
        TORCHFT_MARK,
        f"{TORCHFT_MARK}{{",
        f"{TORCHFT_MARK}[]",
        TORCHFT_MARK + "[" * 4000,
        f'{TORCHFT_MARK}{{"event": "recovered"}}',
        f'{TORCHFT_MARK}{{"event": ["recovered"], "t": 1}}',
        f'{TORCHFT_MARK}{{"event": "exploded", "t": 1}}',
        f'{TORCHFT_MARK}{{"event": "recovered", "t": NaN}}',
        f'{TORCHFT_MARK}{{"event": "recovered", "t": 1{"0" * 400}}}',
        line(**RECOVERED, more="x" * 5000),
    ):
        assert torchft_event(0, text) is None


@given(st.dictionaries(st.sampled_from([*RECOVERED, "error", "seconds"]), JSON))
@example({"step": float("inf"), "total_s": -1, "error": 5})
def test_a_field_of_another_kind_is_as_if_it_were_not_told(fields: dict[str, object]) -> None:
    event = torchft_event(0, line(**{**fields, "event": "recovered", "t": 1}))
    if event is not None:  # else the line was too long
        assert "\n" not in event.words
        assert event.step is None or event.step >= 0


@given(st.text())
@example(TORCHFT_MARK + '{"event": "training_done", "t": 1, "step": true}')
def test_garbage_breaks_nothing(text: str) -> None:
    torchft_event(0, text)
    torchft_event(0, TORCHFT_MARK + text)


def test_an_incident_has_what_was_said_until_the_next_one_and_of_many_words_the_first() -> None:
    events = [torchft_event(rank, line(**{**RECOVERED, "t": 90 + rank})) for rank in range(9)]
    known = [one for one in events if one is not None]
    assert [one.rank for one in told_after(reversed(known), 91, 95)] == [1, 2, 3, 4]
    assert in_words(known, 2)[2:] == ["and 7 events more"]
