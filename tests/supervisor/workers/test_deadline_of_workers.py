"""A rank that was killed because this node's time was over is not said to have failed."""

from pathlib import Path

import pytest

from faultrun.model.events import IncarnationStarted, WorkerExit
from faultrun.model.exits import Signaled
from faultrun.model.observed.agreement import MembershipLost
from faultrun.workers.shared_deadline import boottime
from support.stories.real_and_fake_node import Asked, RealNode, Wanted, spawn_of


@pytest.mark.parametrize("ours", [True, False])
def test_a_kill_by_the_deadman_is_the_nodes_loss_and_no_fault_of_the_rank(tmp_path: Path, ours: bool) -> None:
    node = RealNode(Wanted(workers=1), tmp_path)
    try:
        node.deadline.killed_at_s = boottime()  # ranks of an incarnation before
        asked = Asked(node)
        asked.perform(spawn_of(Wanted(workers=1)))
        asked.until(IncarnationStarted)
        node.are_up(0)
        if ours:
            node.deadline.killed_at_s = boottime()
        node.end(0, Signaled(signum=9))
        asked.until(WorkerExit)
        told = [type(event) for event in asked.events if isinstance(event, MembershipLost | WorkerExit)]
        assert told == [*([MembershipLost] if ours else []), WorkerExit]
    finally:
        node.close()
