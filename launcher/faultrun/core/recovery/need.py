"""What a recovery point must serve, and what will do where nothing whole serves all of it. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from faultrun.core.recovery.replica_groups import Group
from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.plan import Attempt
from faultrun.model.spec.run_spec import Resume, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How many workers resume, and how the state may be cut for them.

    ``groups`` None means pure data parallel unless gasp manifests name their replica groups. ``resharded``:
    whether the code loads what all ranks saved together into any number of workers; None: it was not said.
    ``elastic``: the run may go on with another number, so the point has to say whether it can be resumed so.
    ``resized``: it does, by hand, so nothing else will do. ``own_files``: each rank is told a path with
    its number in it; None: a folder, and no file in it: so it loads its own, where ranks have such.
    ``own_names`` are patterns of how that path ends, where it is one for all saves: what fits the longer one
    counts where any does, else what fits the shorter.
    """

    size: int
    groups: tuple[Group, ...] | None = None
    resharded: bool | None = None
    elastic: bool = False
    resized: bool = False
    own_files: bool | None = False
    own_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """Says which run's saves count. ``run_id`` None accepts every run.

    ``shared_with``: other runs that save in the same place; a checkpoint that names no run may be theirs.
    So may one that names this run, where one of them has the same id (``namesake``). ``ours`` are paths of
    those that this run is known to have written all the same.
    """

    run_id: str | None = None
    shared_with: str = ""
    namesake: bool = False
    ours: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What speaks against files that are whole, or for others that cannot be proved so.

    ``after_fault``: a gasp that was not there when the life began that a fault has ended is refused, unless
    its writer vouches for a consistent state: a failed collective can leave half-updated parameters.
    ``trust``: a file that cannot be verified (an encrypted one) may be used where its step has no verified
    one. ``quarantine`` is what restarts could not get past. Files of ``lost_ranks`` lay on a disk that is
    gone.
    """

    after_fault: bool = False
    trust: bool = False
    quarantine: tuple[Attempt, ...] = ()
    lost_ranks: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """Says whether the disks looked through are all of the run's, and whether saves of some ranks will do.

    ``several``: there are other nodes, whose own disks may have files of other ranks. ``partly``: a save
    that serves some ranks will do then, if it names its step.
    """

    several: bool = False
    partly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a recovery point must serve."""

    world: World
    whose: Whose = Whose()
    doubt: Doubt = Doubt()
    disks: Disks = Disks()


def need_of(
    spec: RunSpec,
    request: FindRecoveryPoint,
    groups: tuple[Group, ...] | None,
    beside: Sequence[str],
    ours: Collection[str] = (),
    *,
    namesake: bool,
) -> Need:
    """What a recovery point that is asked for must serve; runs ``beside`` save there, but not ``ours``."""
    recovery, size = spec.recovery, world_size(spec, request)
    resume_any, several = recovery.resume is Resume.ALWAYS, len(spec.topology.nodes) > 1
    return Need(
        world=World(
            size=size,
            groups=groups,
            resharded=recovery.resharded,
            elastic=spec.resizes,
            resized=request.before > 0,
            own_files=recovery.own_files,
            own_names=recovery.own_names,
        ),
        whose=Whose(
            run_id=None if resume_any else spec.run_id,
            shared_with="" if resume_any else ", ".join(beside),
            namesake=namesake and not resume_any,
            ours=ours,
        ),
        doubt=Doubt(
            quarantine=request.quarantine,
            lost_ranks=frozenset(request.lost),
            trust=recovery.trust,
            after_fault=request.fault_at_s is not None and size > 1,
        ),
        disks=Disks(several=several),
    )


def world_size(spec: RunSpec, request: FindRecoveryPoint) -> int:
    """How many workers are to resume."""
    return request.world_size or spec.topology.world_size


def last_resorts(need: Need) -> Iterator[Need]:
    """``need``, and then what may do instead, best first; for ``choose.choose_first``."""
    yield need
    if need.doubt.lost_ranks:
        # No replica can stand in: what a faulty rank wrote while it was well is verified like any other.
        need = replace(need, doubt=replace(need.doubt, lost_ranks=frozenset()))
        yield need
    if need.disks.several:
        yield replace(need, disks=replace(need.disks, partly=True))
    if need.doubt.quarantine:
        # Nothing older is left to fall back to: the quarantined file is still better than none.
        need = replace(need, doubt=replace(need.doubt, quarantine=()))
        yield need
        if need.disks.several:
            yield replace(need, disks=replace(need.disks, partly=True))
