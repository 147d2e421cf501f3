"""A plan applied to this node: configurations rewritten, script arguments made, a port chosen."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from faultrun.configs.argv import pointed, resume_args
from faultrun.configs.restore import restore
from faultrun.configs.rewrite import carry_out
from faultrun.core import template
from faultrun.errors import ConfigError, FaultrunError, UsageError
from faultrun.model.edit import EditedCopy, EditResult
from faultrun.model.events import ConfigRewritten, Event, Prepared, PrepareFailed
from faultrun.model.plan import Plan
from faultrun.model.spec import Recovery, RunSpec
from faultrun.model.topology import RunId
from faultrun.platforms.local import address_of, is_address
from faultrun.platforms.ports import fresh_port, is_free
from faultrun.supervisor.device_assignment import DeviceAssignment, device_of
from faultrun.supervisor.reactor import RunClock

_UNAVAILABLE = 69


@dataclass(frozen=True, slots=True, kw_only=True)
class Outfit:
    """What one worker is started with, beside its rank. ``device`` is None where its local rank serves."""

    args: tuple[str, ...]
    environ: Mapping[str, str]
    device: int | None = None


class LocalPreparer:
    """Implements ``ports.Preparer``; remembers the edited copies that its workers must be pointed at."""

    def __init__(
        self,
        spec: RunSpec,
        environ: Mapping[str, str],
        originals: Path,
        clock: RunClock,
        say: Callable[[str], None],
        seating: DeviceAssignment,
    ) -> None:
        self._spec = spec
        self._environ = environ
        self._originals = originals
        self._clock = clock
        self._say = say
        self._seating = seating
        self._devices = spec.devices
        self._copies: tuple[EditedCopy, ...] = ()
        self._used: frozenset[int] = frozenset()

    def prepare(self, plan: Plan, at_s: float) -> Iterable[Event]:
        """See ``ports.Preparer``."""
        try:
            self._devices = self._seating.look()
            results = self._rewrite(plan)
            for result in results:
                yield from self._rewritten(plan, result)
            self._try_outfits(plan)
            port = self._port()
        except FaultrunError as error:
            yield PrepareFailed(
                at_s=self._clock.now(),
                incarnation=plan.incarnation,
                exit_code=error.exit_code,
                why=str(error),
            )
            return
        except OSError as error:
            yield PrepareFailed(
                at_s=self._clock.now(), incarnation=plan.incarnation, exit_code=_UNAVAILABLE, why=str(error)
            )
            return
        now_s = self._clock.now()
        yield Prepared(at_s=now_s, incarnation=plan.incarnation, master_port=port, took_s=now_s - at_s)

    def outfit(self, plan: Plan, rank: int) -> Outfit:
        """Arguments and inherited environment of ``rank``. ConfigError when a template cannot be filled."""
        args = self._spec.command.script_args
        if plan.point is not None:
            args = resume_args(args, filled(self._spec.recovery, values(plan, self._spec.run_id, rank)))
        device = device_of(self._devices, plan.topology.ranks_of(self._spec.node).index(rank))
        if not self._copies:
            return Outfit(args=args, environ=self._environ, device=device)
        placed = pointed(args, self._environ, self._copies)
        return Outfit(args=placed.args, environ=placed.environment, device=device)

    def _try_outfits(self, plan: Plan) -> None:
        """Fail here, where failing is an event, and not when workers are being started."""
        for rank in plan.topology.ranks_of(self._spec.node):
            self.outfit(plan, rank)

    def _rewrite(self, plan: Plan) -> tuple[EditResult, ...]:
        if plan.point is None:
            # Nothing to resume from: an earlier incarnation's recovery point must not be found there.
            self._restore()
            self._copies = ()
            return ()
        rewrites = self._spec.recovery.rewrites
        if not rewrites:
            return ()
        results = carry_out(rewrites, values(plan, self._spec.run_id, None), originals=self._originals)
        self._copies = tuple(result.copy for result in results if result.copy is not None)
        return results

    def _restore(self) -> None:
        if not self._originals.exists():
            return
        try:
            restore(self._originals)
        except ConfigError as error:
            self._say(f"a configuration may still name an earlier checkpoint:\n{error}")

    def _rewritten(self, plan: Plan, result: EditResult) -> Iterable[Event]:
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

    def _port(self) -> int:
        """The user's port for the first incarnation or by ``--fixed_port``, a fresh one otherwise."""
        rendezvous = self._spec.rendezvous
        address = self._address(rendezvous.master_addr)
        wanted = rendezvous.port
        if wanted is not None and (rendezvous.fixed_port or not self._used):
            if is_free(address, wanted):
                self._used |= {wanted}
                return wanted
            if rendezvous.fixed_port:
                raise UsageError(
                    f"port {wanted} of {rendezvous.master_addr} is taken",
                    because="another process listens there and --fixed_port allows no other",
                    hint=f"ss -ltnp 'sport = :{wanted}' names it; or leave out --fixed_port",
                )
            self._say(f"port {wanted} of {rendezvous.master_addr} is taken; using another")
        port = fresh_port(address, self._used)
        self._used |= {port}
        return port

    def _address(self, host: str) -> str:
        """The resolver is asked once: a name that nobody knows may cost it seconds."""
        try:
            return host if is_address(host) else address_of(host)
        except OSError as error:
            raise OSError(
                f"{host} has no address: {error.strerror}\n"
                f"  because: no resolver of this machine knows the name\n"
                "  try:     is --master_addr spelled right? one node can leave it out"
            ) from None


def values(plan: Plan, run_id: RunId, rank: int | None) -> template.Values:
    """What the template fields stand for in this plan; a rank gets the file that is its own."""
    point = plan.point
    assert point is not None, "only a recovery point fills templates"
    path = point.path_for(rank)
    return template.Values(
        checkpoint=path,
        is_directory=Path(path).is_dir(),
        run_id=run_id,
        incarnation=plan.incarnation,
        epoch=point.epoch,
        step=point.step_in_epoch if point.step_in_epoch is not None else point.global_step,
        global_step=point.global_step,
        rank=rank,
    )


def filled(recovery: Recovery, with_values: template.Values) -> tuple[str, ...]:
    """The ``--resume_arg`` templates as arguments."""
    return tuple(template.render(template.parse(text), with_values) for text in recovery.resume_args)
