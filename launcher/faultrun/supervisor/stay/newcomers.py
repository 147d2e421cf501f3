"""Newcomers take the places of the dead beside survivors: where one waits, and where both meet."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultrun.frameworks.environment import ERROR_VARIABLE, WorkerLaunchSpec, error_file
from faultrun.model.actions import FreeSurvivors, ParkStandby, Spawn
from faultrun.model.exits import WorkerExitCodes
from faultrun.model.observed.rejoin import SurvivorsFreed
from faultrun.model.observed.rendezvous_store import TCP, meeting_secret
from faultrun.model.plan import Plan
from faultrun.model.spec.run_spec import RunSpec
from faultrun.model.wire import PROGRESS_VARIABLE
from faultrun.platforms.ports import port_in
from faultrun.supervisor.control import Control
from faultrun.supervisor.launch.environment import SupervisorEnv
from faultrun.supervisor.launch.launch import Launches
from faultrun.supervisor.launch.progress_page import ProgressPage
from faultrun.supervisor.reactor import Reactor
from faultrun.supervisor.standby.pool import Standbys
from faultrun.workers.launch import Launch
from faultrun.workers.logs.log_files import LogFiles

if TYPE_CHECKING:
    from faultrun.supervisor.stay.rendezvous_store import RendezvousStore

_SHM = Path("/dev/shm")


class Newcomers:
    """The newcomers of one node. Main thread only; starts no process and ends none."""

    def __init__(
        self,
        spec: RunSpec,
        env: SupervisorEnv,
        reactor: Reactor,
        control: Control,
        standbys: Standbys,
        launches: Launches,
    ) -> None:
        self._spec = spec
        self._rejoin_s = spec.supervision.windows.rejoin_s
        self._env, self._control, self._reactor = env, control, reactor
        self._standbys, self._launches = standbys, launches
        self._model: tuple[WorkerLaunchSpec, LogFiles] | None = None
        self._stores = _stores(env.log_dir)
        self._place: RendezvousStore | None = None

    def are_like(self, shared: WorkerLaunchSpec, files: LogFiles) -> None:
        """The newcomers of plans to come are started as these workers were."""
        self._model = shared, files

    def park(self, order: ParkStandby) -> None:
        """Have a standby run the program as its rank up to its first step, and wait there for survivors."""
        if self._model is not None:
            self._standbys.park(order, self._parked_launch(*self._model, order), self._env.fork_server)

    def free_survivors(self, order: FreeSurvivors) -> None:
        """Free the survivors from the group that has lost a rank; they wait until they ``meet`` newcomers.

        Of several nodes each listens from now on, and says where: which one all meet at is in their plan.
        """
        self._control.free_survivors(order.ranks, self._rejoin_s, at_boundary=order.at_boundary)
        if self._spec.slots < self._spec.topology.world_size:
            self._reactor.post(self._listens(order.incarnation))

    def _listens(self, incarnation: int) -> SurvivorsFreed:
        from faultrun.supervisor.stay.rendezvous_store import RendezvousStore  # noqa: PLC0415  of several nodes only

        self.drop_store()
        now_s, why = self._reactor.now(), ""
        try:
            world = self._spec.topology.world_size
            host = self._spec.rendezvous.master_addr
            port = port_in(host, self._spec.rendezvous.ports)
            self._place = RendezvousStore(self._reactor, host, world, port=port)
        except OSError as error:
            why = f"this node cannot listen for survivors of the others: {error.strerror}"
        port = 0 if self._place is None else self._place.port
        return SurvivorsFreed(at_s=now_s, incarnation=incarnation, meeting_port=port, why=why)

    def meet(self, order: Spawn, files: LogFiles, page: ProgressPage) -> None:
        """Have survivors and newcomers meet over what none of them keeps open for the others.

        Those of a training that recovers by itself find each other.
        """
        if self._spec.supervision.policy.exit_codes is WorkerExitCodes.TORCHFT:
            return
        plan = order.plan
        store = self._over_nodes(plan) if plan.meets_at else self._over_a_file(plan)
        told = {"missing": sorted(plan.missing), "finished": sorted(order.finished)}
        others = {word: ranks for word, ranks in told.items() if ranks}
        for slot, rank in enumerate(page.ranks):
            if rank in plan.missing:
                continue
            join: dict[str, Any] = {
                **store,
                "page": f"{page.path.absolute()}:{slot}",
                "timeout_s": self._rejoin_s,
                "newcomers": sorted(plan.newcomers),  # other nodes' too
                **others,
            }
            parked = rank in order.standbys and self._standbys.is_parked(rank)
            if rank in order.ranks:
                if not parked:
                    self._control.forget_newcomer(rank)  # one that was dismissed, and has not hung up yet
                join |= self._outputs(files, rank, slot)
            self._control.send_join(rank, join, parked=parked)

    def _over_a_file(self, plan: Plan) -> dict[str, str]:
        self.drop_store()
        store = self._stores.with_name(f"{self._stores.name}{self._env.boot}-{plan.incarnation}")
        store.touch(0o600)
        return {"store": str(store.absolute())}

    def _over_nodes(self, plan: Plan) -> dict[str, str]:
        secret = meeting_secret(self._spec.run_id, plan)
        if self._place is not None:
            self._place.opens(secret)
        return {"store": f"{TCP}{plan.meets_at}", "secret": secret}

    def drop_store(self) -> None:
        """End what they met over, and any file that a killed supervisor of this log_dir has left."""
        if self._place is not None:
            self._place.close()
            self._place = None
        for store in self._stores.parent.glob(f"{self._stores.name}*"):
            store.unlink(missing_ok=True)

    def _parked_launch(self, shared: WorkerLaunchSpec, files: LogFiles, order: ParkStandby) -> Launch:
        """Make the launch of a newcomer of a plan to come; before that it writes to a log of its own.

        For an empty place it is of the incarnation that it comes to: what the dead left is swept meanwhile.
        """
        now, rank = shared.plan, order.rank
        others = frozenset(range(now.topology.world_size)) - {rank}  # other nodes' too: here it may be alone
        life = order.incarnation if order.heals else now.incarnation
        plan = replace(now, incarnation=life, point=None, kept=others, since=now.started)
        launch = self._launches.launch(replace(shared, plan=plan), files, rank)
        log = self._standbys.log(rank)
        env = {**launch.env, ERROR_VARIABLE: str(log.with_suffix(".error.json").absolute())}
        del env[PROGRESS_VARIABLE]  # the slot is another's, who lives
        return replace(launch, env=env, stdout=log, stderr=None)

    def _outputs(self, files: LogFiles, rank: int, local_rank: int) -> dict[str, str]:
        """Where a newcomer writes that has run so far without a rank."""
        errors = self._env.streams.errors(files, rank, local_rank) or files.worker(rank)
        return {
            "stdout": str(files.worker(rank).absolute()),
            "stderr": str(errors.absolute()),
            "error_file": error_file(str(files.folder.absolute()), rank),
        }


def _stores(log_dir: Path) -> Path:
    """What all their names begin with, where a file that all workers read and append to costs least.

    One supervisor at a time has this log_dir, whatever paths lead there.
    """
    it = log_dir.stat()
    folder = _SHM if os.access(_SHM, os.W_OK | os.X_OK) else log_dir
    return folder / f"faultrun-{it.st_dev:x}-{it.st_ino:x}-"
