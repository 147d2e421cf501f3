"""What a node knows of the others and of its own right to be here: the input and the answer of ``judge``.

The keys lie below ``/faultrun/<run_id>/``; names here are without that part. Every node watches ``all/``,
its own statement, and, while it coordinates, ``node/``. What it has read of each is one consistent state.

Two clocks. ``*_s`` of leases, questions and answers, and everything that ends in ``until_s``, are
seconds of this machine's CLOCK_BOOTTIME, which goes on in suspend and which no other machine shares.
``run_s`` are run-seconds as in events.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from faultrun.core.plan.waiting import Waiting
from faultrun.model.events import NodesEvent
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.topology import BootId, NodeId
from faultrun.nodes.values.lease import Lease, LeaseTimes
from faultrun.nodes.values.roster import Alarm, Leadership, PlanHeader, Roster, RosterEntry, Statement
from faultrun.nodes.values.transaction import StoredValue, Transaction

# ``value_type`` says what each key holds: all/plan is the plan's header, plan/<hash> its body.
PLAN_KEY, COORDINATOR_KEY, ALARMS, NODES = "all/plan", "all/coordinator", "all/alarm/", "node/"
ROSTERS, BODIES = "topology/", "plan/"
SMALL_BODIES = "all/body/"
"""A body that is small lies where all nodes watch: each of them needs it, and none has to ask for it."""


def node_key(node: NodeId, boot: BootId) -> str:
    """Where one supervisor of a node keeps its statement."""
    return f"{NODES}{node}/{boot}"


def alarm_key(incarnation: int) -> str:
    """Where it is said that ``incarnation`` is over."""
    return f"{ALARMS}{incarnation}"


def part_name(key: str) -> str:
    """Under which name ``KnownKeys.parts`` has what ``key`` holds, wherever that lies."""
    return f"{BODIES}{key[len(SMALL_BODIES) :]}" if key.startswith(SMALL_BODIES) else key


def value_type(key: str) -> type[StoredValue]:
    """What the key holds; ValueError if it is none of a run's."""
    folders: dict[str, type[StoredValue]] = {
        PLAN_KEY: PlanHeader,
        COORDINATOR_KEY: Leadership,
        ALARMS: Alarm,
        NODES: Statement,
        ROSTERS: Roster,
        BODIES: Plan,
        SMALL_BODIES: Plan,
    }
    for folder, of_type in folders.items():
        if key.startswith(folder):
            return of_type
    raise ValueError(f"no key of a run: {key}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What this node is, and was started with (``Statement``). ``hold``: go on while etcd is silent."""

    node: NodeId
    peer_addr: str
    times: LeaseTimes
    machine: str = ""
    asked: str = ""
    node_rank: int | None = None
    hold: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnState:
    """What this node says of itself: the supervisor's newest statement, and that an incarnation is over.

    ``lease``: None before the first is granted, and after a fence. ``frozen_s``: for so long the supervisor
    has not handed on until when its workers may live.
    """

    fact: NodeFact
    lease: Lease | None = None
    raised: Alarm | None = None
    frozen_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A statement as it was read, with the number of the lease that it lives by."""

    statement: Statement
    created: int
    changed: int
    lease: int

    @property
    def node(self) -> NodeId:
        """The node that made the statement."""
        return self.statement.fact.node

    @property
    def boot(self) -> BootId:
        """Under which supervisor."""
        return self.statement.fact.boot


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonKeys:
    """``all/`` at ``revision``. ``*_changed`` are revisions, and so is ``token``; 0 without the key."""

    revision: int
    header: PlanHeader | None = None
    header_changed: int = 0
    coordinator: Leadership | None = None
    token: int = 0
    coordinator_changed: int = 0
    alarms: tuple[Alarm, ...] = ()

    def alarm(self, incarnation: int) -> Alarm | None:
        """Who said that this incarnation is over."""
        return next((one for one in self.alarms if one.incarnation == incarnation), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKeys:
    """``node/`` as it was at ``revision``."""

    revision: int
    stated: tuple[Stated, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerQuestion:
    """Are you deaf, too? Asked by a node that has not heard of the store for ``deaf_s``, with its status."""

    node: NodeId
    boot: BootId
    incarnation: int
    status: NodeStatus = NodeStatus.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAnswer:
    """What one peer answered; ``asked_at_s`` is when *this* node sent the question.

    ``deaf`` is a promise: it decides nothing for the run before no node can rely on the answer any more.
    """

    node: NodeId
    boot: BootId
    incarnation: int
    deaf: bool
    asked_at_s: float
    status: NodeStatus = NodeStatus.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerWord:
    """How far a peer said that it is, in its question or its answer; ``heard_at_s`` at the latest."""

    node: NodeId
    boot: BootId
    incarnation: int
    status: NodeStatus
    heard_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """Everything that a node has read and heard. None: not read yet, which is not the same as empty.

    ``own`` is its own statement under its present boot. ``parts`` are rosters and bodies by ``part_name``, as
    far as they were read. ``answers`` and ``words`` are the newest of each peer, ``warnings`` what peers said
    directly of incarnations that are over.
    """

    common: CommonKeys | None = None
    own: Stated | None = None
    nodes: NodeKeys | None = None
    parts: Mapping[str, Roster | Plan] = field(default_factory=dict)
    answers: tuple[PeerAnswer, ...] = ()
    warnings: tuple[Alarm, ...] = ()
    words: tuple[PeerWord, ...] = ()

    def alarm(self, incarnation: int) -> Alarm | None:
        """Who says that it is over, by the store or directly; that no rank is to stay counts more."""
        written = None if self.common is None else self.common.alarm(incarnation)
        said = next((one for one in self.warnings if one.incarnation == incarnation), None)
        return said if written is None or (written.stays and said is not None) else written

    @property
    def members(self) -> tuple[RosterEntry, ...]:
        """Who takes part by the newest plan; none while that was not read."""
        header = None if self.common is None else self.common.header
        roster = None if header is None else self.parts.get(f"{ROSTERS}{header.roster}")
        return roster.entries if isinstance(roster, Roster) else ()

    @property
    def is_empty(self) -> bool:
        """Whether no node has written anything."""
        common = self.common or CommonKeys(revision=0)
        written = common.header_changed or common.coordinator_changed or (self.nodes and self.nodes.stated)
        return not written

    @property
    def is_unreadable(self) -> bool:
        """Whether there is a plan of which a part cannot be understood, or is not there."""
        if self.common is None or not self.common.header_changed:
            return False
        if (header := self.common.header) is None:
            return True
        names = ((ROSTERS, header.roster), (BODIES, header.body))
        return any(name and f"{folder}{name}" not in self.parts for folder, name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What ``judge`` keeps from one answer to the next; a new supervisor begins with none of it.

    ``fenced`` is the boot under which nothing is said any more. ``told`` is what this supervisor was told.
    ``run_ahead_s``: how far the run's clock is ahead of this supervisor's. The rest are moments: since when
    no node coordinates, something is waited for, peers were asked last, this node could leave, all members
    are known to have finished, the run has ended. ``due_at_s``: when it was to be asked again at the latest.
    ``newcomers``: of which nodes that wait for a vacant seat the supervisor knows, in which incarnation.
    ``joined``: this supervisor was in the run while that went on, so an end that it reads is the end of it.
    """

    fenced: BootId | None = None
    told: tuple[str, ...] = ()
    run_ahead_s: float = 0.0
    clock_read_at: int = 0
    unled_since_s: float | None = None
    waiting_since_s: float | None = None
    asked_at_s: float | None = None
    leaving_since_s: float | None = None
    finished_since_s: float | None = None
    ended_since_s: float | None = None
    due_at_s: float | None = None
    newcomers: tuple[int, tuple[NodeId, ...]] = (-1, ())
    joined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberClock:
    """Now, by the machine's CLOCK_BOOTTIME and by this supervisor's run-seconds."""

    now_s: float
    run_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Give this to the own supervisor."""

    event: NodesEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Kill this node's workers at once, without its supervisor; then tell it (MembershipLost).

    It goes on under another boot id, which the agent makes up.
    """

    incarnation: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Try this transaction. Whether it succeeded is seen in what is read next, not in its answer."""

    transaction: Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantLease:
    """Ask for a new lease; the one before, if any, is left to end by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Read these keys into ``KnownKeys.parts``."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPeers:
    """Put the question to each of these members, now."""

    question: PeerQuestion
    members: tuple[RosterEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarnPeers:
    """Tell these members directly, without waiting for the store: it becomes one of their ``warnings``."""

    alarm: Alarm
    members: tuple[RosterEntry, ...]


Act = Tell | Fence | Commit | GrantLease | Fetch | AskPeers | WarnPeers


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What follows now. ``alive_until_s``: workers of this node may live, and be started, until then.

    ``judge_at_s``: ask again by then even if nothing was heard. ``coordinates``: ``node/`` is to be watched.
    ``waits``: None while nothing is waited for; ``waits_since_s`` is when this node began to
    count how long, None where another does. ``spare``: for what a node without a seat waits, else empty.
    """

    remembered: Remembered
    acts: tuple[Act, ...]
    alive_until_s: float
    judge_at_s: float
    coordinates: bool = False
    waits: Waiting | None = None
    waits_since_s: float | None = None
    spare: str = ""
