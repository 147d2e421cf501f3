"""The campaigns over runs with many faults: what each draws from its seed, and what its page says of it."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.campaigns.everything_plan import (
    ENDS,
    HANG_S,
    LEASE_S,
    OF_A_REPAIR,
    SEATS,
    SETTINGS,
    Fault,
    Kind,
    Session,
    Setting,
    Way,
    When,
    Whom,
    draw,
    draw_of,
)

REJOIN_S, HEALS_S = 30, 420.0
OF_A_STEP = (
    *("loader", "begin", "forward", "backward", "collective"),
    *("update", "updated", "end", "after", "saving"),
)
OF_A_NEWCOMER = OF_A_REPAIR[OF_A_REPAIR.index("join") :]

_NODE_FAULTS = {
    Kind.RANK: 6,
    Kind.TWO: 1,
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
    Kind.STOPPED: 2,
}
_NODE_PHASES = (When.AT_ONCE, When.DRAINING, When.GONE, When.STARTING)
_RANKS, _DEATHS, _SECONDS = 3, 10, 0.25
_KILLS, _LIVES = 100, 50
_EXACT = tuple(
    Setting(code=code, nodes=1, ranks=_RANKS, way=Way.STAYS) for code in ("exact-ddp", "exact-fsdp")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One campaign: ``draw`` takes the number of a run and the seed, and gives None behind the last one."""

    title: str
    method: str
    draw: Callable[[int, int], Session | None]


def of_nodes(number: int, seed: int) -> Session:
    """Draw faults over three nodes and a spare: four runs in five of plain Python, the others of torch."""
    chance = random.Random(f"{seed}:{number}")
    torch = number % 5 == 3
    way = Way.COLD if chance.choice(("sdk", "sdk", "none")) == "sdk" else Way.BARE
    each = 1 if torch else chance.choice((1, 1, 2))
    setting = Setting(code="gloo" if torch else "plain", nodes=3, ranks=each * SEATS, way=way)
    stopped = chance.random() < 0.5
    faults = tuple(_node_fault(chance, place) for place in range(10 if torch else 20))
    return Session(number=number, setting=setting, faults=faults, stopped=stopped)


def _node_fault(chance: random.Random, place: int) -> Fault:
    inside = place > 0 and chance.random() < 0.35
    return Fault(
        kind=chance.choices(tuple(_NODE_FAULTS), tuple(_NODE_FAULTS.values()))[0],
        whom=chance.choice((Whom.FIRST, Whom.OTHER, Whom.OTHER, Whom.SPARE)),
        when=chance.choice(_NODE_PHASES) if inside else When.TRAINING,
        place="step",
        chance=round(chance.random(), 4),
        after_s=round(chance.choice((0.0, chance.uniform(0.0, 0.5))), 3),
        for_s=round(chance.uniform(0.2, 2.5 * LEASE_S), 2),
    )


def of_survivors(number: int, seed: int) -> Session:
    """Draw deaths that survivors outlive, three runs in five over DistributedDataParallel."""
    chance = random.Random(f"{seed}:stay:{number}")
    deaths = [_death(chance, is_last=place == _DEATHS - 1) for place in range(_DEATHS)]
    faults = tuple(fault for death in deaths for fault in death)
    return Session(number=number, setting=_EXACT[number % 5 >= 3], faults=faults)


def _death(chance: random.Random, *, is_last: bool) -> list[Fault]:
    """A death at an exact place, and one time in four another in its repair."""
    rank, two = chance.randrange(_RANKS), chance.random() < 0.12
    first = Fault(
        kind=Kind.TWO if two else chance.choices((Kind.KILL, Kind.RANK, Kind.STUCK), (9, 8, 3))[0],
        whom=Whom.OTHER,
        when=When.TRAINING,
        place=ENDS if is_last else chance.choice(OF_A_STEP),
        chance=_chance_of(rank),
        after_s=round(chance.choice((0.0, chance.uniform(0.0, 0.003))), 5),
        for_s=0.0,
        ready=chance.random() < 0.75,
    )
    if chance.random() >= _SECONDS:
        return [first]
    survivor = _chance_of(rank + 1 + two)
    seconds = (
        _in_the_repair(survivor, chance.choice(OF_A_REPAIR)),
        _in_the_repair(_chance_of(rank), chance.choice(OF_A_NEWCOMER)),
        _parked(rank, round(chance.uniform(0.0, 0.05), 4)),
    )
    return [first, chance.choice(seconds)]


