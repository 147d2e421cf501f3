"""Recoveries as OpenTelemetry traces, taken by a receiver that speaks OTLP over HTTP."""

from pathlib import Path

from faultrun.observe.tracer import Tracer
from support.account_stories import decoded, lines_of, one_fault
from support.otlp import attributes, spans
from support.receiver import Receiver, receiving

TRACES = "/v1/traces"
LINES = decoded([{"seq": number, **line} for number, line in enumerate(lines_of(one_fault(resume_at=61)))])


def tracer(receiver: Receiver, folder: Path, *, begins_at: int = 0) -> Tracer:
    made = Tracer(folder, receiver.address + TRACES, {"faultrun.run_id": "r"}, begins_at)
    for line in LINES:
        made.take(line)
    return made


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
    about = attributes(body)
    assert (about["service.name"], about["faultrun.run_id"]) == ("faultrun", "r")


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


def test_what_a_supervisor_before_has_sent_is_not_sent_again(tmp_path: Path) -> None:
    with receiving() as receiver:
        tracer(receiver, tmp_path, begins_at=len(LINES)).end()
        assert receiver.bodies == []
