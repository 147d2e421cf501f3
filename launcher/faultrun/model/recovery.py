"""How long each part of a recovery took."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTimed:
    """Training goes on (or workers run, where nobody reports steps). Parts in seconds, in their order.

    ``detect_s`` is the silence before a hang was believed; the kernel tells of deaths at once. ``pause_s``
    is the backoff, and what the platform held back. ``import_s`` ends when the last rank asks to meet,
    ``rendezvous_s`` when all have met: None where nobody tells us, and ``first_step_s`` then holds them
    too. It is None where no rank reports steps. ``standbys`` counts ranks that did not start cold.
    """

    at_s: float
    incarnation: int
    total_s: float = 0.0
    detect_s: float = 0.0
    drain_s: float = 0.0
    choose_s: float = 0.0
    pause_s: float = 0.0
    rewrite_s: float = 0.0
    spawn_s: float = 0.0
    import_s: float | None = None
    rendezvous_s: float | None = None
    first_step_s: float | None = None
    standbys: int = 0


PARTS = (
    "detect_s",
    "drain_s",
    "choose_s",
    "pause_s",
    "rewrite_s",
    "spawn_s",
    "import_s",
    "rendezvous_s",
    "first_step_s",
)
"""The fields that are parts, in their order."""
