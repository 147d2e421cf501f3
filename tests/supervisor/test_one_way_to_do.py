"""Whoever hears events can only say what it found; whoever does something is reached through the world."""

import ast
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

import faultrun

ROOT = Path(faultrun.__file__).parent
HANDS = {"faultrun.workers.process", "faultrun.workers.standby", "faultrun.supervisor.workers.worker_group"}
"""What starts, signals and ends processes."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("faultrun")


def listeners() -> Iterator[str]:
    """Every module with a class that implements ``EventListener``."""
    for path in (ROOT / package for package in ("supervisor", "observe", "cli")):
        for file in path.rglob("*.py"):
            nodes = ast.walk(ast.parse(file.read_text()))
            tells = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "tell")
            if any([one.arg for one in node.args.args] == ["self", "event", "step"] for node in tells):
                yield ".".join(("faultrun", *file.relative_to(ROOT).with_suffix("").parts))


@pytest.mark.long
def test_no_listener_comes_near_anything_that_acts(graph: grimp.ImportGraph) -> None:
    found = set(listeners()) - {"faultrun.supervisor.interfaces"}
    assert len(found) > 5
    acting = {one: hand for one in found for hand in HANDS if graph.chain_exists(one, hand)}
    assert not acting


def test_the_workers_are_reached_through_the_world_alone(graph: grimp.ImportGraph) -> None:
    """The inspector is its hand, too; ``emergency_window`` is for workers whose loop is broken.

    What a signal means is told to them where the loop is made.
    """
    assert graph.find_modules_that_directly_import("faultrun.supervisor.workers.worker_group") == {
        "faultrun.supervisor.executor",
        "faultrun.supervisor.hangs.inspection",
        "faultrun.supervisor.emergency_window",
        "faultrun.cli.run.composition",
        "faultrun.cli.run.told_by_signals",
    }
    for actor in ("standby.pool", "workers.schedulers", "workers.session_leftovers", "stay.newcomers"):
        assert graph.find_modules_that_directly_import(f"faultrun.supervisor.{actor}") <= {
            "faultrun.supervisor.workers.worker_group",
            "faultrun.supervisor.stay.newcomers",
            "faultrun.supervisor.emergency_window",
            "faultrun.cli.run.composition",
        }
