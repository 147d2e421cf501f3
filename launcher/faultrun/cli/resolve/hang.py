"""What counts as a hang: ``--hang_timeout``, ``--hang_factor``, ``--hang_limits`` and ``--hang_signal``."""

from dataclasses import replace

from faultrun.cli.options.settings import Settings
from faultrun.cli.options.values import DAY_S, seconds
from faultrun.model.hang import HangPolicy, HangSignal, Span

_SHORTEST_S = 0.1
_WHATS = ("startup", "compile", "step", "checkpoint", "evaluation")


def resolve_hang(settings: Settings) -> HangPolicy:
    """Return the policy; a time-out that is given is the limit of a step, and of silence for ``log``.

    What the user gave is acted on; all else is only a measure of what is unusual.
    """
    policy = HangPolicy()
    timeout = settings.read("hang_timeout", hang_timeout)
    factor = settings.read("hang_factor", hang_factor)
    limits = settings.read("hang_limits", hang_limits) or {}
    signal = settings.read("hang_signal", hang_signal) or policy.signal
    if timeout == "off":
        return replace(policy, enabled=False)
    step, quiet_s = policy.step, policy.quiet_s
    given = set(limits)
    if isinstance(timeout, float):
        step, quiet_s = Span(low_s=timeout, high_s=timeout), timeout
        given |= {"step", "quiet"}
    step = limits.get("step", step)
    return HangPolicy(
        signal=signal,
        factor=policy.factor if factor is None else factor,
        startup_s=_longest(limits.get("startup"), max(policy.startup_s, step.low_s)),
        speaks="startup" in limits,
        compile_s=_longest(limits.get("compile"), max(policy.compile_s, step.low_s)),
        step=step,
        checkpoint=limits.get("checkpoint", policy.checkpoint),
        evaluation=limits.get("evaluation", policy.evaluation),
        quiet_s=quiet_s,
        given=frozenset(given),
    )


def hang_timeout(text: str) -> float | str:
    """A duration in seconds, ``auto`` (once called ``learnt``) or ``off``."""
    word = text.strip().lower()
    return word if word in ("auto", "learnt", "off") else _limit_s(text)


def hang_factor(text: str) -> float:
    """A number above 1: at the usual length itself every second step would be a hang."""
    try:
        factor = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 1 < factor <= 1e6:
        raise ValueError(f"{text} is not between 1 and 1000000")
    return factor


def hang_limits(text: str) -> dict[str, Span]:
    """``checkpoint=10m,step=2s..1h`` by name; one time alone is both bounds."""
    limits: dict[str, Span] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        what, equals, times = part.partition("=")
        what = what.strip()
        if what not in _WHATS or not equals:
            raise ValueError(f"{part!r} is not one of {', '.join(_WHATS)}, '=' and a time")
        low, dots, high = times.partition("..")
        low_s = _limit_s(low)
        high_s = _limit_s(high) if dots else low_s
        if high_s < low_s:
            raise ValueError(f"{low.strip()} is longer than {high.strip()}")
        if dots and what in ("startup", "compile"):
            raise ValueError(f"{what} is not learnt; it takes one time, not two")
        limits[what] = Span(low_s=low_s, high_s=high_s)
    return limits


def hang_signal(text: str) -> HangSignal:
    """``sdk`` or ``log``."""
    try:
        return HangSignal(text.strip().lower())
    except ValueError:
        raise ValueError(f"{text!r} is none of sdk, log") from None


def _limit_s(text: str) -> float:
    limit_s = seconds(7 * DAY_S)(text)
    if limit_s < _SHORTEST_S:
        raise ValueError(
            f"{text.strip()} is shorter than {_SHORTEST_S * 1000:g} ms, and would always be over"
        )
    return limit_s


def _longest(span: Span | None, default_s: float) -> float:
    return default_s if span is None else span.high_s
