"""Hostile histories, drawn from a seed: what is done to a training, to its files and to faultrun itself."""

import random
from dataclasses import dataclass
from enum import Enum


class Deed(Enum):
    """What is done to checkpoints, the newest file of one rank if nothing else is said."""

    RENAME = "renamed"
    LINK = "hard-linked"
    CUT = "cut in half"
    REMOVE = "removed"
    NEW_IN_THE_PAST = "newest dated an hour back"
    OLD_IN_THE_FUTURE = "oldest dated an hour ahead"


class Blow(Enum):
    """What is killed with SIGKILL while the supervisor lives."""

    RANK = "a rank"
    WRAPPER = "the shell around a rank"


class End(Enum):
    """How a session of faultrun ends."""

    FINISH = "by itself"
    TERM = "SIGTERM"
    TERM_TWICE = "SIGTERM twice within 20 ms"
    TERM_HUP = "SIGTERM, then SIGHUP"
    PRESTOP = "preStop, then SIGTERM"
    KILL = "SIGKILL of the supervisor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """Once training is ``after`` steps further than ever: the deeds, then the blow, at once."""

    after: int
    blow: Blow
    rank: int
    deeds: tuple[Deed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One start of faultrun on the same log_dir. ``folder_gone``: the checkpoints are not there at first."""

    strikes: tuple[Strike, ...]
    end: End
    end_after: int
    deeds_between: tuple[Deed, ...]
    folder_gone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One case. The last session ends by itself."""

    number: int
    workers: int
    guard: str
    wrapped: bool
    requeued: bool
    save_every: int
    sessions: tuple[Session, ...]

    def told(self) -> str:
        """In a few words, for the table."""
        blows = sum(len(session.strikes) for session in self.sessions)
        ends = ", ".join(session.end.value for session in self.sessions[:-1])
        marks = [self.guard, *(["wrapped"] if self.wrapped else []), *(["requeued"] if self.requeued else [])]
        return f"{self.workers} ranks {' '.join(marks)}; {blows} killed; stops: {ends or 'none'}"


def draw(number: int, seed: int) -> History:
    """Case ``number`` of the campaign: the same for the same seed, however many there are."""
    chance = random.Random(f"{seed}:{number}")
    guard = chance.choice(("sdk", "sdk", "none"))
    wrapped = chance.random() < 0.3
    workers = chance.choice((1, 2, 2, 3))
    count = chance.choice((1, 2, 2, 3, 4))
    return History(
        number=number,
        workers=workers,
        guard=guard,
        wrapped=wrapped,
        requeued=chance.random() < 0.3,
        save_every=chance.randint(3, 6),
        sessions=tuple(
            _session(chance, workers, wrapped=wrapped, place=place, last=place == count - 1)
            for place in range(count)
        ),
    )


def _session(chance: random.Random, workers: int, *, wrapped: bool, place: int, last: bool) -> Session:
    strikes = tuple(_strike(chance, workers, wrapped) for _ in range(chance.choice((0, 1, 1, 2))))
    ends = [end for end in End if end is not End.FINISH]
    return Session(
        strikes=strikes,
        end=End.FINISH if last else chance.choice(ends),
        end_after=chance.randint(4, 12),
        deeds_between=_deeds(chance) if place else (),
        folder_gone=place > 0 and chance.random() < 0.15,
    )


def _strike(chance: random.Random, workers: int, wrapped: bool) -> Strike:
    blow = chance.choice(tuple(Blow)) if wrapped else Blow.RANK
    after, rank = chance.randint(3, 12), chance.randrange(workers)
    return Strike(after=after, blow=blow, rank=rank, deeds=_deeds(chance))


def _deeds(chance: random.Random) -> tuple[Deed, ...]:
    return tuple(chance.sample(tuple(Deed), chance.choice((0, 0, 1, 1, 2))))