def _chance_of(rank: int) -> float:
    return (rank % _RANKS + 0.5) / _RANKS


def _in_the_repair(chance: float, place: str) -> Fault:
    kind, whom = Kind.KILL, Whom.OTHER
    return Fault(kind=kind, whom=whom, when=When.REPAIR, place=place, chance=chance, after_s=0.0, for_s=0.0)


def _parked(rank: int, after_s: float) -> Fault:
    """The process that waits for the place of a dead rank dies before it has it."""
    own = _in_the_repair(_chance_of(rank), "join")
    return replace(own, kind=Kind.STANDBY, when=When.DRAINING, after_s=after_s)


def of_phases(number: int, seed: int) -> Session | None:
    """Have somebody else die in every phase of a repair: a survivor, the newcomer, its parked process."""
    del seed
    if number >= len(_EXACT):
        return None
    faults: list[Fault] = []
    for at in range(len(OF_A_REPAIR) + len(OF_A_NEWCOMER) + 1):
        rank = at % _RANKS
        seconds = (
            *(_in_the_repair(_chance_of(rank + 1), place) for place in OF_A_REPAIR),
            *(_in_the_repair(_chance_of(rank), place) for place in OF_A_NEWCOMER),
            _parked(rank, 0.0),
        )
        ready = at % 2 == 0 or seconds[at].kind is Kind.STANDBY
        first = replace(seconds[at], kind=Kind.KILL, when=When.TRAINING, place="backward", ready=ready)
        faults += [replace(first, chance=_chance_of(rank)), seconds[at]]
    return Session(number=number, setting=_EXACT[number], faults=tuple(faults))


def of_places(number: int, seed: int) -> Session:
    """Draw faults, most of them deaths, over a training that goes on while places are empty."""
    return draw_of(next(one for one in SETTINGS if one.way is Way.TRAINS_ON), number, seed)


def of_kills(number: int, seed: int) -> Session:
    """Draw one rank that is killed, in a training that is handed its checkpoint, or finds it configured."""
    chance = random.Random(f"{seed}:kills:{number}")
    way = Way.BARE if chance.random() < 0.5 else Way.CONFIG
    kind = chance.choices((Kind.KILL, Kind.RANK), (3, 1))[0]
    place, rank = chance.choice(("step", "inside", "save", "saved")), chance.randrange(2)
    after_s = round(chance.uniform(0.0, 0.5), 3)
    death = replace(_in_the_repair((rank + 0.5) / 2, place), kind=kind, when=When.TRAINING, after_s=after_s)
    return Session(number=number, setting=Setting(code="ddp", nodes=1, ranks=2, way=way), faults=(death,))


def of_standbys(number: int, seed: int) -> Session:
    """Draw ranks that are killed as soon as their standbys are ready, one time in five with a standby."""
    chance = random.Random(f"{seed}:standbys:{number}")
    faults: list[Fault] = []
    for _ in range(_KILLS):
        death = replace(_in_the_repair(chance.random(), "step"), kind=Kind.RANK, when=When.TRAINING)
        faults.append(replace(death, ready=True))
        if chance.random() < 0.2:
            faults.append(replace(death, kind=Kind.STANDBY, when=When.AT_ONCE, chance=chance.random()))
    setting = Setting(code="ddp", nodes=1, ranks=2, way=Way.WARM)
    return Session(number=number, setting=setting, faults=tuple(faults), watched=True)


def of_a_day(number: int, seed: int) -> Session:
    """Draw ranks of plain Python that end in one way or another, one after the other."""
    chance = random.Random(f"{seed}:day:{number}")
    faults = tuple(
        replace(
            _in_the_repair(chance.random(), "step"),
            kind=chance.choice((Kind.KILL, Kind.RAISE, Kind.EXIT, Kind.SEGV)),
            when=When.TRAINING,
            after_s=round(chance.uniform(0.0, 0.3), 3),
        )
        for _ in range(_LIVES)
    )
    setting = Setting(code="plain", nodes=1, ranks=2, way=Way.COLD)
    return Session(number=number, setting=setting, faults=faults, watched=True)


