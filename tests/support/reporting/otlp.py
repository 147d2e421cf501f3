"""What a collector of traces is sent, by OpenTelemetry's own messages."""

from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def spans(bodies: Iterable[bytes]) -> list[Any]:
    """Every span of these requests."""
    return [
        span
        for body in bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes(body: bytes) -> dict[str, str]:
    """What the first resource of a request says of itself."""
    (resource, *_) = ExportTraceServiceRequest.FromString(body).resource_spans
    return {one.key: one.value.string_value for one in resource.resource.attributes}
