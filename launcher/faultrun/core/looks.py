"""When is a silence looked into? First when it is unusual, then ever more rarely, and when it is acted on.

The looks at one silence. A look that finds somebody at work says nothing, any
other warns; neither kills anybody. Shared by ``hang`` and ``quiet``.
"""

from dataclasses import dataclass

STOPPED_S = 10.0
"""A stopped process (state T) does nothing slowly: it is looked into then, whatever it does."""

REPEAT_S = 60.0
"""A warning is repeated after this, and then each time that the silence has doubled."""

_SOONEST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What came of the looks at the present silence. All times are lengths of the silence.

    ``warned_of`` is the rank that was warned of, None before a warning. The
    last look was at ``looked_s`` (0: none yet), the next is at ``again_s``, or
    at ``halted_s`` if the process is stopped by then. It was ``woken`` that often.
    """

    warned_of: int | None = None
    looked_s: float = 0.0
    again_s: float = 0.0
    halted_s: float = STOPPED_S
    woken: int = 0


def due_s(looks: Looks, *, unusual_s: float, acts_s: float, final_s: float) -> float:
    """The length of the silence at the next look.

    At ``acts_s`` something is done about it, unless somebody works, for which
    there is no more excuse from ``final_s`` on.
    """
    if looks.looked_s <= 0:
        return min(unusual_s, acts_s)
    ahead = [at_s for at_s in (acts_s, final_s) if at_s > looks.looked_s]
    return min(max(looks.again_s, unusual_s), *ahead) if ahead else max(looks.again_s, unusual_s)


def dismissed(looks: Looks, silent_s: float) -> Looks:
    """Somebody was found at work: the next look is when the silence has doubled."""
    return Looks(
        warned_of=looks.warned_of,
        looked_s=silent_s,
        again_s=2 * silent_s,
        halted_s=max(looks.halted_s, silent_s + _SOONEST_S),
        woken=looks.woken,
    )


def warned(looks: Looks, rank: int, silent_s: float) -> Looks:
    """A warning was given; the next comes later, and each after that later still."""
    return Looks(
        warned_of=rank,
        looked_s=silent_s,
        again_s=max(REPEAT_S, 2 * silent_s),
        halted_s=silent_s + STOPPED_S,
        woken=looks.woken,
    )


def woken(looks: Looks, rank: int, silent_s: float) -> Looks:
    """A stopped rank was woken and warned of: soon it is seen whether it was stopped again, or goes on."""
    return Looks(
        warned_of=rank,
        looked_s=silent_s,
        again_s=silent_s + STOPPED_S,
        halted_s=silent_s + min(STOPPED_S, max(_SOONEST_S, silent_s)),
        woken=looks.woken + 1,
    )
