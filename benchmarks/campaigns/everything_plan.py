"""Faults, drawn from a seed: over which training, what, to whom, when, and what else then."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Way(Enum):
    """How a training is protected."""

    COLD = "SDK, no standbys"
    WARM = "SDK, standbys"
    BARE = "no SDK"
    CONFIG = "no SDK, a configuration"
    STAYS = "SDK, survivors stay"
    SHRINKS = "SDK, fewer ranks"
    TRAINS_ON = "SDK, others train on"


class Kind(Enum):
    """What is done. The first ones by the process itself, at a place in its script."""

    KILL = "kill"
    SEGV = "segv"
    RAISE = "raise"
    EXIT = "exit"
    OOM = "oom"
    TORN = "torn"
    SLOW = "slow"
    LOG = "log"
    STOP = "stop"
    SLEEP = "sleep"
    SPIN = "spin"
    DEVICE = "device"
    RANK = "kill a rank from outside"
    STUCK = "stop a rank, then kill it"
    TWO = "kill two ranks at once"
    ALL = "kill all ranks at once"
    STANDBY = "kill a standby"
    WELL = "a device is well again"
    SUPERVISOR = "kill a supervisor"
    FREEZE = "freeze a supervisor"
    STOPPED = "SIGTERM to a node"
    LOG_DISK = "fill a node's disk"
    SAVE_DISK = "fill the disk of the checkpoints"
    HOST = "kill a host"
    POWER = "power off a host"
    LINK = "cut a host off"
    STORE_LINK = "cut a host off from etcd"
    PEER_LINK = "part two hosts"
    MEMBER = "kill an etcd member"
    MAJORITY = "kill two of three etcd members"
    STORE_DISK = "fill an etcd member's disk"


class When(Enum):
    """In which phase. All but the first: of what the fault before set off."""

    TRAINING = "training"
    AT_ONCE = "at the same moment"
    DRAINING = "as the others are told"
    GONE = "when all are gone"
    STARTING = "as the next are born"
    FIRST = "in the next one's start"
    COMPILE = "before the next one's first step"
    REPAIR = "in the repair"
    EMPTY = "while a place is empty"
    COMES = "while a newcomer comes"


class Whom(Enum):
    """To which node, as it stands at that moment."""

    FIRST = "the node of rank 0"
    OTHER = "another that trains"
    SPARE = "the spare"


AT_A_PLACE = tuple(Kind)[: tuple(Kind).index(Kind.RANK)]
"""Done by the process itself."""

HANGS = frozenset({Kind.STOP, Kind.SLEEP, Kind.SPIN})
ARMED = {When.FIRST: "startup", When.COMPILE: "compile"}
"""Ordered beforehand, from whoever comes there in a later incarnation."""

PHASES = tuple(When)[1 : tuple(When).index(When.REPAIR)]
"""Those of a restart."""

OF_A_REPAIR = ("heard", "raised", "dropped", "join", "formed", "restored")
_WHILE_MISSING = (When.AT_ONCE, When.DRAINING, When.REPAIR, When.EMPTY, When.EMPTY, When.COMES, When.COMES)

IS_NO_FAULT = frozenset({Kind.WELL})
PLACES = ("step", "step", "inside", "save", "saved")
LEASE_S = 3
HANG_S = 10
MEMBERS = ("e0", "e1", "e2")
SEATS = 3
NODE_WAIT_S = 60.0
ENDS = "ends"
"""A place: behind the last step, before all leave."""

_READY = 0.7
"""Before so many faults standbys are waited for."""

_USUAL = {
    Kind.KILL: 6,
    Kind.SEGV: 2,
    Kind.RAISE: 3,
    Kind.EXIT: 2,
    Kind.OOM: 1,
    Kind.TORN: 2,
    Kind.SLOW: 1,
    Kind.LOG: 1,
    Kind.RANK: 4,
    Kind.TWO: 2,
    Kind.ALL: 1,
    Kind.SUPERVISOR: 2,
    Kind.FREEZE: 1,
    Kind.STOPPED: 1,
    Kind.LOG_DISK: 1,
    Kind.SAVE_DISK: 1,
}
_HANGING = {Kind.STOP: 1, Kind.SLEEP: 1}
_OF_PLACES = {
    Kind.KILL: 6,
    Kind.SEGV: 1,
    Kind.RAISE: 1,
    Kind.STOP: 1,
    Kind.RANK: 6,
    Kind.TWO: 3,
    Kind.ALL: 1,
    Kind.STANDBY: 4,
    Kind.SUPERVISOR: 1,
}
_COMES_S = 6.0
"""The imports of a newcomer."""

_OF_NODES = {
    Kind.HOST: 3,
    Kind.POWER: 3,
    Kind.LINK: 3,
    Kind.STORE_LINK: 2,
    Kind.PEER_LINK: 1,
    Kind.MEMBER: 2,
    Kind.MAJORITY: 1,
    Kind.STORE_DISK: 1,
    Kind.FREEZE: 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A training and how it is run."""

    code: str
    nodes: int
    ranks: int
    way: Way

    @property
    def name(self) -> str:
        """In a few words."""
        where = "3 nodes" if self.nodes > 1 else f"1 node, {self.ranks} ranks"
        each = f", {self.ranks // SEATS} a node" if self.nodes > 1 and self.ranks > SEATS else ""
        return f"{self.code}, {where}, {self.way.value}{each}"

    @property
    def sdk(self) -> bool:
        """Whether its ranks save when they are asked to."""
        return self.way not in (Way.BARE, Way.CONFIG)

    @property
    def small(self) -> bool:
        """Whether its training is that of ``everything_plain``."""
        return self.code in ("plain", "gloo")

    @property
    def exact(self) -> bool:
        """Whether its training is that of ``everything_exact``, held to an undisturbed one bit for bit."""
        return self.code.startswith("exact")


