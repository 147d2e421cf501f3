"""The savings of a run in words for people and as data for reports: what was measured, what was assumed."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from faultrun.core.humanize import several, span
from faultrun.journal.logdir import recorded_as
from faultrun.model.spec.assumptions import Assumptions, UsualLauncher
from faultrun.observe.account.fault_chains import GROWN, ORDERED, STILL_OPEN
from faultrun.observe.account.savings import Cost, Savings

_HOUR_S, _MIN_S = 3600.0, 60.0
_NOTHING_S = 0.05


def assumptions_of(record: Mapping[str, Any]) -> Assumptions:
    """What the run was told to assume (``run.json``), with the launcher that is usual for its framework."""
    spec = record.get("spec")
    told = recorded_as(record, Assumptions, "spec", "view", "assume")
    return told.settled(str(spec.get("framework", "")) if isinstance(spec, dict) else "")


def what_it_saved(savings: Savings) -> str:
    """The savings as one sentence; empty for a run that nothing interrupted."""
    if not savings.interruptions:
        so_far = " so far" if set(savings.left_out) == {STILL_OPEN} else ""
        return f"saved nothing{so_far}: {_left_out(savings)}" if savings.left_out else ""
    launcher, device_s = savings.launcher, savings.device_s_launcher
    told = savings.steps_unknown < len(savings.interruptions)
    did, lasting = ("cost", "") if told else ("stopped the run for", "for ")
    if savings.untrained == len(savings.interruptions):
        did, lasting = "left it without workers for", "for "
    cost = f"{several(savings.counted, 'fault')} {did} {span(savings.here.total_s)} here, "
    gain = "saved "
    if launcher is not None and device_s is not None:
        cost += f"{lasting}{span(launcher.total_s)} with {_launcher(savings)}, "
        gain += f"{_gain(savings, launcher, device_s, _launcher(savings))}, "
    assumed = savings.assumptions
    by_hand = f"assumed: {span(assumed.notice_s)} to notice, {span(assumed.restart_s)} to restart"
    cost += f"{lasting}{span(savings.by_hand.total_s)} by hand ({by_hand}; --assume)"
    gain += _gain(savings, savings.by_hand, savings.device_s_by_hand, "a restart by hand")
    missing = f"not counted: {_left_out(savings)}" if savings.left_out else ""
    return "; ".join(filter(None, (f"{cost}: {gain}", _untrained(savings), _steps(savings), missing)))


def savings_document(savings: Savings) -> dict[str, Any]:
    """The savings as JSON-ready data. ``docs/what-it-saved.md`` describes it."""
    return {
        "text": what_it_saved(savings),
        "faults": savings.counted,
        "interruptions": len(savings.interruptions),
        "steps_unknown": savings.steps_unknown,
        "unpaired_s": round(savings.unpaired_s, 3),
        "left_out": dict(savings.left_out),
        "cold_start_s": None if savings.cold_start_s is None else round(savings.cold_start_s, 3),
        "assumptions": {**asdict(savings.assumptions), "launcher": _launcher(savings)},
        "here": _cost(savings.here),
        "by_hand": {**_cost(savings.by_hand), "saved_device_hours": _hours(savings.device_s_by_hand)},
        "launcher": _by_launcher(savings),
    }


def rows(savings: Savings) -> list[dict[str, Any]]:
    """One row an interruption: the faults' numbers, and what it cost or would have cost in seconds."""
    return [
        {
            "faults": list(one.faults),
            "hang": one.hang,
            "devices": one.devices,
            "steps_again": one.steps_again,
            "here": _cost(one.here),
            "by_hand": _cost(one.by_hand),
            "launcher": None if one.launcher is None else _cost(one.launcher),
        }
        for one in savings.interruptions
    ]


