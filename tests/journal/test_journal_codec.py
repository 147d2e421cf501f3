"""Every value that is written down can be read back, by an older and by a newer version too."""

import dataclasses
import json
import math
import subprocess
import sys
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.journal.append import line_of
from faultrun.journal.codec import TAG, CodecError, decode, encode
from faultrun.journal.read import event_of
from faultrun.model.actions import Action, RequestGasp
from faultrun.model.event_base import FLAT, UNLESS_USED
from faultrun.model.events import Event, Timer, WorkerExit
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.observed.hang import Activity, Suspicion
from faultrun.model.observed.platform_notice import ResetNotice
from faultrun.model.observed.progress import WorkPhase
from faultrun.model.observed.recovery import Began
from faultrun.model.observed.saves import SavesSeen
from faultrun.model.observed.standby import StandbyPhase
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.run import Step
from faultrun.model.spec.run_spec import RunSpec
from faultrun.model.spec.windows import Deadline
from faultrun.model.stop import StopSource
from faultrun.model.topology import NodeId, NodeSlots
from support.stories.generated import ACTION_TYPES, EVENT_TYPES, values
from support.stories.specs import a_spec
from support.stories.story import new_run, topology

STEP = Step(state=new_run(1), why="because the test says so")


def through_json(data: object) -> Any:
    """As a file would keep it, ``é`` and lone surrogates included."""
    text = json.dumps(data, ensure_ascii=False)
    return json.loads(text.encode(errors="backslashreplace"))


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda one: one.__name__)
@settings(max_examples=25)
@given(st.data())
def test_every_event_is_read_back_from_its_line(event_type: type, data: st.DataObject) -> None:
    event = data.draw(values(event_type))
    line = through_json(line_of(event, STEP, {"node": "n", "boot": "b"}))
    assert event_of(line) == event
    assert (line["event"], line["why"], line["phase"]) == (event_type.__name__, STEP.why, "new")


@pytest.mark.parametrize("action_type", ACTION_TYPES, ids=lambda one: one.__name__)
@settings(max_examples=25)
@given(st.data())
def test_every_action_is_read_back(action_type: type, data: st.DataObject) -> None:
    action = data.draw(values(action_type))
    assert decode(through_json(encode(action)), Action) == action


@settings(max_examples=25)
@given(st.data())
def test_keys_that_a_newer_version_writes_are_ignored(data: st.DataObject) -> None:
    event = data.draw(values(data.draw(st.sampled_from(EVENT_TYPES))))
    line = _with_unknown_keys(through_json(line_of(event, STEP, {})))
    assert event_of(line) == event


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda one: one.__name__)
def test_fields_that_an_older_version_did_not_write_take_their_defaults(event_type: type) -> None:
    optional = {
        field.name for field in dataclasses.fields(event_type) if field.default is not dataclasses.MISSING
    }
    event = _plainest(event_type)
    line = {name: value for name, value in line_of(event, STEP, {}).items() if name not in optional}
    assert event_of(through_json(line)) == event


def test_a_field_that_came_later_is_written_where_it_is_used_only() -> None:
    seat = NodeSlots(node=NodeId("a"), slots=3)
    assert encode(seat) == {TAG: "NodeSlots", "node": "a", "slots": 3}
    fewer = dataclasses.replace(seat, places=(0, 2, 3))
    assert encode(fewer)["places"] == [0, 2, 3]
    assert decode(encode(fewer), NodeSlots) == fewer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Idle:
    WIRE_NAME = "idle"

    free: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Busy:
    WIRE_NAME = "busy"

    job: str = ""
    until: int = dataclasses.field(default=0, metadata=UNLESS_USED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    row: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Desk:
    number: int
    doing: Idle | Busy = dataclasses.field(metadata={"wire": "state", **FLAT})
    place: Place = dataclasses.field(default=Place(), metadata=FLAT)


def test_fields_of_a_flat_one_are_its_owners_and_a_word_says_which_of_several_it_is() -> None:
    plain = {TAG: "Desk", "number": 7, "row": 1, "free": 0, "job": ""}
    for desk, words in (
        (Desk(number=7, doing=Idle(free=3)), {"state": "idle", "free": 3}),
        (Desk(number=7, doing=Busy(job="x", until=5)), {"state": "busy", "job": "x", "until": 5}),
    ):
        assert encode(desk) == {**plain, **words}
        assert decode(through_json(encode(desk)), Desk) == desk
    assert decode({"number": 7, "state": "busy"}, Desk) == Desk(number=7, doing=Busy())
    for broken in ({"number": 7}, {"number": 7, "state": "away"}, {"number": 7, "state": "busy", "job": 1}):
        with pytest.raises(CodecError):
            decode(broken, Desk)


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda one: one.__name__)
def test_no_event_has_a_field_that_the_line_keeps_for_itself(event_type: type) -> None:
    names = {field.name for field in dataclasses.fields(event_type)}
    assert not names & {"seq", "at_utc", "run_s", "event", "phase", "actions", "because", TAG}


def test_an_event_of_a_kind_that_this_version_does_not_know_is_none() -> None:
    assert event_of({"event": "ClusterTeleported", "run_s": 1.0, "incarnation": 0}) is None
    assert event_of({}) is None


def test_the_two_ways_to_end_are_told_apart_by_name() -> None:
    assert encode(Exited(code=9)) == {TAG: "Exited", "code": 9}
    assert encode(Signaled(signum=9)) == {TAG: "Signaled", "signum": 9}
    assert decode({TAG: "Signaled", "signum": 9}, ExitStatus) == Signaled(signum=9)


