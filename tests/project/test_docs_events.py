"""The scripts of docs/metrics.md for ``--on_event``: each takes the JSON of an event and hands it on."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.machine.processes import PATIENCE_S
from support.machine.receiver import receiving
from support.places import ROOT
from support.reporting.pages import blocks

INCIDENT = {
    "kind": "incident",
    "at_utc": "2026-11-28T07:00:00.250Z",
    "incarnation": 0,
    "number": 1,
    "step": 12,
}
RESTART = {
    "kind": "restart", "at_utc": "2026-11-28T07:00:06.750Z", "incarnation": 1, "resumed_step": 10,
    "after_s": 6.5, "running_after_s": None,
}  # fmt: skip


def told(script: str, to: str, *events: dict[str, Any]) -> None:
    for event in events:
        subprocess.run(
            (sys.executable, "-c", script, to),
            input=json.dumps(event).encode(), timeout=PATIENCE_S, check=True,
        )  # fmt: skip


def script(word: str) -> str:
    (found,) = [text for text in blocks(ROOT / "docs" / "metrics.md", "python") if word in text]
    return found


def test_a_recovery_is_a_span_of_its_length_for_an_opentelemetry_collector() -> None:
    with receiving() as receiver:
        told(script("resourceSpans"), receiver.address, INCIDENT, RESTART)
        (body,) = receiver.sent_to("/v1/traces")
    ((span,),) = (scope["spans"] for one in json.loads(body)["resourceSpans"] for scope in one["scopeSpans"])
    assert span["name"] == "recovery"
    assert int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) == pytest.approx(6.5e9, abs=1e6)
    assert {"key": "faultrun.resumed_step", "value": {"stringValue": "10"}} in span["attributes"]


def test_incidents_and_recoveries_are_scalars_of_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    told(script("tensorboard"), str(tmp_path), INCIDENT, RESTART)
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for name in (b"faultrun/incidents", b"faultrun/recovery_seconds", b"faultrun/incarnation"):
        assert name in written
