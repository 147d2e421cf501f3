"""OpenTelemetry: each recovery as a trace, sent to a collector by OTLP over HTTP. A sidecar.

The SDK and its exporter are asked for nothing else: no instrumentation, no thread, no global provider. What a
collector does not take is sent again, later and later; what goes wrong is a line in ``traces.log``.
"""

import logging
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultrun.observe.account import Accountant
from faultrun.observe.trace import Recovery, recovery

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

LOG_NAME = "traces.log"
PATIENCE_S = 4.0
"""How long the end of a run waits for the last traces, at most."""

_TIMEOUT_S = 3.0
_AGAIN_S, _AGAIN_AT_MOST_S = 10.0, 300.0
_MOST_WAITING = 2000


class Tracer:
    """Implements ``sidecar.Work``. ``url`` is where a collector takes traces; ``about`` describes the run."""

    interval_s = 1.0

    def __init__(self, log_dir: Path, url: str, about: Mapping[str, str], begins_at: int) -> None:
        self._log_dir = log_dir
        self._url = url
        self._about = dict(about)
        self._begins_at = begins_at
        self._accountant = Accountant()
        self._told = 0
        self._waiting: deque[ReadableSpan] = deque(maxlen=_MOST_WAITING)
        self._provider: TracerProvider | None = None
        self._exporter: SpanExporter | None = None
        self._pause_s = _AGAIN_S
        self._not_before_s = 0.0

    def begin(self, lifeline: int) -> None:
        """See ``sidecar.Work``. The variables ``OTEL_*`` mean what they mean everywhere."""
        del lifeline
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider  # noqa: PLC0415

        waiting = self._waiting

        class Collected(SpanProcessor):
            """A recovery is sent as a whole, in one request."""

            def on_end(self, span: "ReadableSpan") -> None:
                waiting.append(span)

        logging.basicConfig(filename=self._log_dir / LOG_NAME, format="%(asctime)s %(message)s")
        resource = Resource({"service.name": "faultrun", **self._about}).merge(
            OTELResourceDetector().detect()
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(Collected())
        self._exporter = OTLPSpanExporter(endpoint=self._url, timeout=_TIMEOUT_S)

    def take(self, line: Mapping[str, Any]) -> None:
        """See ``sidecar.Work``. What a supervisor before us sent is not sent again."""
        self._accountant.take(line)
        if isinstance(line.get("seq"), int) and line["seq"] < self._begins_at:
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
            found = recovery(account, fault)
            if found is not None:
                self._record(found)
        self._told = over

    def _record(self, one: Recovery) -> None:
        from opentelemetry.trace import Status, StatusCode, set_span_in_context  # noqa: PLC0415

        assert self._provider is not None
        tracer = self._provider.get_tracer("faultrun")
        root = tracer.start_span("recovery", start_time=one.begin_ns, attributes=dict(one.about))
        for part in one.parts:
            context = set_span_in_context(root)
            span = tracer.start_span(part.name, context=context, start_time=part.begin_ns)
            span.end(end_time=part.end_ns)
        if not one.recovered:
            root.set_status(Status(StatusCode.ERROR, one.end))
        root.end(end_time=one.end_ns)

    def _send(self) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415

        assert self._exporter is not None
        batch = tuple(self._waiting)
        if self._exporter.export(batch) is SpanExportResult.SUCCESS:
            self._waiting.clear()
            self._pause_s = _AGAIN_S
            return
        self._not_before_s = time.monotonic() + self._pause_s
        self._pause_s = min(_AGAIN_AT_MOST_S, 2 * self._pause_s)
