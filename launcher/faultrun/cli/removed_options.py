"""Options whose feature is gone: a command that still has one starts nothing, and is told what to use."""

from collections.abc import Mapping
from typing import TypeVar

from faultrun.errors import FaultrunError

_E = TypeVar("_E", bound=FaultrunError)

REMOVED_OPTIONS: Mapping[str, tuple[str, str]] = {
    "tensorboard": (
        "faultrun writes no scalars for TensorBoard",
        "--on_event=CMD (a script is in `faultrun docs metrics`), or --metrics_port=PORT for Prometheus",
    ),
    "otlp_endpoint": (
        "faultrun sends no traces to OpenTelemetry",
        "--on_event=CMD (a script is in `faultrun docs metrics`), or --metrics_port=PORT for Prometheus",
    ),
    "report --interactive": (
        "the report draws its timeline itself, in report.html, without scripts",
        "faultrun report, without it; report.json has every number for a tool that zooms",
    ),
}
"""Why, and what to try, by the option's name; before an option of any verb but ``run`` stands its verb."""


def removed_option(name: str, where: str, kind: type[_E]) -> _E | None:
    """The error for an option of the table, which ``where`` names as it was written; None for any other."""
    if name not in REMOVED_OPTIONS:
        return None
    because, hint = REMOVED_OPTIONS[name]
    return kind(f"{where} is no option any more", because=because, hint=hint)
