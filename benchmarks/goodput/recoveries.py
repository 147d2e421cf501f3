"""Recoveries as they were measured here: from the kill to the first new step, every sample."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.benchmark import OURS
from benchmarks.harness.launchers import WARM

COLD, STANDBYS, STAY, SPARE = "faultrun, cold", "faultrun, standbys", "faultrun, survivors stay", "spare"
TORCHRUN, FT_LAUNCHER, LOOP = "torchrun", "ft_launcher", "shell loop"

_FIRST_STEP, _BEYOND_LEASE = "first_step", "beyond_lease"
_ONE_NODE = {
    COLD: OURS,
    STANDBYS: WARM,
    TORCHRUN: "torchrun, unshared store",
    FT_LAUNCHER: "ft_launcher",
    LOOP: "shell loop",
}
"""The contenders of ``warm.json``; torchrun in the form in which every first restart works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Samples in ascending order, and where they come from."""

    samples_s: tuple[float, ...]
    source: str

    def drawn(self, draw: float) -> float:
        """The sample at that place between the quickest (0) and the slowest (1)."""
        return self.samples_s[min(len(self.samples_s) - 1, int(draw * len(self.samples_s)))]


Recoveries = Mapping[str, Measured]


def read(results: Path) -> Recoveries:
    """All that the folder of results has. FileNotFoundError without ``warm.json``.

    Without ``stay.json`` survivors that stay take as long as standbys; without ``several_nodes.json``
    a spare takes as long as a cold start.
    """
    warm = _record(results / "warm.json")
    found = {name: _of(warm, contender, _FIRST_STEP, "warm.json") for name, contender in _ONE_NODE.items()}
    found[STAY] = _staying(results) or found[STANDBYS]
    found[SPARE] = _spare(results) or found[COLD]
    return found


def over_nodes(results: Path) -> Recoveries:
    """With what was measured over 3 nodes of a machine under load; ft_launcher meets as torchrun does."""
    found = dict(read(results))
    path = results / "several_nodes.json"
    if path.exists():
        record = _record(path)
        for name, contender in ((COLD, OURS), (STANDBYS, WARM), (TORCHRUN, "torchrun")):
            found[name] = _of(record, contender, _FIRST_STEP, "several_nodes.json", case="3 nodes")
        found[FT_LAUNCHER] = found[TORCHRUN]
        found[STAY] = found[STAY] if found[STAY].source == "stay.json" else found[STANDBYS]
    return found


def _staying(results: Path) -> Measured | None:
    """Whichever contender of ``stay.json`` names survivors; else its first of ours."""
    path = results / "stay.json"
    if not path.exists():
        return None
    record = _record(path)
    ours = [name for name in record["contenders"] if name.startswith(OURS)]
    staying = [name for name in ours if "stay" in name or "surviv" in name] or ours
    return _of(record, staying[0], _FIRST_STEP, "stay.json") if staying else None


def _spare(results: Path) -> Measured | None:
    path = results / "several_nodes.json"
    if not path.exists():
        return None
    record = _record(path)
    samples = [
        value for one in record["samples"] if one["metric"] == _BEYOND_LEASE for value in one["values"]
    ]
    return _measured(samples, "several_nodes.json") if samples else None


def _of(record: Mapping[str, Any], contender: str, metric: str, source: str, *, case: str = "") -> Measured:
    samples = [
        value
        for one in record["samples"]
        if one["contender"] == contender and one["metric"] == metric and one["case"].startswith(case)
        for value in one["values"]
    ]
    if not samples:
        raise ValueError(f"{source} has no {metric} of {contender}")
    return _measured(samples, source)


def _measured(samples: list[float], source: str) -> Measured:
    return Measured(samples_s=tuple(sorted(samples)), source=source)


def _record(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
