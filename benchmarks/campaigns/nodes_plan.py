"""Faults over several nodes, drawn from a seed: what, to whom, when, and for how long."""

import random
from dataclasses import dataclass
from enum import Enum

NODES = ("a", "b", "c", "d")
SEATS = 3
MEMBERS = ("e0", "e1", "e2")
LEASE_S = 3
NODE_WAIT_S = 60.0

_FAULTS_A_RUN = 20
_LONGEST_S = 2.5 * LEASE_S


class Kind(Enum):
    """What is done."""

    RANK = "kill a rank"
    RANKS = "kill ranks of two nodes at once"
    HOST = "kill a host"
    POWER = "power off a host"
    SUPERVISOR = "kill a supervisor"
    LINK = "cut a host off"
    STORE_LINK = "cut a host off from etcd"
    PEER_LINK = "part two hosts"
    FREEZE = "freeze a supervisor"
    MEMBER = "kill an etcd member"
    MAJORITY = "kill two of three etcd members"
    LOG_DISK = "fill a node's disk"
    SAVE_DISK = "fill the disk of the checkpoints"
    STORE_DISK = "fill an etcd member's disk"
    STOP = "SIGTERM to a node"


class Whom(Enum):
    """To which node, as it stands at that moment."""

    FIRST = "the node of rank 0"
    OTHER = "another that trains"
    SPARE = "the spare"


class When(Enum):
    """In which phase. All but the first: of the recovery from the fault before."""

    TRAINING = "training"
    AT_ONCE = "at once"
    DRAINING = "draining"
    PREPARING = "preparing"
    STARTING = "starting"


_WEIGHTS = {
    Kind.RANK: 6,
    Kind.RANKS: 1,
    Kind.HOST: 3,
    Kind.POWER: 3,
    Kind.SUPERVISOR: 2,
    Kind.LINK: 4,
    Kind.STORE_LINK: 2,
    Kind.PEER_LINK: 1,
    Kind.FREEZE: 5,
    Kind.MEMBER: 4,
    Kind.MAJORITY: 2,
    Kind.LOG_DISK: 2,
    Kind.SAVE_DISK: 1,
    Kind.STORE_DISK: 1,
    Kind.STOP: 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, ``after_s`` after its phase began; what it breaks is whole again ``for_s`` later."""

    kind: Kind
    whom: Whom
    when: When
    after_s: float
    for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run from its start to its end: ``stopped`` by SIGTERM to all, else it ends by itself."""

    number: int
    torch: bool
    guard: str
    per_node: int
    stopped: bool
    faults: tuple[Fault, ...]

    def told(self) -> str:
        """In a few words."""
        trains = "torch, gloo" if self.torch else "plain"
        saves = "gasps" if self.guard == "sdk" else "no gasps"
        return f"{trains}, {saves}, {self.per_node} a node"


def draw(number: int, seed: int) -> Session:
    """Run ``number`` of the campaign: the same for the same seed, however many there are."""
    chance = random.Random(f"{seed}:{number}")
    torch = number % 5 == 3
    return Session(
        number=number,
        torch=torch,
        guard=chance.choice(("sdk", "sdk", "none")),
        per_node=1 if torch else chance.choice((1, 1, 2)),
        stopped=chance.random() < 0.5,
        faults=tuple(_fault(chance, place) for place in range(_FAULTS_A_RUN // (2 if torch else 1))),
    )


def _fault(chance: random.Random, place: int) -> Fault:
    inside = place > 0 and chance.random() < 0.35
    phases = [when for when in When if when is not When.TRAINING]
    return Fault(
        kind=chance.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))[0],
        whom=chance.choice((Whom.FIRST, Whom.OTHER, Whom.OTHER, Whom.SPARE)),
        when=chance.choice(phases) if inside else When.TRAINING,
        after_s=round(chance.choice((0.0, chance.uniform(0.0, 0.5))), 3),
        for_s=round(chance.uniform(0.2, _LONGEST_S), 2),
    )
