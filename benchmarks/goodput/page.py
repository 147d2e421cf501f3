"""The record as a page for people, and as the numbers of docs/goodput.md: nothing but differences is new."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

from benchmarks.goodput import words
from benchmarks.goodput.assumptions import Assumptions, shown
from benchmarks.harness.marks import written_between

REPLICATED, SHARDED = "replicated", "sharded"
SPARES = "+ spares over nodes"
_HOUR_S = 3600.0


def page(record: Mapping[str, Any]) -> str:
    """``benchmarks/results/goodput.md``."""
    parts = [
        "# Goodput: what a fault costs a training of 8 to 16,384 devices, simulated",
        words.INTRODUCTION.format(faults=record["faults"], days=f"{record['assumed']['days']:g}"),
        *_results(record),
        *_worth(record),
        *_intervals(record),
        *_hangs(record),
        *_sensitivity(record),
        *_grounds(record),
        words.LIMITS,
        f"Again: `make goodput SEED={record['seed']}`; every assumption is an argument: `make goodput"
        ' ASSUME="--save_s=1s --node=0.25 --results=/tmp/mine"`.',
    ]
    return "\n\n".join(parts) + "\n"


def between_marks(text: str, record: Mapping[str, Any]) -> str:
    """``text`` of docs/goodput.md with the record's tables between its marks. ValueError without marks."""
    return written_between(text, "goodput", _summary(record))


def _summary(record: Mapping[str, Any]) -> str:
    table = _ettr_table(record, REPLICATED, "best")
    return "\n\n".join((table, *_worth(record)[1:2], _best_intervals(record)))


def _results(record: Mapping[str, Any]) -> list[str]:
    every = shown("save_every_s", record["assumed"]["save_every_s"])
    found = ["## ETTR"]
    for layout, title in ((REPLICATED, words.SAME), (SHARDED, words.OWN)):
        found.append(f"### {title}")
        found.append(_ettr_table(record, layout, "best"))
        found.append(f"The same where everybody saves every {every}, and copies as often as assumed:")
        found.append(_ettr_table(record, layout, "usual"))
    found.append(words.SUPPOSED)
    return found


def _ettr_table(record: Mapping[str, Any], layout: str, interval: str) -> str:
    sizes = [str(size) for size in record["sizes"]]
    rows = []
    for name, cells in record["layouts"][layout].items():
        rows.append(
            (
                _named(name),
                *(f"{_percent(cells[size][interval]['ettr'])}" for size in sizes),
            )
        )
        if name == SPARES:
            rows.append(
                (
                    "… of all devices, the spare ones too",
                    *(_paid(record, cells, size, interval) for size in sizes),
                )
            )
    return _table(("devices", *(f"{int(size):,}" for size in sizes)), rows)


def _paid(record: Mapping[str, Any], cells: Mapping[str, Any], size: str, interval: str) -> str:
    about = record["about"][size]
    return _percent(cells[size][interval]["ettr"] * about["nodes"] / (about["nodes"] + about["spare_nodes"]))


def _worth(record: Mapping[str, Any]) -> list[str]:
    sizes = [str(size) for size in record["sizes"]]
    rows = [("periodic saves, every 30 min", *(_periodic(record, size) for size in sizes))]
    rows.append(("their interval: the best one", *(_interval(record, size) for size in sizes)))
    for layout in (REPLICATED, SHARDED):
        ladder = [name for name in record["layouts"][layout] if name.startswith(("faultrun", "+"))]
        for before, name in pairwise(ladder):
            if layout == REPLICATED or name in (
                "+ memory snapshots",
                "+ copies on the next node (supposed)",
                "+ gasp",
            ):
                label = f"{name[2:]}, {layout}"
                rows.append((label, *(_step(record, layout, before, name, size) for size in sizes)))
    head = ("points of ETTR (device-days of a month)", *(f"{int(size):,}" for size in sizes))
    return ["## What each is worth, added to what stands above it", _table(head, rows)]


def _periodic(record: Mapping[str, Any], size: str) -> str:
    none = record["no_saves"][size]["ettr"]
    return _points(record["layouts"][REPLICATED]["shell loop"][size]["usual"]["ettr"] - none, record, size)


def _interval(record: Mapping[str, Any], size: str) -> str:
    cells = record["layouts"][REPLICATED]["shell loop"][size]
    return _points(cells["best"]["ettr"] - cells["usual"]["ettr"], record, size)


def _step(record: Mapping[str, Any], layout: str, before: str, name: str, size: str) -> str:
    rows = record["layouts"][layout]
    return _points(rows[name][size]["best"]["ettr"] - rows[before][size]["best"]["ettr"], record, size)


def _points(difference: float, record: Mapping[str, Any], size: str) -> str:
    days = difference * int(size) * record["assumed"]["days"]
    return f"{100 * difference:+.2f} ({days:+,.{1 if abs(days) < 100 else 0}f})"


