"""Readings as a JSON record (every sample, for plots and re-reading) and as a Markdown page for people."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.benchmark import Benchmark, Metric, Unit, Verdict
from benchmarks.harness.series import Readings, Series

_NOTHING = "-"
_VERDICTS = {True: "kept", False: "**not kept**", None: "not measured"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Where and how the numbers came about; ``loads`` are the machine's load averages before and after.

    ``remarks`` are sentences of whoever measured: what the numbers do not tell of this one time.
    """

    machine: Mapping[str, str]
    loads: tuple[str, str]
    rounds: int
    cases: Sequence[str]
    remarks: Sequence[str] = ()


def write(folder: Path, benchmark: Benchmark, readings: Readings, around: Circumstances) -> Path:
    """Write ``<name>.json`` and ``<name>.md``; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    verdicts = [(promise.text, promise.verdict(readings)) for promise in benchmark.promises]
    record = _record(benchmark, readings, around, verdicts)
    (folder / f"{benchmark.name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    page = folder / f"{benchmark.name}.md"
    page.write_text(_page(benchmark, readings, around, verdicts), encoding="utf-8")
    write_promises(folder)
    return page


def write_promises(folder: Path) -> None:
    """``promises.md``: one row for each promise of each benchmark whose record lies in ``folder``."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for row in record["promises"]:
            proof = f"[{record['name']}]({record['name']}.md)"
            rows.append(f"| {row['text']} | {row['measured']} | {_VERDICTS[row['kept']]} | {proof} |")
    lines = ["# The promises about performance", "", "| promise | measured | verdict | proof |"]
    lines += ["|---|---|---|---|", *rows, ""]
    (folder / "promises.md").write_text("\n".join(lines), encoding="utf-8")


def shown(series: Series, unit: Unit) -> str:
    """``median [least-most] n=count``; ``4 of 7`` for successes."""
    if not series.values:
        return _NOTHING
    if unit is Unit.SUCCESSES:
        return f"{sum(series.values):.0f} of {len(series)}"
    middle = number(series.median, unit)
    if len(series) == 1:
        return f"{middle} {unit.value}".rstrip() + ", n=1"
    spread = f"[{number(series.least, unit)}–{number(series.most, unit)}]"  # noqa: RUF001  a range
    return f"{middle} {unit.value}".rstrip() + f" {spread} n={len(series)}"


def number(value: float, unit: Unit) -> str:
    """A number with as many digits as somebody reads."""
    scaled = value * {Unit.MILLISECONDS: 1e3, Unit.PERCENT: 1e2}.get(unit, 1.0)
    if unit is Unit.COUNT or scaled >= 100:
        return f"{scaled:.0f}"
    return f"{scaled:.1f}" if scaled >= 10 else f"{scaled:.2f}"


def _record(
    benchmark: Benchmark, readings: Readings, around: Circumstances, verdicts: Sequence[tuple[str, Verdict]]
) -> dict[str, Any]:
    return {
        "name": benchmark.name,
        "title": benchmark.title,
        "machine": dict(around.machine),
        "load_before_and_after": list(around.loads),
        "rounds": around.rounds,
        "remarks": list(around.remarks),
        "contenders": list(benchmark.contenders),
        "cases": list(around.cases),
        "metrics": [{"key": m.key, "label": m.label, "unit": m.unit.value} for m in benchmark.metrics],
        "samples": [
            {"case": case, "contender": contender, "metric": metric, "values": list(series.values)}
            for (case, contender, metric), series in readings.samples.items()
        ],
        "failures": [asdict(failure) for failure in readings.failures],
        "missing": dict(readings.missing),
        "promises": [
            {"text": text, "kept": verdict.kept, "measured": verdict.measured} for text, verdict in verdicts
        ],
    }


def _page(
    benchmark: Benchmark, readings: Readings, around: Circumstances, verdicts: Sequence[tuple[str, Verdict]]
) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in around.machine.items())
    lines = [
        f"# {benchmark.title}",
        "",
        benchmark.method,
        "",
        f"Machine: {machine}; load average {around.loads[0]} before and {around.loads[1]} after.",
        *around.remarks,
        f"Rounds: {around.rounds}, contenders interleaved. Median [least–most], how many samples; "  # noqa: RUF001
        f"× is the median as a multiple of {benchmark.contenders[0]}'s.",  # noqa: RUF001  a multiple
        "",
        *_table(benchmark, readings, around.cases),
        "",
    ]
    if verdicts:
        lines += ["| promise | measured | verdict |", "|---|---|---|"]
        lines += [f"| {text} | {v.measured} | {_VERDICTS[v.kept]} |" for text, v in verdicts]
        lines.append("")
    lines += [f"* without {contender}: {why}" for contender, why in readings.missing.items()]
    lines += _failures(readings)
    lines.append(f"Again: `python -m benchmarks {benchmark.name} --rounds {around.rounds}`")
    return "\n".join(lines) + "\n"


def _table(benchmark: Benchmark, readings: Readings, cases: Sequence[str]) -> list[str]:
    contenders = [name for name in benchmark.contenders if name not in readings.missing]
    lines = [f"| case | | {' | '.join(contenders)} |", f"|---|---|{'---|' * len(contenders)}"]
    for case in cases:
        for metric in benchmark.metrics:
            cells = [_cell(readings, benchmark, case, contender, metric) for contender in contenders]
            if any(cell != _NOTHING for cell in cells):
                lines.append(f"| {case} | {metric.label} | {' | '.join(cells)} |")
    return lines


def _cell(readings: Readings, benchmark: Benchmark, case: str, contender: str, metric: Metric) -> str:
    series = readings.of(case, contender, metric.key)
    ours = readings.of(case, benchmark.contenders[0], metric.key)
    text = shown(series, metric.unit)
    comparable = series.values and ours.values and metric.unit not in (Unit.SUCCESSES, Unit.COUNT)
    if contender == benchmark.contenders[0] or not comparable or ours.median <= 0:
        return text
    return f"{text} ({number(series.median / ours.median, Unit.SECONDS)}×)"  # noqa: RUF001  a multiple


def _failures(readings: Readings) -> list[str]:
    counts: dict[str, int] = {}
    for failure in readings.failures:
        line = f"* not measured: {failure.contender}, {failure.case}: {failure.why}"
        counts[line] = counts.get(line, 0) + 1
    lines = [line if count == 1 else f"{line} ({count} times)" for line, count in counts.items()]
    return [*lines, ""] if lines else []