SETTINGS = (
    Setting(code="ddp", nodes=1, ranks=2, way=Way.COLD),
    Setting(code="ddp", nodes=1, ranks=2, way=Way.WARM),
    Setting(code="ddp", nodes=1, ranks=2, way=Way.BARE),
    Setting(code="ddp", nodes=1, ranks=3, way=Way.STAYS),
    Setting(code="ddp", nodes=1, ranks=3, way=Way.SHRINKS),
    Setting(code="ddp", nodes=3, ranks=3, way=Way.COLD),
    Setting(code="ddp", nodes=3, ranks=3, way=Way.STAYS),
    Setting(code="ddp", nodes=3, ranks=3, way=Way.BARE),
    Setting(code="fsdp", nodes=1, ranks=2, way=Way.STAYS),
    Setting(code="fsdp", nodes=1, ranks=2, way=Way.WARM),
    Setting(code="fsdp", nodes=1, ranks=2, way=Way.BARE),
    Setting(code="fsdp", nodes=3, ranks=3, way=Way.STAYS),
    Setting(code="mindspore", nodes=1, ranks=2, way=Way.WARM),
    Setting(code="mindspore", nodes=1, ranks=2, way=Way.BARE),
    Setting(code="mindspore", nodes=3, ranks=3, way=Way.COLD),
    Setting(code="ddp", nodes=1, ranks=4, way=Way.TRAINS_ON),
    Setting(code="ddp", nodes=3, ranks=3, way=Way.SHRINKS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``after_s`` after its phase began; what it breaks is whole ``for_s`` later. ``chance``: which rank.

    ``ready``: standbys are waited for before it.
    """

    kind: Kind
    whom: Whom
    when: When
    place: str
    chance: float
    after_s: float
    for_s: float
    ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run from its start to its end: ``stopped`` by SIGTERM to all, else it ends by itself.

    ``watched``: its one supervisor must not grow; where there are standbys, all restarts are warm.
    """

    number: int
    setting: Setting
    faults: tuple[Fault, ...]
    stopped: bool = False
    watched: bool = False


def draw(number: int, seed: int) -> Session:
    """Run ``number``: the same for the same seed. Every setting comes once in a turn, the last one last."""
    turn, at = divmod(number, len(SETTINGS))
    order = [*random.Random(f"{seed}:{turn}").sample(SETTINGS[:-1], len(SETTINGS) - 1), SETTINGS[-1]]
    return draw_of(order[at], number, seed)


def draw_of(setting: Setting, number: int, seed: int) -> Session:
    """Run ``number``, of this setting."""
    chance = random.Random(f"{seed}:run:{number}")
    wanted = 8 if setting.nodes > 1 or setting.code == "mindspore" else 12
    faults = [_fault(chance, setting, first=place == 0) for place in range(wanted)]
    return Session(number=number, setting=setting, faults=tuple(_with_devices(faults, chance, setting)))


def _with_devices(faults: list[Fault], chance: random.Random, setting: Setting) -> list[Fault]:
    """Where ranks can be left out: some faults break a device, and it is well again some faults later.

    A node that failed is asked at once whether it is well, and comes back.
    """
    if setting.way is not Way.SHRINKS:
        return faults
    for first in (0, len(faults) // 2):
        well = first + 2 + chance.randrange(2)
        for place, kind in ((first, Kind.DEVICE), (well, Kind.WELL))[: 1 if setting.nodes > 1 else 2]:
            old = faults[place]
            kept = {name: getattr(old, name) for name in ("whom", "chance", "after_s", "for_s", "ready")}
            faults[place] = Fault(kind=kind, when=When.TRAINING, place="step", **kept)
    return faults


def kinds_of(setting: Setting) -> dict[Kind, int]:
    """What befalls it, and how often beside the others."""
    if setting.way is Way.TRAINS_ON:
        return dict(_OF_PLACES)
    kinds = dict(_USUAL)
    if setting.sdk:
        kinds |= _HANGING
    if setting.sdk and setting.code != "mindspore":
        kinds[Kind.SPIN] = 1
    if setting.code == "fsdp" and not setting.sdk:
        del kinds[Kind.TORN]  # its save is a folder
    if setting.way in (Way.WARM, Way.STAYS):
        kinds[Kind.STANDBY] = 2
    return kinds | _OF_NODES if setting.nodes > 1 else kinds


def _fault(chance: random.Random, setting: Setting, *, first: bool) -> Fault:
    missing = setting.way is Way.TRAINS_ON
    inside = not first and chance.random() < (0.6 if missing else 0.35)
    kinds = kinds_of(setting)
    kind = chance.choices(tuple(kinds), tuple(kinds.values()))[0]
    when = When.TRAINING
    if inside:
        when = chance.choice(_WHILE_MISSING if missing else PHASES)
    if when in ARMED and kind not in AT_A_PLACE:
        kind = Kind.KILL
    if when in ARMED and kind in (Kind.TORN, Kind.SLOW, *HANGS):
        kind = Kind.RAISE if chance.random() < 0.5 else Kind.SEGV
    if when is When.DRAINING and kind in AT_A_PLACE:
        kind = Kind.RANK  # whoever waits for a dead peer comes to no place of its script
    if when is When.GONE and kind in (*AT_A_PLACE, Kind.RANK, Kind.TWO, Kind.ALL):
        kind = Kind.SUPERVISOR
    whom = chance.choice((Whom.FIRST, Whom.OTHER, Whom.OTHER, Whom.SPARE))
    place = "saved" if kind is Kind.TORN else chance.choice(PLACES)
    if when is When.REPAIR:
        kind, place = Kind.KILL, chance.choice(OF_A_REPAIR)
    rank = round(chance.random(), 4)
    return Fault(
        kind=kind,
        whom=whom,
        when=when,
        place=place,
        chance=rank,
        ready=rank < _READY,
        after_s=round(chance.choice((0.0, chance.uniform(0.0, _COMES_S if when is When.COMES else 0.5))), 3),
        for_s=round(chance.uniform(0.2, 2.5 * LEASE_S), 2),
    )


def is_ordered(fault: Fault) -> bool:
    """Whether it is ordered before the first of its round strikes: what comes there, meets it."""
    return fault.when in (*ARMED, When.REPAIR) or (fault.when is When.AT_ONCE and fault.kind in AT_A_PLACE)


def rounds(faults: Sequence[tuple[int, Fault]]) -> list[list[tuple[int, Fault]]]:
    """Faults, each with its place, together with those that meet what they set off."""
    found: list[list[tuple[int, Fault]]] = []
    for place, fault in faults:
        if fault.when is When.TRAINING or not found:
            found.append([])
        found[-1].append((place, fault))
    return found
