"""What a scene, in its process, tells the rehearsal: one line of JSON each."""

import json
from dataclasses import dataclass

from faultrun.journal.codec import decode, encode
from faultrun.rehearse.outcome import Tried, Undisturbed

Pairs = tuple[tuple[str, float], ...]
"""Losses by place, as they were printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NowDoing:
    """For the person who waits."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndisturbedTold:
    """The undisturbed part is over."""

    part: Undisturbed
    losses: Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedTold:
    """One fault is over."""

    tried: Tried


@dataclass(frozen=True, slots=True, kw_only=True)
class LossesTold:
    """What one life has printed by the end of its scene."""

    life: int
    losses: Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneFailed:
    """It could not be played."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneOver:
    """No fault follows in this scene; ``why`` may be empty."""

    why: str = ""


Told = NowDoing | UndisturbedTold | TriedTold | LossesTold | SceneFailed | SceneOver


def written_line(told: Told) -> bytes:
    """``told`` as one line."""
    return json.dumps(encode(told)).encode() + b"\n"


def told_of(line: bytes) -> Told:
    """The value of a line. CodecError where it is none."""
    told: Told = decode(json.loads(line), Told)
    return told
