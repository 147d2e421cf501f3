"""Deaths in trainings whose survivors stay, drawn from a seed: whose, where, how, and who else dies."""

import random
from dataclasses import dataclass
from enum import Enum

from benchmarks.jobs.stay_board import OF_A_REPAIR, OF_A_STEP, Place

RANKS = 3
A_SESSION = 25
STEPS_A_DEATH = 16
"""From one death to the next; two thirds of it before the ranks wait for the next one."""


class How(Enum):
    """How a process ends."""

    EXACT = "by itself, there"
    OUTSIDE = "from outside"
    STOPPED = "stopped, then killed"


class Whom(Enum):
    """Who else dies while the place is taken."""

    SURVIVOR = "a survivor"
    NEWCOMER = "the newcomer"
    PARKED = "the parked standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """One more death in the repair, at ``place``; of a standby: so long after the first."""

    whom: Whom
    place: Place
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """``victims`` die, the first of them at ``place``. ``ready``: their standbys are parked by then."""

    victims: tuple[int, ...]
    place: Place
    how: How
    after_s: float
    ready: bool
    second: Second | None

    def told(self) -> str:
        """In a few words."""
        more = "" if self.second is None else f", then {self.second.whom.value}"
        if self.second is not None and self.second.whom is not Whom.PARKED:
            more += f" ({self.second.place.name.lower()})"
        return f"{self.place.name.lower()}, {self.how.value}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One job, from its start to its end with 0."""

    number: int
    mode: str
    deaths: tuple[Death, ...]

    @property
    def steps(self) -> int:
        """How long it trains."""
        return STEPS_A_DEATH * (len(self.deaths) + 1)


def sessions(deaths: int, seed: int) -> list[Session]:
    """Three in five deaths over DistributedDataParallel, the others over fully_shard."""
    of_ddp = deaths * 3 // 5
    drawn: list[Session] = []
    for mode, wanted in (("ddp", of_ddp), ("fsdp", deaths - of_ddp)):
        for first in range(0, wanted, A_SESSION):
            number = len(drawn)
            chance = random.Random(f"{seed}:{number}")
            count = min(A_SESSION, wanted - first)
            own = tuple(_death(chance, is_last=place == count - 1) for place in range(count))
            drawn.append(Session(number=number, mode=mode, deaths=own))
    return drawn


def of_phases() -> list[Session]:
    """A second death in every phase of a repair, of a survivor, the newcomer and its parked process."""
    newcomers = tuple(place for place in OF_A_REPAIR if place >= Place.JOIN)
    seconds = (
        *(Second(whom=Whom.SURVIVOR, place=place, after_s=0.0) for place in OF_A_REPAIR),
        *(Second(whom=Whom.NEWCOMER, place=place, after_s=0.0) for place in newcomers),
        Second(whom=Whom.PARKED, place=Place.JOIN, after_s=0.0),
    )
    deaths = tuple(
        Death(
            victims=(number % RANKS,),
            place=Place.BACKWARD,
            how=How.EXACT,
            after_s=0.0,
            ready=second.whom is Whom.PARKED or number % 2 == 0,
            second=second,
        )
        for number, second in enumerate(seconds)
    )
    return [Session(number=number, mode=mode, deaths=deaths) for number, mode in enumerate(("ddp", "fsdp"))]


def _death(chance: random.Random, *, is_last: bool) -> Death:
    victims = chance.sample(range(RANKS), 2 if chance.random() < 0.12 else 1)
    place = Place.ENDS if is_last else chance.choice(OF_A_STEP)
    how = chance.choices(tuple(How), (9, 8, 3))[0]
    return Death(
        victims=tuple(victims),
        place=place,
        how=how,
        after_s=round(chance.choice((0.0, chance.uniform(0.0, 0.003))), 5),
        ready=chance.random() < 0.75,
        second=_second(chance) if chance.random() < 0.25 else None,
    )


def _second(chance: random.Random) -> Second:
    whom = chance.choice(tuple(Whom))
    of_newcomers = tuple(place for place in OF_A_REPAIR if place >= Place.JOIN)
    place = chance.choice(OF_A_REPAIR if whom is Whom.SURVIVOR else of_newcomers)
    return Second(whom=whom, place=place, after_s=round(chance.uniform(0.0, 0.05), 4))
