"""How long workers may save, and who says so: the user, else the platform that will end us, else 30 s."""

import math
from collections.abc import Mapping

from faultrun.cli.options.settings import Settings
from faultrun.cli.options.values import seconds
from faultrun.model.spec import SignalAnswer, Windows

TERMINATION_VARIABLE = "FAULTRUN_TERMINATION_GRACE_S"
"""``terminationGracePeriodSeconds`` of the pod: Kubernetes does not tell a container, so manifests do."""

_SLURM_END = "SLURM_JOB_END_TIME"
_MARGIN_S = 5.0
_SIGNALS = {"TERM": 15, "INT": 2, "HUP": 1, "USR1": 10, "USR2": 12}


def resolve_windows(settings: Settings, environ: Mapping[str, str]) -> Windows:
    """Return the windows; torchrun's one shutdown time-out stands for both unless one is named."""
    plain = Windows()
    both_s = settings.read("shutdown_timeout", seconds())
    grace_s, stop_s = (settings.read(name, seconds()) for name in ("grace", "stop_grace"))
    source = next((name for name in ("stop_grace", "shutdown_timeout") if name in settings.given), None)
    if source is not None:
        stop, said_by = _first(stop_s, both_s, plain.stop_grace_s), settings.where(source)
    else:
        stop, said_by = _from_platform(environ) or (plain.stop_grace_s, plain.stop_grace_source)
    return Windows(
        grace_s=_first(grace_s, both_s, plain.grace_s),
        stop_grace_s=stop,
        stop_grace_source=said_by,
        stop_by_utc_s=_slurm_end_utc_s(environ),
    )


def _from_platform(environ: Mapping[str, str]) -> tuple[float, str] | None:
    total_s = _number(environ.get(TERMINATION_VARIABLE, ""))
    if total_s is None or total_s <= 0:
        return None
    window_s = max(1.0, total_s - _MARGIN_S)
    return window_s, f"terminationGracePeriodSeconds {total_s:g} less {_MARGIN_S:g} s"


def _slurm_end_utc_s(environ: Mapping[str, str]) -> float | None:
    """When workers must have saved because SLURM ends this job; None outside of SLURM."""
    end_utc_s = _number(environ.get(_SLURM_END, ""))
    return None if end_utc_s is None else end_utc_s - _MARGIN_S


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _first(*lengths_s: float | None) -> float:
    return next(length_s for length_s in lengths_s if length_s is not None)


def signal_answers(text: str) -> tuple[tuple[int, SignalAnswer], ...]:
    """Read ``USR1=save,HUP=ignore``. ValueError for a signal or an answer that does not exist."""
    answers = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, answer = part.partition("=")
        number = _SIGNALS.get(name.strip().upper().removeprefix("SIG"))
        if number is None:
            raise ValueError(f"{name!r} is none of {', '.join(_SIGNALS)}")
        try:
            answers.append((number, SignalAnswer(answer.strip().lower())))
        except ValueError:
            known = ", ".join(one.value for one in SignalAnswer)
            raise ValueError(f"{answer!r} is none of {known}") from None
    return tuple(answers)
