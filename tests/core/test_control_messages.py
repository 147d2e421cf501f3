"""Whatever comes over the control socket is heard as it was meant, or not at all."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from faultrun.core.control_messages import path, said, seconds, short, whole
from faultrun.journal.codec import encode
from faultrun.model.observed.dying_gasp import GaspAcknowledged, GaspSaved
from faultrun.model.observed.rejoin import RankCanRejoin
from faultrun.model.wire import MAX_LINE_BYTES, message, parse

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.sampled_from([10**400, -(10**400), "\ud800", "a\0b", "ü" * 9000, "\x01" * 9000, {}, []]),
    st.lists(st.one_of(st.integers(), st.floats(), st.text()), max_size=4),
)
FIELDS = ("rank", "step", "path", "size_bytes", "took_s", "digest", "replica_group", "why", "late_s")
MESSAGES = st.fixed_dictionaries(
    {"kind": st.sampled_from(["ack", "saved", "failed", "hello", "step", "stop", "save"])},
    optional=dict.fromkeys(FIELDS, ODD),
)


@given(MESSAGES)
@example({"kind": "saved", "step": 1, "took_s": 10**400})
@example({"kind": "saved", "step": 10**400, "took_s": math.inf})
@example({"kind": "saved", "step": True, "path": "\ud800", "replica_group": [True, 2**70]})
@example({"kind": "failed", "why": "\ud800" + "\x01" * 9000})
@example({"kind": "failed", "why": "ü" * 9000, "path": "ü" * 9000})
def test_no_message_raises_and_what_is_heard_can_be_journaled_and_told(content: dict[str, object]) -> None:
    read = parse(json.dumps(content).encode())
    assert read is not None
    event = said(read, 0, 3, 1.5)
    if event is not None:
        json.dumps(encode(event), allow_nan=False)
    if isinstance(event, GaspSaved):
        assert 0 <= event.step < 2**63
        assert math.isfinite(event.took_s)
        event.path.encode(errors="surrogateescape")
        assert "\0" not in event.path
    told = message("failed", rank=0, path=path(read.get("path")), why=short(read.get("why")))
    assert len(told) <= MAX_LINE_BYTES


@given(st.binary(max_size=400))
def test_no_bytes_raise(line: bytes) -> None:
    read = parse(line)
    if read is not None:
        said(read, 0, 3, 1.5)


@pytest.mark.parametrize("number", ["1" + "0" * 400, "NaN", "-Infinity", "1e999", "9223372036854775808"])
def test_a_number_that_nobody_can_mean_costs_its_field_and_not_the_message(number: str) -> None:
    line = f'{{"kind":"saved","step":7,"path":"p","took_s":{number},"size_bytes":{number}}}'
    read = parse(line.encode())
    assert read is not None
    event = said(read, 1, 3, 1.5)
    assert isinstance(event, GaspSaved)
    assert (event.step, event.path, event.size_bytes) == (7, "p", 0)
    assert event.took_s in (0.0, 2.0**63)


def test_true_is_no_step_and_no_rank() -> None:
    assert whole(True) is None
    event = said({"kind": "ack", "step": True}, 0, 3, 1.5)
    assert isinstance(event, GaspAcknowledged)
    assert event.step is None


def test_a_path_that_is_no_utf_8_is_a_path() -> None:
    assert path("/ckpt/\udcff.ckpt") == "/ckpt/\udcff.ckpt"
    assert path("/ckpt/\ud800.ckpt") == path("a\0b") == path(7) == ""


def test_a_duration_is_not_negative() -> None:
    assert [seconds(value) for value in (-1, 2.5, "3", None)] == [0.0, 2.5, 0.0, 0.0]


@pytest.mark.parametrize(("told", "heard"), [("", ""), ("batch norm trains", "batch norm trains"), (3, None)])
def test_a_rank_says_whether_it_can_do_a_missing_ranks_share_and_one_that_says_nothing_was_not_asked(
    told: object, heard: str | None
) -> None:
    can = {"kind": "can_rejoin", "incarnation": 3}
    assert said({**can, "trains_on": told}, 1, 3, 1.5) == RankCanRejoin(
        at_s=1.5, incarnation=3, rank=1, trains_on=heard
    )
    silent = said(can, 1, 3, 1.5)
    assert isinstance(silent, RankCanRejoin)
    assert silent.trains_on is None
    assert "trains_on" not in encode(silent)
