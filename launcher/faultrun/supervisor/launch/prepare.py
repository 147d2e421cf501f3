"""A plan applied to this node: configurations rewritten, arguments made, devices and a port chosen."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from faultrun.configs.argv import pointed, resume_args
from faultrun.core import template
from faultrun.errors import FaultrunError, NoWholeCheckpoint, UsageError
from faultrun.files import DISK_FULL
from faultrun.model.checkpoint import OnNode
from faultrun.model.events import ConfigRewritten, Event, FirstStep, Prepared, PrepareFailed
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.plan import Plan
from faultrun.model.run import Step
from faultrun.model.spec.run_spec import Recovery, Rendezvous, RunSpec
from faultrun.model.topology import RunId
from faultrun.platforms.ports import fresh_port, is_free
from faultrun.platforms.this_machine import address_of, is_address
from faultrun.supervisor.launch.devices import Abandoned, DeviceAssignment
from faultrun.supervisor.reactor import RunClock

if TYPE_CHECKING:
    from faultrun.model.edit import EditResult
    from faultrun.supervisor.launch.rewriting import Rewriting

_UNAVAILABLE, _NO_ROOM = 69, 71
_LOOK_AGAIN_S, _WEATHER_S = 0.25, 60.0
_PORTS_AVOIDED = 32
_SEEN_LATE_S = 90.0
"""How late a folder that nodes share may show a new file: NFS keeps what it knows of one for 60 s."""

_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """What one worker is started with. ``device`` None: its slot's; ``rank_table`` empty: the run's own."""

    args: tuple[str, ...]
    environ: Mapping[str, str]
    device: int | None = None
    rank_table: str = ""


class Unseen(NoWholeCheckpoint):
    """Another node sees the checkpoint, and this one does not, although it has waited."""


class Preparer:
    """Applies a plan to this node.

    Implements ``interfaces.EventListener``, too.
    """

    def __init__(
        self,
        spec: RunSpec,
        environ: Mapping[str, str],
        originals: Path,
        clock: RunClock,
        say: Callable[[str], None],
        assignment: DeviceAssignment,
    ) -> None:
        self._spec, self._environ, self._originals = spec, environ, originals
        self._clock, self._say, self._assignment = clock, say, assignment
        self._devices = spec.devices
        self._port = MasterPort(spec.rendezvous, say)
        self._configs = self._rewriting() if spec.recovery.rewrites or spec.recovery.pointers else None

    def _rewriting(self) -> "Rewriting":
        from faultrun.supervisor.launch.rewriting import Rewriting  # noqa: PLC0415  most runs rewrite nothing

        return Rewriting(self._spec, self._originals, self._say, self._assignment.pause)

    def open_port(self) -> int:
        """A port for the next incarnation, if any plan needs no more than that here; else 0.

        Of several nodes: what is to be rewritten, looked up or waited for has to be done before one starts.
        """
        spec = self._spec
        needs = spec.recovery.rewrites or spec.recovery.pointers or spec.rendezvous.rank_table_file
        return 0 if needs or len(spec.topology.nodes) == 1 else self._port.ahead()

    def prepare(self, plan: Plan, at_s: float) -> Iterable[Event]:
        """Yield ConfigRewritten for each file, then Prepared or PrepareFailed; runs in a helper thread."""
        try:
            self._devices = self._assignment.look(plan)
            self._check_files(plan)
            for result in self._in_time(plan, lambda: self._rewrite(plan)):
                yield from self._rewritten(plan, result)
            self._try_commands(plan)
            port = self._in_time(plan, self._port.choose)
        except (FaultrunError, OSError) as error:
            code = error.exit_code if isinstance(error, FaultrunError) else _UNAVAILABLE
            yield PrepareFailed(
                at_s=self._clock.now(),
                incarnation=plan.incarnation,
                exit_code=_NO_ROOM if _is_full(error) else code,
                why=str(error),
                unfit=_is_full(error),
                unseen=plan.point.path if isinstance(error, Unseen) and plan.point is not None else "",
            )
            return
        now_s = self._clock.now()
        yield Prepared(at_s=now_s, incarnation=plan.incarnation, master_port=port, took_s=now_s - at_s)

    def command(self, plan: Plan, rank: int) -> WorkerCommand:
        """Arguments and inherited environment of ``rank``. ConfigError when a template cannot be filled."""
        args, environ = self._spec.command.script_args, self._environ
        if plan.point is not None:
            told = values(plan, self._spec.run_id, rank)
            args = resume_args(args, filled(self._spec.recovery, told), self._spec.recovery.resume_at)
            environ = {**environ, **filled_variables(self._spec.recovery, told)}
        device = device_of(self._devices, plan.topology.ranks_of(self._spec.node).index(rank))
        if self._configs is not None and self._configs.copies:
            args, environ = pointed(args, environ, self._configs.copies)
        return WorkerCommand(args=args, environ=environ, device=device, rank_table=self._assignment.table)

    def tell(self, event: Event, step: Step) -> None:
        """Unlock the configurations for other runs: ranks that train, or have ended, read none any more."""
        if self._configs is None:
            return
        begun = (
            isinstance(event, FirstStep | FirstStepLogged) and event.incarnation == self._configs.incarnation
        )
        if begun or step.state.done:
            self._configs.release()

    def _check_files(self, plan: Plan) -> None:
        """What was chosen by what another node sees must be here too, or a rank would begin at zero."""
        if plan.point is None or len(plan.topology.nodes) == 1:
            return
        until_s, told = self._clock.now() + _SEEN_LATE_S, False
        for rank in plan.topology.ranks_of(self._spec.node):
            path = Path(plan.point.path_for(rank))
            # It may be a prefix of several files (TensorFlow).
            while not (path.exists() or any(path.parent.glob(f"{escape(path.name)}.*"))):
                if not told:
                    self._say(f"waiting up to {_SEEN_LATE_S:g} s for {path}: another node sees it")
                told = True
                if self._clock.now() >= until_s:
                    raise Unseen(
                        f"rank {rank} has nothing to resume from on node {self._spec.node}",
                        because=f"{path} is not there, and another node resumes from it",
                        hint="--checkpoint_dir=DIR on a file system that all nodes share",
                    )
                self._assignment.pause(_LOOK_AGAIN_S)

    def _in_time(self, plan: Plan, do: Callable[[], _Done]) -> _Done:
        """What ``do`` returns; at a restart it is tried for a while: a file may be missing or half saved.

        An editor, a checkout or a file server may hold it; the next moment it is there.
        """
        until_s, waited = self._clock.now() + (_WEATHER_S if plan.incarnation else 0.0), False
        while True:
            try:
                return do()
            except Abandoned:
                raise
            except (FaultrunError, OSError) as error:
                if self._clock.now() >= until_s or _is_full(error):
                    raise
                if not waited:
                    self._say(f"not ready to go on, looking again for {_WEATHER_S:g} s: {error}")
                waited = True
            self._assignment.pause(_LOOK_AGAIN_S)

    def _try_commands(self, plan: Plan) -> None:
        """Fail here, where failing is an event, and not when workers are being started."""
        for rank in plan.topology.ranks_of(self._spec.node):
            self.command(plan, rank)

    def _rewrite(self, plan: Plan) -> "tuple[EditResult, ...]":
        if self._configs is None and self._originals.exists():
            self._configs = self._rewriting()  # something was set there by hand
        if self._configs is None:
            return ()
        if plan.point is None:
            return self._configs.rewrite(plan, None)
        # Where each node has its own files, one of our ranks' stands for all of ours.
        ours = plan.topology.ranks_of(self._spec.node)[0] if isinstance(plan.point.source, OnNode) else None
        return self._configs.rewrite(plan, values(plan, self._spec.run_id, ours))

    def _rewritten(self, plan: Plan, result: "EditResult") -> Iterable[Event]:
        if result.copy is not None:
            self._say(f"{result.copy.original} {result.copy.reason}; workers read {result.copy.path}")
        for change in result.changes:
            yield ConfigRewritten(
                at_s=self._clock.now(),
                incarnation=plan.incarnation,
                file=result.path,
                key=change.key,
                before=change.before or "",
                after=change.after,
            )


def values(plan: Plan, run_id: RunId, rank: int | None) -> template.Values:
    """What the template fields stand for in this plan; a rank gets the file that is its own."""
    point = plan.point
    assert point is not None, "only a recovery point fills templates"
    path = point.path_for(rank)
    step = point.global_step if point.named_step is None else point.named_step
    return template.Values(
        checkpoint=path,
        is_directory=Path(path).is_dir(),
        run_id=run_id,
        incarnation=plan.incarnation,
        epoch=point.epoch,
        step=point.step_in_epoch if point.step_in_epoch is not None else step,
        global_step=step,
        rank=rank,
    )


def filled(recovery: Recovery, with_values: template.Values) -> tuple[str, ...]:
    """The ``--resume_arg`` templates as arguments."""
    return tuple(template.render(template.parse(text), with_values) for text in recovery.resume_args)


def filled_variables(recovery: Recovery, with_values: template.Values) -> dict[str, str]:
    """The variables of a recipe that tell of the recovery point."""
    templates = recovery.resume_environment
    return {name: template.render(template.parse(text), with_values) for name, text in templates}


def _is_full(error: Exception) -> bool:
    """Whether a disk has no room: another node may have some."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in DISK_FULL


