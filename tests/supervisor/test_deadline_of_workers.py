"""A rank that was killed because this node's time was over is not said to have failed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faultrun.model.agreement import MembershipLost
from faultrun.model.events import IncarnationStarted, WorkerExit
from faultrun.model.exits import Signaled
from faultrun.workers.deadline import NEVER, boottime
from support.nodes import Asked, RealNode, Wanted, spawn_of

KILLED = Signaled(signum=9)


@contextmanager
def running(folder: Path) -> Iterator[tuple[RealNode, Asked]]:
    node = RealNode(Wanted(workers=1), folder)
    try:
        asked = Asked(node)
        asked.perform(spawn_of(Wanted(workers=1)))
        asked.until(IncarnationStarted)
        node.are_up(0)
        yield node, asked
    finally:
        node.close()


@pytest.mark.parametrize(
    ("left_s", "told"), [(0.0, [MembershipLost, WorkerExit]), (60.0, [WorkerExit]), (NEVER, [WorkerExit])]
)
def test_a_kill_behind_the_deadline_is_the_node_s_loss_and_no_fault_of_the_rank(
    tmp_path: Path, left_s: float, told: list[type]
) -> None:
    with running(tmp_path) as (node, asked):
        node.deadline.at_s = boottime() + left_s
        node.end(0, KILLED)
        asked.until(WorkerExit)
        assert [type(event) for event in asked.events if type(event) in (MembershipLost, WorkerExit)] == told
