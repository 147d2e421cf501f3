"""Whether a training that shrank and grew was what it would have been undisturbed (``faults/shrinks.py``)."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest


def _steps_of(folder: Path) -> dict[int, dict[str, Any]]:
    """Of each step what all ranks of the last incarnation that did it saw: samples, and their mean loss."""
    lines: dict[int, dict[int, list[dict[str, Any]]]] = {}
    for file in folder.glob("seen_*.jsonl"):
        life = int(file.name.split("_")[1])
        for line in map(json.loads, file.read_text().splitlines()):
            lines.setdefault(line["step"], {}).setdefault(life, []).append(line)
    done = {step: lives[max(lives)] for step, lives in lines.items()}
    return {
        step: {
            "samples": sorted(sample for line in ranks for sample in line["samples"]),
            "loss": sum(line["loss"] for line in ranks) / len(ranks),
            "ranks": len(ranks),
        }
        for step, ranks in done.items()
    }


def is_the_same_training(folder: Path, sizes: Collection[int] = (2, 3)) -> None:
    """Each step had its samples, and its loss within rounding; worlds of each of ``sizes`` did some."""
    alone = (folder / "alone.jsonl").read_text()
    wanted = {line["step"]: line for line in map(json.loads, alone.splitlines())}
    done = _steps_of(folder)
    assert sorted(done) == sorted(wanted)
    assert {step["ranks"] for step in done.values()} == set(sizes)
    for step, line in done.items():
        assert line["samples"] == sorted(wanted[step]["samples"])
        assert line["loss"] == pytest.approx(wanted[step]["loss"], rel=1e-4, abs=1e-6)
