"""OpenTelemetry: each recovery as a trace of its parts, sent to a collector by OTLP over HTTP. A sidecar.

The SDK and its exporter are asked for nothing else: no instrumentation, no thread, no global provider. What a
collector does not take is sent again, later and later; what goes wrong is a line in ``traces.log``.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from faultrun.journal.lines import JournalLine, moment
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.account.records import Account, IncidentRecord
from faultrun.observe.account.timeline import Spending
from faultrun.observe.outlets.sidecar import Work

_LOG = "traces.log"
_TIMEOUT_S = 3.0
_AGAIN_S, _AGAIN_AT_MOST_S = 10.0, 300.0
_MOST_WAITING = 2000
_NO_PART = frozenset({Spending.TRAINING, Spending.RECOMPUTE})
_NS = 1_000_000_000
_ABOUT = ("incarnation", "rank", "cause", "what", "step", "resumed_step", "lost_steps", "end")


class Tracer(Work):
    """``url`` is where a collector takes traces; ``about`` describes the run.

    What a supervisor before line ``begins_at`` sent is not sent again. The variables ``OTEL_*`` mean what
    they mean everywhere.
    """

    interval_s = 1.0

    def __init__(self, log_dir: Path, url: str, about: Mapping[str, str], begins_at: int) -> None:
        self._begins_at = begins_at
        self._accountant = Accountant()
        self._told = 0
        self._waiting: deque[ReadableSpan] = deque(maxlen=_MOST_WAITING)
        self._pause_s = _AGAIN_S
        self._not_before_s = 0.0
        logging.basicConfig(filename=log_dir / _LOG, format="%(asctime)s %(message)s")
        resource = Resource({"service.name": "faultrun", **about}).merge(OTELResourceDetector().detect())
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(_Collected(self._waiting))
        self._tracer = provider.get_tracer("faultrun")
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=_TIMEOUT_S)

    def take(self, line: JournalLine) -> None:
        """See ``sidecar.Work``."""
        self._accountant.take(line)
        if line.seq < self._begins_at:
            self._told = self._accountant.faults_over

    def tick(self) -> None:
        """See ``sidecar.Work``."""
        self._record_new()
        if self._waiting and time.monotonic() >= self._not_before_s:
            self._send()

    def end(self) -> None:
        """See ``sidecar.Work``: one more attempt."""
        self._record_new()
        if self._waiting:
            self._send()

    def _record_new(self) -> None:
        """Not with the line that ended the fault: how long its parts took is in the next."""
        over = self._accountant.faults_over
        if over == self._told:
            return
        account = self._accountant.account()
        for fault in account.faults[self._told : over]:
            self._record(fault, trace_parts(account, fault))
        self._told = over

    def _record(self, fault: IncidentRecord, parts: "list[TracePart]") -> None:
        if not parts:
            return
        whole, *parts = parts
        root = self._tracer.start_span(whole.name, start_time=whole.begin_ns, attributes=about(fault))
        for part in parts:
            context = set_span_in_context(root)
            span = self._tracer.start_span(part.name, context=context, start_time=part.begin_ns)
            span.end(end_time=part.end_ns)
        if not fault.end.endswith("again"):
            root.set_status(Status(StatusCode.ERROR, fault.end))
        root.end(end_time=whole.end_ns)

    def _send(self) -> None:
        if self._exporter.export(tuple(self._waiting)) is SpanExportResult.SUCCESS:
            self._waiting.clear()
            self._pause_s = _AGAIN_S
            return
        self._not_before_s = time.monotonic() + self._pause_s
        self._pause_s = min(_AGAIN_AT_MOST_S, 2 * self._pause_s)


class _Collected(SpanProcessor):
    """A recovery is sent as a whole, in one request."""

    def __init__(self, waiting: deque[ReadableSpan]) -> None:
        self._waiting = waiting

    def on_end(self, span: ReadableSpan) -> None:
        self._waiting.append(span)


@dataclass(frozen=True, slots=True)
class TracePart:
    """One stretch of a recovery, in nanoseconds since 1970."""

    name: str
    begin_ns: int
    end_ns: int


def trace_parts(account: Account, fault: IncidentRecord) -> list[TracePart]:
    """The recovery from ``fault`` until training went on, or the run ended, and then its parts in order.

    Behind a start come, once more, what it consisted of where that is known. Empty where the journal does not
    say when the run began.
    """
    began = moment(account.began_utc)
    if began is None:
        return []
    zero_ns = int(began.timestamp() * 1000) * (_NS // 1000)
    end_s = fault.at_s + sum(fault.spent.values())

    def part(name: str, begin_s: float, until_s: float) -> TracePart:
        return TracePart(name, zero_ns + int(begin_s * _NS), zero_ns + int(until_s * _NS))

    parts = [
        part(one.kind.value, max(one.begin_s, fault.at_s), min(one.end_s, end_s))
        for one in account.segments
        if one.end_s > fault.at_s and one.begin_s < end_s and one.kind not in _NO_PART
    ]
    if parts and parts[-1].name == Spending.START.value:
        parts += _of_start(parts[-1], fault.timeline)
    return [part("recovery", fault.at_s, end_s), *parts]


def _of_start(start: TracePart, timeline: Mapping[str, float]) -> Iterator[TracePart]:
    """Import, rendezvous and first step, where ranks were heard to meet; they end with the start."""
    if not {"import_s", "rendezvous_s", "first_step_s"} <= set(timeline):
        return
    formed_ns = max(start.begin_ns, start.end_ns - int(timeline["first_step_s"] * _NS))
    met_ns = max(start.begin_ns, formed_ns - int(timeline["rendezvous_s"] * _NS))
    yield TracePart("import", start.begin_ns, met_ns)
    yield TracePart("rendezvous", met_ns, formed_ns)
    yield TracePart("first step", formed_ns, start.end_ns)


def about(fault: IncidentRecord) -> dict[str, str | int]:
    """What is known of a fault, as attributes of its trace."""
    more = {"incident": fault.number, "saves": fault.saved, "checkpoints_refused": fault.refused}
    known = more | {name: getattr(fault, name) for name in _ABOUT}
    return {f"faultrun.{name}": value for name, value in known.items() if value is not None}