def _intervals(record: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            f"{search['policy']}, {search['layout']}",
            f"{one['devices']:,}",
            _time(one["young_s"]),
            _time(one["daly_s"]),
            _time(one["searched_s"]),
            f"{100 * (one['ettr_searched'] - one['ettr_daly']):+.2f}",
        )
        for search in record["searches"]
        for one in search["rows"]
    ]
    head = ("policy", "devices", "Young", "Daly", "searched", "points better than with Daly's")
    checks = [
        (
            f"{one['devices']:,}",
            _time(one["every_s"]),
            _percent(one["formula"]),
            _percent(one["simulated"]),
        )
        for one in record["checks"]
    ]
    return [
        "## The best save interval",
        words.FORMULA,
        _table(head, rows),
        words.CHECKED,
        _table(("devices", "saved every", "Daly's model", "simulated"), checks),
    ]


def _best_intervals(record: Mapping[str, Any]) -> str:
    sizes = [str(size) for size in record["sizes"]]
    chosen = ((REPLICATED, "shell loop"), (REPLICATED, "+ gasp"), (SHARDED, "+ memory snapshots"))
    rows = [
        (
            words.INTERVAL_OF[name],
            *(_time(record["layouts"][layout][name][size]["every_s"]) for size in sizes),
        )
        for layout, name in chosen
    ]
    return _table(("best time between two saves", *(f"{int(size):,}" for size in sizes)), rows)


def _hangs(record: Mapping[str, Any]) -> list[str]:
    assumed = record["assumed"]
    rows = []
    for name, wait_s in (
        ("faultrun", assumed["hang_faultrun_s"]),
        ("torchrun, ft_launcher without heartbeats, a shell loop", assumed["hang_others_s"]),
        ("ft_launcher with its heartbeats of 45 min [5]", 2700.0),
    ):
        hours = (f"{wait_s * size / _HOUR_S:,.1f}" for size in record["sizes"])
        rows.append((name, _time(wait_s), *hours))
    head = ("device-hours of one hang until it is noticed", "", *(f"{size:,}" for size in record["sizes"]))
    return ["## What a hang costs", _table(head, rows), words.HANG]


def _sensitivity(record: Mapping[str, Any]) -> list[str]:
    reinits = record["reinits"]
    found = ["## What it hangs on", "### Re-init", words.REINIT]
    for size, rows in reinits.items():
        if size == "of_s":
            continue
        head = (f"{int(size):,} devices, re-init of", *(_time(one_s) for one_s in reinits["of_s"]))
        found.append(_table(head, ((_named(name), *map(_percent, ettrs)) for name, ettrs in rows.items())))
    found.append(f"### Everything else, one at a time, at {max(record['sizes']):,} devices")
    names = list(record["changes"][0]["ettr"])
    rows_of = ((one["what"], *(_percent(one["ettr"][name]) for name in names)) for one in record["changes"])
    found.append(_table(("", *map(_named, names)), rows_of))
    return found


def _grounds(record: Mapping[str, Any]) -> list[str]:
    known = [
        (
            one.metadata["what"],
            f"`--{one.name}={shown(one.name, record['assumed'][one.name])}`",
            one.metadata["why"],
        )
        for one in fields(Assumptions)
    ]
    measured = (
        (name, f"{one['median_s']:.2f} s", str(one["n"]), f"[{one['source']}]({one['source']})")
        for name, one in record["measured"].items()
    )
    about = (
        (
            f"{int(size):,}",
            _time(one["mtbf_s"]),
            _time(one["reinit_s"]),
            f"{one['spare_nodes']:g}",
            f"{one['months']:,}",
        )
        for size, one in record["about"].items()
    )
    beside = (
        (what, told, ", ".join(f"{name} {_percent(record['published'][size][name])}" for name in names))
        for what, told, size, names in words.BESIDE
    )
    return [
        "## Assumed",
        _table(("", "argument", "why"), known),
        _table(("devices", "time between faults", "re-init", "spares", "months simulated"), about),
        "## Measured here, each sample drawn as often as the others",
        _table(("", "kill → first step", "n", "from"), measured),
        words.STAND_IN if record["measured"]["faultrun, survivors stay"]["source"] != "stay.json" else "",
        "## Beside what others tell",
        _table(("", "told", "here"), beside),
        words.TOLD,
        "## Sources",
        "\n".join(f"{number}. {source}" for number, source in enumerate(words.SOURCES, start=1)),
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _named(name: str) -> str:
    return f"**{name}**" if name.startswith(("faultrun", "+")) else name


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _time(length_s: float) -> str:
    for unit, size in (("d", 86_400), ("h", _HOUR_S), ("min", 60)):
        if length_s >= 1.5 * size or (length_s >= size and unit == "min"):
            return f"{length_s / size:.3g} {unit}"
    return f"{length_s:.3g} s"
