"""How a newcomer is started that runs ahead while its rank lives."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faultrun.core.diagnosis.signature_table import ROWS
from faultrun.model.actions import ParkStandby, Spawn
from faultrun.model.spec.output import Logs
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from faultrun.model.wire import PROGRESS_VARIABLE, REJOIN_VARIABLE
from faultrun.supervisor.exit_inspector import ExitInspector
from faultrun.supervisor.launch.environment import SupervisorEnv
from faultrun.supervisor.launch.launch import Launches
from faultrun.supervisor.launch.prepare import WorkerCommand
from faultrun.supervisor.launch.progress_page import ProgressPage
from faultrun.supervisor.stay.newcomers import Newcomers
from faultrun.workers.fork_server import ForkServer
from faultrun.workers.launch import Launch
from faultrun.workers.logs.log_files import LogFiles
from faultrun.workers.logs.streams import Streams
from faultrun.workers.shared_deadline import SharedDeadline
from support.machine.control_desk import Desk, open_desk
from support.stories.specs import a_spec
from support.stories.story import first_plan


@pytest.mark.parametrize(("nodes", "slots"), [(1, 2), (3, 1), (2, 2)], ids=["one", "alone on its", "several"])
def test_who_runs_ahead_knows_that_ranks_live_elsewhere(nodes: int, slots: int, tmp_path: Path) -> None:
    topology = Topology(nodes=tuple(NodeSlots(node=NodeId(f"n{at}"), slots=slots) for at in range(nodes)))
    spec = replace(a_spec("train"), topology=topology, node=topology.nodes[0].node)
    with open_desk(tmp_path) as desk:
        env = _environment(desk, tmp_path)
        launches = Launches(spec, env, desk.control.path)
        plan = replace(first_plan(nodes * slots), topology=topology)
        order = Spawn(plan=plan, ranks=(0,), master_addr="127.0.0.1", master_port=29500)
        files = LogFiles(log_dir=tmp_path, worker_name="worker", incarnation=0)
        page = ProgressPage(tmp_path / "page", tuple(range(slots)))
        parked: list[Launch] = []
        standbys: Any = SimpleNamespace(
            park=lambda order, launch, forks: parked.append(launch),
            log=lambda rank: tmp_path / f"standby_{rank}.log",
        )
        newcomers = Newcomers(spec, env, desk.reactor, desk.control, standbys, launches)
        newcomers.are_like(launches.shared(order, files, page), files)
        newcomers.park(ParkStandby(incarnation=0, rank=0))
        page.close()
    (launch,) = parked
    assert launch.env[REJOIN_VARIABLE] == "1", "else it would meet the others as their rank, which lives"
    assert PROGRESS_VARIABLE not in launch.env


def _environment(desk: Desk, folder: Path) -> SupervisorEnv:
    server = ForkServer()
    server.close()
    return SupervisorEnv(
        environ=os.environ,
        boot=BootId("0011223344556677"),
        python="python",
        log_dir=folder,
        ascend=False,
        command=lambda plan, rank: WorkerCommand(args=(), environ=os.environ),
        exits=ExitInspector(ROWS, desk.reactor.clock),
        streams=Streams(Logs(), folder),
        deadline=SharedDeadline(),
        leave=lambda: None,
        fork_server=server,
    )