def device_of(devices: tuple[int, ...], local_rank: int) -> int | None:
    """The device number of a local rank; None where its own number serves."""
    return devices[local_rank] if local_rank < len(devices) else None


class MasterPort:
    """One for each incarnation: what the one before left behind may still hold the last."""

    def __init__(self, rendezvous: Rendezvous, say: Callable[[str], None]) -> None:
        self._rendezvous, self._say = rendezvous, say
        self._used: tuple[int, ...] = ()
        self._ahead = 0

    def ahead(self) -> int:
        """A free one, which ``choose`` gives if it still is; 0 where the user named it, or none is known."""
        if self._rendezvous.port is not None and (self._rendezvous.fixed_port or not self._used):
            return 0
        with suppress(OSError):  # told when it is needed
            self._ahead = fresh_port(self._address(), frozenset(self._used), self._rendezvous.ports)
        return self._ahead

    def choose(self) -> int:
        """The user's port for the first incarnation or by ``--fixed_port``, a fresh one otherwise."""
        rendezvous, address = self._rendezvous, self._address()
        wanted = rendezvous.port
        if wanted is not None and (rendezvous.fixed_port or not self._used):
            if is_free(address, wanted):
                return self._use(wanted)
            if rendezvous.fixed_port:
                raise UsageError(
                    f"port {wanted} of {rendezvous.master_addr} is taken",
                    because="another process listens there and --fixed_port allows no other",
                    hint=f"ss -ltnp 'sport = :{wanted}' names it; or leave out --fixed_port",
                )
            self._say(f"port {wanted} of {rendezvous.master_addr} is taken; using another")
        ahead = self._ahead
        if not (port := ahead if ahead and is_free(address, ahead) else 0):
            port = fresh_port(address, frozenset(self._used), rendezvous.ports)
        self._ahead = 0
        return self._use(port)

    def _use(self, port: int) -> int:
        """Give ``port``, and give no other incarnation the same for a while."""
        self._used = (*self._used, port)[-_PORTS_AVOIDED:]
        return port

    def _address(self) -> str:
        """The resolver is asked once a time: an unknown name may cost it seconds."""
        host = self._rendezvous.master_addr
        try:
            return host if is_address(host) else address_of(host)
        except OSError as error:
            raise OSError(
                f"{host} has no address: {error.strerror}\n"
                f"  because: no resolver of this machine knows the name\n"
                "  try:     is --master_addr spelled right? one node can leave it out"
            ) from None