def saved_rows(document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Rows of a table from ``savings_document``: here, by hand and, where one restarts, the launcher."""
    named = [("here", document["here"]), ("by hand", document["by_hand"])]
    by = document["launcher"]
    return named if by is None else [*named, (document["assumptions"]["launcher"], by)]


def saved_time(cost: Mapping[str, Any]) -> str:
    """What such a row says was saved; empty for the row of here, and a minus where more was lost."""
    if (hours := cost.get("saved_device_hours")) is None:
        return ""
    sign = "-" if hours < 0 else ""
    return f"{sign}{device_time(abs(hours) * _HOUR_S)}"


def assumed(document: Mapping[str, Any]) -> str:
    """Every assumption in words."""
    told = document["assumptions"]
    devices = "a worker is one device" if told["devices"] is None else several(told["devices"], "device")
    start_s = document["cold_start_s"]
    start = (
        ""
        if start_s is None
        else f"; where a standby took over here, a cold start takes {span(start_s)}, as it did here at best"
    )
    by = document["launcher"]
    launcher = (
        ""
        if by is None
        else f"; {told['launcher']} has new workers {span(told['relaunch_s'])} after a death and notices "
        f"a hang after {span(told['hang_s'])}"
    )
    return (
        f"Assumed (--assume): by hand it takes {span(told['notice_s'])} until a person notices and "
        f"{span(told['restart_s'])} until the workers run again{launcher}{start}; the newest save that "
        f"the script made by itself is resumed from; {devices}."
    )


def device_time(device_s: float) -> str:
    """``3.3 device-hours``, ``54 device-seconds``: two digits, and hours from a tenth on."""
    for name, unit_s, least_s in (("hours", _HOUR_S, 0.0995 * _HOUR_S), ("minutes", _MIN_S, _MIN_S)):
        if device_s >= least_s:
            return f"{_short(device_s / unit_s)} device-{name}"
    return f"{_short(device_s)} device-seconds"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.2g}"


def _gain(savings: Savings, there: Cost, device_s: float, against: str) -> str:
    saved_s = there.total_s - savings.here.total_s
    if saved_s < _NOTHING_S:
        less = f", which costs {span(-saved_s)} less" if saved_s <= -_NOTHING_S else ""
        return f"nothing against {against}{less}"
    return f"{device_time(device_s)} against {against}"


def _launcher(savings: Savings) -> str:
    return (savings.assumptions.launcher or UsualLauncher.NONE).value


def _untrained(savings: Savings) -> str:
    """What is missing where no step was seen behind a fault."""
    unknown, known = savings.untrained, len(savings.interruptions)
    of = "" if unknown == known else f" of {unknown} of {known} interruptions"
    return f"when it trained again{of} is not known, here until workers ran" if unknown else ""


def _steps(savings: Savings) -> str:
    """What is missing where the journal does not tell steps, saves or the length of a step."""
    unknown, known = savings.steps_unknown, len(savings.interruptions)
    if not unknown:
        return ""
    of = "" if unknown == known else f" of {unknown} of {known} interruptions"
    unsaid = "the last save, or how long a step takes"
    here = f", {span(savings.unpaired_s)} here" if savings.unpaired_s >= _NOTHING_S else ""
    return f"what is trained again is left out{of}{here}: the journal does not tell {unsaid}"


def _left_out(savings: Savings) -> str:
    return ", ".join(
        f"{several(count, 'incident' if why in (GROWN, ORDERED) else 'fault')} that {why}"
        for why, count in savings.left_out.items()
    )


def _cost(cost: Cost) -> dict[str, float]:
    return {
        "waiting_s": round(cost.waiting_s, 3),
        "again_s": round(cost.again_s, 3),
        "total_s": round(cost.total_s, 3),
    }


def _by_launcher(savings: Savings) -> dict[str, Any] | None:
    cost, device_s = savings.launcher, savings.device_s_launcher
    if cost is None or device_s is None:
        return None
    return {**_cost(cost), "saved_device_hours": _hours(device_s)}


def _hours(device_s: float) -> float:
    return round(device_s / _HOUR_S, 6)