@pytest.mark.parametrize("at_s", [42.5, 42, math.inf])
def test_a_deadline_is_its_number_under_the_word_that_older_journals_have(at_s: float) -> None:
    asked = RequestGasp(ranks=frozenset({0, 1}), deadline=Deadline(at_s=at_s))
    line = {TAG: "RequestGasp", "ranks": [0, 1], "deadline_s": at_s, "stranded": False}
    assert encode(asked) == line
    assert decode(through_json(line), Action) == asked
    with pytest.raises(CodecError):
        decode({**line, "deadline_s": {"at_s": at_s}}, Action)


@pytest.mark.parametrize(
    ("data", "as_type"),
    [
        *(({TAG: "Vanished"}, ExitStatus), ({TAG: []}, ExitStatus), ({TAG: None, "code": 1}, Exited | None)),
        *(({"code": "9"}, Exited), ({"code": True}, Exited), ({}, Exited), ([], Exited)),
        *(("x", Event), (None, ExitStatus), ("SIGUSR9", WorkerExit)),
        *(([1, 2], tuple[int, str, int]), ("often", tuple[int, ...]), (1.5, int), (10**400, float)),
    ],
    ids=lambda one: repr(one)[:20],
)
def test_what_does_not_fit_is_refused_and_not_guessed(data: object, as_type: object) -> None:
    with pytest.raises(CodecError):
        decode(data, as_type)


def test_the_order_in_which_a_union_names_its_types_means_nothing() -> None:
    for as_type in (int | float, float | int):
        for number in (1, 1.5):
            assert type(decode(number, as_type)) is type(number)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
@settings(max_examples=50)
def test_any_json_is_an_event_or_refused(data: object) -> None:
    for event_type in (*EVENT_TYPES, typing.get_args(ExitStatus)[0]):
        try:
            decode(data, event_type)
        except CodecError:
            continue
        raise AssertionError(f"{data!r} passed for a {event_type.__name__}")


def test_types_that_were_got_ready_have_nothing_left_to_look_up() -> None:
    script = """
from typing import get_args
from faultrun.journal import codec
from faultrun.model.actions import Action, RequestGasp
from faultrun.model.events import Event
codec.get_ready(Event, Action)
looked_up = [found.cache_info().misses for found in (codec._decoder, codec._encoder, codec._hints)]
from support.stories.story import Story, checkpoint
story = Story(2).starts().chose(checkpoint(5, "ckpt")).killed(1)
for event, step in story.steps:
    assert codec.decode(codec.encode(event), Event) == event
    for action in step.actions:
        assert codec.decode(codec.encode(action), Action) == action
assert looked_up == [found.cache_info().misses for found in (codec._decoder, codec._encoder, codec._hints)]
"""
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_only_values_are_written() -> None:
    with pytest.raises(TypeError):
        encode(object())


def test_a_whole_run_spec_survives_because_run_json_holds_it() -> None:
    spec = a_spec("python", "train.py", workers=4)
    assert decode(through_json(encode(spec)), RunSpec) == spec


def _with_unknown_keys(data: Any) -> Any:
    if isinstance(data, dict):
        return {"from_the_future": {"is": "Unknown"}, **{k: _with_unknown_keys(v) for k, v in data.items()}}
    return [_with_unknown_keys(item) for item in data] if isinstance(data, list) else data


def adopted() -> Plan:
    return Plan(
        incarnation=0, topology=topology(1), reason=Reason.FIRST, point=None, start_at_s=0.0, ledger=Ledger()
    )


def _plainest(event_type: type) -> Any:
    """One event whose optional fields have their defaults."""
    required = {
        field.name: _PLAIN[field.name]
        for field in dataclasses.fields(event_type)
        if field.default is dataclasses.MISSING
    }
    return event_type(**required)


_PLAIN: dict[str, Any] = {
    "seen": SavesSeen(),
    "host_bytes": 0,
    "slots": (), "nodes": (),
    "began": Began.UNKNOWN,
    "at_s": 1.5, "incarnation": 0, "node": "n", "boot": "b", "pid": 1, "rank": 0, "errno": 2, "name": "x",
    "why": "so", "point": None, "refused": (), "plan": adopted(), "file": "f", "key": "k", "before": "",
    "after": "a", "master_port": 1, "master_addr": "a", "exit_code": 0, "ranks": (0,),
    "status": Exited(code=1), "steps": (), "step": 1, "source": StopSource.SIGTERM,
    "deadline": Deadline(at_s=2.0), "window_s": 12.0,
    "number": 1, "meeting_port": 1, "what": "persistent memory fault in 0.weight",
    "took_s": 0.5, "path": "p", "size_bytes": 1, "whole": True, "timer": Timer.GRACE, "stragglers": (),
    "swept": 0, "notes": (), "dead": (1,), "notice": ResetNotice(),
    "at_once": 2, "state": StandbyPhase.READY, "doing": WorkPhase.SAVING, "stance": Activity.DEAD,
    "silent_s": 1.5, "limit_s": 1.0, "acts_s": 300.0, "paused_s": 4.0, "longest_s": 4.0, "warned": True,
    "suspicion": Suspicion(front=(0, 1), behind=(1,), silent_s=1.5, limit_s=1.0),
}  # fmt: skip
"""A value for every required field of every event; a new field is missed here and must be added."""
