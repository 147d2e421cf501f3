"""OpenTelemetry: each recovery as a trace, sent to a collector by OTLP over HTTP. A sidecar.

The SDK and its exporter are asked for nothing else: no instrumentation, no thread, no global provider. What a
collector does not take is sent again, later and later; what goes wrong is a line in ``traces.log``.
"""

import logging
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from faultrun.journal.lines import JournalLine
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.sidecar import Work
from faultrun.observe.trace import RecoveryTrace, recovery_trace

_LOG = "traces.log"
_TIMEOUT_S = 3.0
_AGAIN_S, _AGAIN_AT_MOST_S = 10.0, 300.0
_MOST_WAITING = 2000


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
            found = recovery_trace(account, fault)
            if found is not None:
                self._record(found)
        self._told = over

    def _record(self, one: RecoveryTrace) -> None:
        root = self._tracer.start_span("recovery", start_time=one.begin_ns, attributes=dict(one.about))
        for part in one.parts:
            context = set_span_in_context(root)
            span = self._tracer.start_span(part.name, context=context, start_time=part.begin_ns)
            span.end(end_time=part.end_ns)
        if not one.recovered:
            root.set_status(Status(StatusCode.ERROR, one.end))
        root.end(end_time=one.end_ns)

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
