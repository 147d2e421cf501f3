"""Checkpoints as values: what a file claims, what was proved about it, and where to resume.

Nothing here opens a file. ``checkpoints/`` reads them, ``core/recovery/choose.py`` chooses.
"""

from dataclasses import dataclass, field
from enum import Enum

from faultrun.model.event_base import UNLESS_USED
from faultrun.model.topology import NodeId


class Kind(Enum):
    """Why a checkpoint was written. On equal step, ``PERIODIC`` is preferred to ``GASP``."""

    PERIODIC = "periodic"
    GASP = "gasp"
    BEST = "best"


class Depth(Enum):
    """How far a file was verified."""

    NAME = "name"
    STRUCTURE = "structure"
    CHECKSUM = "checksum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a checkpoint is, whatever it is called: its stamp, and what it says of training (None: nothing).

    Not its path, which changes with a rename, and not its device's number, which changes with a mount.
    """

    inode: int
    size_bytes: int
    mtime_ns: int
    global_step: int | None = None
    epoch: int | None = None
    step_in_epoch: int | None = None

    @property
    def told(self) -> tuple[int | None, int | None, int | None]:
        """The point of training that it claims."""
        return (self.global_step, self.epoch, self.step_in_epoch)

    @property
    def tells(self) -> bool:
        """Whether it claims any point of training."""
        return self.told != (None, None, None)

    def told_by(self, step: int | None, epoch: int | None) -> bool:
        """Whether a training at ``step``, or in ``epoch`` where that is not known, has come so far."""
        if self.global_step is not None and step is not None:
            return self.global_step <= step
        return self.epoch is not None and epoch is not None and self.epoch <= epoch

    def same_as(self, other: "Identity") -> bool:
        """Whether the one was not written to since it was the other.

        A rename, a move and a link leave all of a stamp. What another file system or a careful
        copy gives a new inode keeps size and time, and says the same. Times are only compared
        for equality: a clock that was set back, or that of a late file server, does no harm.
        """
        if (self.size_bytes, self.mtime_ns) != (other.size_bytes, other.mtime_ns):
            return False
        return self.inode == other.inode or (self.tells and self.told == other.told)

    def same_start_as(self, other: "Identity") -> bool:
        """Whether training begins at the same point from both; files that do not say are compared as such."""
        return self.same_as(other) or (self.tells and self.told == other.told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One checkpoint file or directory, as its name and header describe it.

    ``global_step`` counts optimizer updates since the very first start; ``step_in_epoch`` starts anew in
    every epoch. ``None`` means unknown. ``rank`` is None when the file does not belong to one rank.
    ``series`` names files written by the same code for the same purpose; ``session`` counts the runs that
    wrote into the same place under clashing names, and ``save_number`` the saves of a series whose names
    count these and no steps. ``replica_group`` lists the ranks the file serves, where it says so.
    ``consistent``: the writer of a gasp made sure that no update was half done. ``finished``: the run that
    wrote it has ended well since. ``fits_any_world``: its code loads it into another number of workers, where
    the data takes another order. ``first_seen``: the life at whose end the run saw it first, and did not
    doubt it. ``save`` names the save of several files that it is of, and ``turn`` when of those it is tried;
    ``lacks`` says what the save has not, where those before it had it, ``saved_ns`` when its newest file was
    written, ``written`` which of the saves that were seen it is of. ``seen_step`` is the step of training
    when it was written, where ``global_step`` counts something else. ``stage`` counts the stages of a
    training that begins to count again.
    """

    path: str
    format: str
    kind: Kind
    size_bytes: int
    mtime_ns: int
    inode: int
    rank: int | None = None
    epoch: int | None = None
    step_in_epoch: int | None = None
    global_step: int | None = None
    world_size: int | None = None
    run_id: str | None = None
    incarnation: int | None = None
    series: str = ""
    session: int = 0
    save_number: int | None = None
    replica_group: tuple[int, ...] = ()
    consistent: bool = False
    fits_any_world: bool = False
    finished: bool = False
    first_seen: int | None = None
    save: str = ""
    turn: int = 0
    lacks: str = ""
    saved_ns: int = 0
    seen_step: int | None = None
    stage: int = 0
    written: int = 0

    @property
    def known(self) -> bool:
        """Whether it was there before the life began that is over now."""
        return self.first_seen is not None

    @property
    def reached(self) -> int | None:
        """The step of training, as it was seen to be, else as it is told."""
        return self.global_step if self.seen_step is None else self.seen_step

    @property
    def life(self) -> tuple[str, int | None]:
        """Which life of the run wrote it: as it tells, else by when it was seen first."""
        if self.incarnation is not None:
            return ("told", self.incarnation)
        return ("seen", self.first_seen)

    @property
    def doubtful(self) -> bool:
        """Whether it is a dying gasp whose writer did not check that no update was half done."""
        return self.kind is Kind.GASP and not self.consistent

    @property
    def identity(self) -> Identity:
        """What it is, apart from its name."""
        return Identity(
            inode=self.inode,
            size_bytes=self.size_bytes,
            mtime_ns=self.mtime_ns,
            global_step=self.global_step,
            epoch=self.epoch,
            step_in_epoch=self.step_in_epoch,
        )

    @property
    def replicated(self) -> bool:
        """Whether every rank of the world that wrote it held this same state: then it serves any world."""
        return self.world_size is not None and self.replica_group == tuple(range(self.world_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What verification found. ``why`` is a sentence for people, also when ``whole``.

    ``provisional``: the answer may change as other files appear, so it is not worth remembering.
    ``unverifiable``: nothing shows that it is torn, and nothing proves that it is whole (it is encrypted).
    """

    whole: bool
    why: str
    depth: Depth
    digest: str = ""
    provisional: bool = False
    unverifiable: bool = False

    @property
    def proved(self) -> bool:
        """Whether checksums show that it is whole."""
        return self.whole and self.depth is Depth.CHECKSUM


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A candidate that will not be used, and the reason a person can read."""

    path: str
    global_step: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The files lie where every node can read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnNode:
    """The files lie on the disk of one node."""

    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The state is in the memory of a living worker, not in a file."""

    rank: int


Source = Shared | OnNode | Live


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFile:
    """The file that ``rank`` is to load."""

    rank: int
    path: str
    from_rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPoint:
    """A proved place to resume from: one step, whole for every rank.

    ``files`` names a file for each rank; in pure data parallel all ranks share one. ``path`` stands for all
    of them where only one can be named, ``identity`` is what lay there when it was chosen (None in older
    journals). ``unverified``: the user asked to trust files that cannot be verified, and some of these are.
    ``named_step`` is what the file tells as its step, where ``global_step`` was seen to be another.
    ``fixed_by``: why only as many workers as it was chosen for can resume from it; asked for by runs that may
    shrink only. ``part_of``: this node has the files of some ranks only, of that state; empty: it is whole.
    """

    path: str
    kind: Kind
    global_step: int | None
    epoch: int | None
    step_in_epoch: int | None
    files: tuple[RankFile, ...]
    source: Source
    restore_ranks: str = ""
    restore_ranks_map: str = ""
    identity: Identity | None = None
    unverified: bool = False
    named_step: int | None = field(default=None, metadata=UNLESS_USED)
    fixed_by: str = field(default="", metadata=UNLESS_USED)
    part_of: str = field(default="", metadata=UNLESS_USED)

    def path_for(self, rank: int | None) -> str:
        """The file or directory that ``rank`` is to load; None: the rank that reads it for all."""
        return next((file.path for file in self.files if file.rank == rank), self.path)

    def holds(self, path: str) -> bool:
        """Whether ``path`` is a file of it."""
        own = (self.path, *(file.path for file in self.files))
        return any(path == one or path.startswith(f"{one}/") for one in own)

    @property
    def position(self) -> str:
        """How far training was, in words: ``step 55 (epoch 2)``, ``epoch 9``, ``step unknown``."""
        doubt = ", unverified" if self.unverified else ""
        if self.global_step is not None:
            epoch = "" if self.epoch is None else f" (epoch {self.epoch})"
            about = "" if self.named_step is None else "about "
            return f"{about}step {self.global_step}{epoch}{doubt}"
        if self.epoch is None:
            return f"step unknown{doubt}"
        within = "" if self.step_in_epoch is None else f", step {self.step_in_epoch} of it"
        return f"epoch {self.epoch}{within}{doubt}"
