"""The whole world as one value: nodes, etcd, the shared disk. Time is ticks.

A lease ends ``TTL`` ticks after it was renewed, a node is deaf after ``DEAF`` and its workers die after
``FENCE``; a peer's answer counts until the next tick. What a node reads of ``all/`` is one snapshot, of
``node/`` another.
"""

from typing import NamedTuple

DEAF, FENCE, TTL, HOLD = 1, 2, 3, 1
NO_PROMISE = 2 * HOLD
LATEST = 2
"""After how many ticks an answer may still arrive."""
UP, FROZEN, DEAD = "up", "frozen", "dead"
WHOLE, NO_ETCD, NOBODY = 0, 1, 2
ALL_FAULTS = frozenset(["rank", "host", "freeze", "cut", "isolate", "away", "slow", "slowput", "usurp"])


class Setting(NamedTuple):
    """What is explored: how many nodes, how many faults of which kinds, and which guards are taken away."""

    members: int
    spares: int
    faults: int
    kinds: frozenset[str] = ALL_FAULTS
    away: frozenset[str] = frozenset()  # guards that a mutant lacks
    saves: bool = False  # ranks that end may have saved
    forgets: bool = False  # so may those that train; a host comes back without the log_dir that told of it
    fine: bool = False  # what a supervisor does by itself takes time, and so does joining
    cold: bool = (
        False  # it begins before the first plan, and each node reads its own key at a moment of its own
    )
    ends: bool = False  # ranks may come to their end
    stays: bool = False  # ranks of the others outlive a lost node, where a spare can have its place
    open: bool = False  # nobody has anything to prepare
    torn: bool = False  # who looks while another saves may see half of it, and nothing whole
    rounds: bool = False  # peers answer one by one, and an answer may come late
    least: int = 0  # so many nodes are enough, once the others were waited for; 0: all are needed

    @property
    def nodes(self) -> int:
        return self.members + self.spares


class Word(NamedTuple):
    """What a node stated: ``NodeFact``, without what no decision here rests on."""

    incarnation: int
    status: str
    look: int = 0
    point: int = 0
    struck: bool = False  # a rank of its own fell
    kept: int = -1  # the rank that lives on there, and is free
    open: bool = False  # nothing has to be prepared
    saved: bool = False  # it knows that the run has saved
    lacks: bool = False  # all that it saw was torn
    stop: bool = False  # it was told to stop


class Key(NamedTuple):
    """A statement under ``node/``."""

    node: int
    boot: int
    word: Word
    lease: int


class Office(NamedTuple):
    """``all/coordinator``."""

    node: int
    boot: int
    token: int
    lease: int


class Answer(NamedTuple):
    """ "Deaf, too": of whom, about which incarnation, and how many ticks ago it was asked for."""

    node: int
    boot: int
    incarnation: int
    age: int = 0


class Node(NamedTuple):
    up: str = UP
    net: int = WHOLE
    boot: int = 0
    lease: int = 0  # 0: none
    dropped: bool = False
    age: int = 0  # ticks since the request was sent that was answered last
    heard: int = NO_PROMISE  # ticks since it hears etcd again, as far as they matter
    granted: int = NO_PROMISE  # ticks since it has this lease
    keyed: bool = False  # its statement was last known to live by its lease
    held: bool = False  # all peers have answered since the last tick
    phase: str = "idle"  # idle prepare ready run stay join drain killed look fenced ended
    incarnation: int = -1
    look: int = 0
    struck: bool = False
    word: Word = Word(-1, "joined")
    raised: int = -1
    warned: int = -1
    plan: int = 0  # what it has read of all/
    alarms: tuple[tuple[int, int], ...] = ()
    office: tuple[int, int, int] | None = None
    keys: tuple[Key, ...] | None = None  # what a coordinator has read of node/
    late: tuple[object, ...] = ()  # a write of its own that still travels
    sent: Word | None = None  # what it stated last, where a mutant goes by that
    own: tuple[Word, int] | None = None  # what it has read of its own key, where that is apart
    asked: tuple[Answer, ...] = ()  # answers that are on their way to it
    got: tuple[Answer, ...] = ()  # answers that have come
    finished: tuple[Answer, ...] = ()  # who said directly that its ranks have all come to their end
    forgot: bool = False  # nothing told it which saves are the run's, and it has not taken part since
    blind: int = 0  # saves up to this one it takes for another run's
    waiting: tuple[int, ...] = ()  # nodes that could take a vacant seat, as its supervisor knows
    stopped: bool = False  # it was told to stop: it saves, says so and leaves

    @property
    def has_ranks(self) -> bool:
        return self.phase in ("run", "stay", "join", "drain") and self.up != DEAD


class Etcd(NamedTuple):
    up: bool = True
    plan: int = 0
    alarms: tuple[tuple[int, int], ...] = ()  # incarnation, and who said it (COORDINATOR, STAYS: it did)
    office: Office | None = None
    token: int = 0
    keys: tuple[Key, ...] = ()
    leases: tuple[tuple[int, int, int], ...] = ()  # node, number, age

    def key(self, node: int, boot: int) -> Key | None:
        return next((key for key in self.keys if (key.node, key.boot) == (node, boot)), None)

    def has_lease(self, node: int, number: int) -> bool:
        return any(one[:2] == (node, number) for one in self.leases)


class State(NamedTuple):
    nodes: tuple[Node, ...]
    etcd: Etcd
    left: int  # faults that may still happen
    disk: int = 0  # the newest save
    charges: int = 0  # faults of ranks so far


class Step(NamedTuple):
    """Something that may happen next, in words."""

    label: str
    state: State
    fault: bool = False
    fate: bool = False  # nobody's act: a fault, its end, a lease that etcd drops


COORDINATOR, STAYS = -1, -2
"""In place of who raised an alarm: ``STAYS`` where ranks that can outlive it are to stay."""

GHOST = 99
"""The boot of another host that joined under a node's name."""


def talks(state: State, node: Node) -> bool:
    """Whether etcd answers it."""
    return node.up == UP and node.net == WHOLE and state.etcd.up


def set_node(state: State, at: int, node: Node, etcd: Etcd | None = None) -> State:
    """The same world with another node, and another etcd if one is given."""
    return state._replace(nodes=put(state.nodes, at, node), etcd=etcd or state.etcd)


def put(nodes: tuple[Node, ...], at: int, node: Node) -> tuple[Node, ...]:
    return (*nodes[:at], node, *nodes[at + 1 :])
