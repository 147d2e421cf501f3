"""What all events have in common."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that was observed at ``at_s`` run-seconds, of the worker group's life ``incarnation``."""

    at_s: float
    incarnation: int
