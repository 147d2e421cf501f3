"""Recoveries as OpenTelemetry traces, taken by a receiver that speaks OTLP over HTTP."""

from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.observe.account.records import Account
from faultrun.observe.outlets.opentelemetry import Tracer, about, trace_parts
from support.machine.receiver import Receiver, receiving
from support.reporting.otlp import attributes, spans
from support.stories.account_stories import account_of, decoded, lines_of, one_fault

S = 1_000_000_000
TRACES = "/v1/traces"
LINES = decoded([{"seq": number, **line} for number, line in enumerate(lines_of(one_fault(resume_at=61)))])


def tracer(receiver: Receiver, folder: Path, *, begins_at: int = 0) -> Tracer:
    made = Tracer(folder, receiver.address + TRACES, {"faultrun.run_id": "r"}, begins_at)
    for line in LINES:
        made.take(line)
    return made


@pytest.mark.long
def test_a_recovery_is_one_trace_with_a_span_for_each_part(tmp_path: Path) -> None:
    with receiving() as receiver:
        tracer(receiver, tmp_path).tick()
        (body,) = receiver.sent_to(TRACES)
    (root,) = (span for span in spans([body]) if not span.parent_span_id)
    parts = [span for span in spans([body]) if span.parent_span_id]
    assert (root.name, [part.name for part in parts]) == ("recovery", ["drain", "choose", "spawn", "start"])
    assert {part.parent_span_id for part in parts} == {root.span_id}
    assert {span.trace_id for span in spans([body])} == {root.trace_id}
    assert (root.end_time_unix_nano - root.start_time_unix_nano) / 1e9 == 15
    assert {one.key: one.value for one in root.attributes}["faultrun.rank"].int_value == 2
    resource = attributes(body)
    assert (resource["service.name"], resource["faultrun.run_id"]) == ("faultrun", "r")


@pytest.mark.long
def test_what_was_not_taken_is_sent_again_as_it_was(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.status = 400
        traces = tracer(receiver, tmp_path)
        traces.tick()
        traces.tick()  # not yet again
        receiver.status = 200
        traces.end()
        refused, taken = receiver.sent_to(TRACES)
        traces.end()  # nothing is left
        assert len(receiver.sent_to(TRACES)) == 2
    assert spans([refused]) == spans([taken])


@pytest.mark.long
def test_what_a_supervisor_before_has_sent_is_not_sent_again(tmp_path: Path) -> None:
    with receiving() as receiver:
        tracer(receiver, tmp_path, begins_at=len(LINES)).end()
        assert receiver.bodies == []


def the_account() -> Account:
    return account_of(lines_of(one_fault(resume_at=61)))


def test_the_parts_of_a_recovery_follow_one_another_and_fill_it() -> None:
    account = the_account()
    (fault,) = account.faults
    whole, *parts = trace_parts(account, fault)
    assert [part.name for part in parts] == ["drain", "choose", "spawn", "start"]
    assert [(part.end_ns - part.begin_ns) / S for part in parts] == pytest.approx([5, 2, 4, 4])
    assert [part.begin_ns for part in parts] == [whole.begin_ns, *(part.end_ns for part in parts[:-1])]
    assert parts[-1].end_ns == whole.end_ns


def test_a_start_is_told_part_by_part_where_ranks_were_heard_to_meet() -> None:
    account = the_account()
    timeline = {"spawn_s": 3.0, "import_s": 2.5, "rendezvous_s": 0.5, "first_step_s": 1.0}
    whole, *parts = trace_parts(account, replace(account.faults[0], timeline=timeline))
    names, lengths = zip(*((one.name, (one.end_ns - one.begin_ns) / S) for one in parts[3:]), strict=True)
    assert names == ("start", "import", "rendezvous", "first step")
    assert lengths == pytest.approx((4, 2.5, 0.5, 1))
    assert parts[-1].end_ns == whole.end_ns


def test_it_stands_at_its_place_on_the_wall_clock_and_says_what_is_known() -> None:
    account = the_account()
    known = about(account.faults[0])
    assert (
        trace_parts(account, account.faults[0])[0].begin_ns == (1_795_219_200 + 110) * S
    )  # 2026-11-21, and 110 s of the story
    assert known["faultrun.rank"] == 2
    assert known["faultrun.what"] == "killed by SIGKILL"
    assert (known["faultrun.lost_steps"], known["faultrun.saves"]) == (40, 1)
    assert None not in known.values()


def test_a_journal_without_times_of_day_has_no_traces() -> None:
    lines = [{**line, "at_utc": "?"} for line in lines_of(one_fault(resume_at=61))]
    account = account_of(lines)
    assert trace_parts(account, account.faults[0]) == []