_JUDGED = """\
Each fault is judged by what the ranks wrote down, by pages in which each rank shows when it ran last,
and by the journals. *Again after* is from the fault to the moment when every rank has done a step in
the newest incarnation; the time for which a link, a disk or a host was away is in it, and what strikes
in the way back of another shares its end."""

_METHOD = f"""\
`make soak-everything N=1000 SEED={{seed}}`: a schedule drawn from the seed, over {len(SETTINGS)} kinds of
runs, up to 12 faults in a run, a third of them in what the fault before set off. {_JUDGED} A hang
counts from its beginning (`--hang_timeout={HANG_S}s`), a lost node from its loss (lease {LEASE_S} s). The
training is one whose every bit is computed beforehand (a gradient depends on samples and not on
weights, all numbers are whole: sums are the same in any order). Faults begin behind the first save
of a run. Where ranks were left out, weights are held to those of all within 1e-5, samples exactly."""

_OF_NODES = f"""\
`make soak-nodes N={{faults}} SEED={{seed}}`: three nodes, a spare and three etcd members, each on a host of
its own; what is lost comes back as on a platform. Lease {LEASE_S} s. {_JUDGED} The kernel is asked, as
soon as a rank is born, whether one of an older incarnation, or a child of one, still lives."""

_OF_SURVIVORS = f"""\
`make soak-stay N={{faults}} SEED={{seed}}`: three torch ranks under `faultrun --standby=3`; a rank, or two at
once, killed at a place in its step that the seed draws: by itself exactly there, from outside, or
stopped and then killed; one time in four somebody else dies in the repair. {_JUDGED} Asked besides:
each step ends with the bits (parameters, buffers, optimizer, schedule, random numbers, loss) of a
training that nobody disturbed; nobody waits longer than --rejoin_timeout ({REJOIN_S} s) without all
beginning anew; survivors keep their process. A DistributedDataParallel that began anew is judged up
to there: wrapped anew it adds up in another order, with faultrun or without."""

_OF_PLACES = f"""\
`make soak-places N={{faults}} SEED={{seed}}`: four torch ranks under `faultrun --while_missing=train`, no
standby; most faults are deaths, of one rank or two, more than half of them while places are empty, in the
repair, or as a newcomer comes, which may be killed itself. {_JUDGED} Asked besides: the samples of each
step, whoever did it, are those of all ranks, and its losses their sum; once a place was empty, weights are
held to those of all within 1e-5; all places are taken again within {HEALS_S:g} s of the last fault."""

_OF_KILLS = f"""\
`make soak N={{faults}} SEED={{seed}}`: trainings of two torch ranks without the SDK, each with one rank
killed. {_JUDGED} Asked besides: recovered at the first restart, and the killed rank blamed."""

_OF_STANDBYS = f"""\
`--preset standbys`: one run of two torch ranks that are killed again and again as soon as their
standbys are ready, one time in five with a standby. {_JUDGED} Asked besides: every restart is warm but
where a standby was killed, and the supervisor has no descriptor, process or MiB more than before."""

_OF_A_DAY = f"""\
`make soak-day FAULTS={{faults}} SEED={{seed}}`: a day of faults compressed, over trainings of two ranks of
plain Python; {_LIVES} in each. {_JUDGED} Asked besides: the supervisor has no descriptor, process or MiB
more."""

PRESETS = {
    "thousand": Preset(title="A thousand faults", method=_METHOD, draw=draw),
    "nodes": Preset(title="Random faults over three nodes and a spare", method=_OF_NODES, draw=of_nodes),
    "stay": Preset(title="Deaths in trainings whose survivors stay", method=_OF_SURVIVORS, draw=of_survivors),
    "places": Preset(title="Deaths in trainings that go on", method=_OF_PLACES, draw=of_places),
    "kills": Preset(title="A rank killed in each training", method=_OF_KILLS, draw=of_kills),
    "standbys": Preset(title="Kills as soon as standbys are ready", method=_OF_STANDBYS, draw=of_standbys),
    "day": Preset(title="A day of faults", method=_OF_A_DAY, draw=of_a_day),
    "phases": Preset(title="A death in every phase of a repair", method=_OF_SURVIVORS, draw=of_phases),
}
