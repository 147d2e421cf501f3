"""One death in a training whose survivors stay, and the second in its repair: carried out as planned."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.campaigns.stay_plan import RANKS, Death, How, Whom
from benchmarks.campaigns.stay_site import Site
from benchmarks.jobs.stay_board import Place

_STRIKES_S = 60.0
_FROZEN_S = (0.05, 0.15, 0.3)


@dataclass(slots=True)
class Struck:
    """``killed``: process to moment (monotonic clock). ``second``: the rank that is to die in the repair."""

    killed: dict[int, float]
    second: int | None = None

    @property
    def since_s(self) -> float:
        """When the first died."""
        return min(self.killed.values(), default=0.0)


def strike(
    site: Site, death: Death, pids: list[int], parked: Mapping[int, int | None], *, goal: int, step: int
) -> Struck:
    """Let the ranks go on to ``goal``, and have the death in one of the steps from ``step`` on."""
    struck = Struck({})
    if death.second is not None and death.second.whom is not Whom.PARKED:
        struck.second = _armed_second(site, death, pids)
    first, *others = death.victims
    (_exactly if death.how is How.EXACT else _from_outside)(site, death, pids, goal, step, struck)
    if not struck.killed:  # it never came there, and by now all wait for the next death
        return struck
    for rank in others:
        time.sleep(death.after_s)
        _kill(pids[rank], struck)
    waiting = parked.get(first)
    if death.second is not None and death.second.whom is Whom.PARKED and waiting is not None:
        time.sleep(death.second.after_s)
        _kill(waiting, struck)
    return struck


def _armed_second(site: Site, death: Death, pids: list[int]) -> int:
    assert death.second is not None, "asked for one only"
    if death.second.whom is Whom.SURVIVOR:
        rank = next(rank for rank in range(RANKS) if rank not in death.victims)
        site.board.arm(rank, pids[rank], death.second.place, second=True)
    else:
        rank = death.victims[0]
        site.board.arm(rank, -pids[rank], death.second.place, second=True)
    return rank


def _exactly(site: Site, death: Death, pids: list[int], goal: int, step: int, struck: Struck) -> None:
    first = death.victims[0]
    site.board.arm(first, pids[first], death.place, step=step)
    site.board.limit = goal

    def over() -> bool:
        return site.board.struck_s(first) > 0 or site.waits_at(goal)  # without a save of its own in between

    site.wait(over, _STRIKES_S, 0.0005)
    if site.board.struck_s(first) > 0:
        struck.killed[pids[first]] = site.board.struck_s(first)


def _from_outside(site: Site, death: Death, pids: list[int], goal: int, step: int, struck: Struck) -> None:
    first = death.victims[0]
    site.board.limit = goal

    def there() -> bool:
        _, at, place = site.board.seen(first)
        return at > step or (at == step and place >= death.place)

    site.wait(there, _STRIKES_S, 0.0001)
    time.sleep(death.after_s)
    if death.how is How.STOPPED:
        with suppress(ProcessLookupError):
            os.kill(pids[first], signal.SIGSTOP)
        time.sleep(_FROZEN_S[first])
    _kill(pids[first], struck)


def _kill(pid: int, struck: Struck) -> None:
    moment_s = time.monotonic()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        struck.killed[pid] = moment_s


def where(site: Site, death: Death) -> str:
    """Where the first victim was as it died, by its own last word."""
    place: Place = site.board.seen(death.victims[0])[2]
    return place.name.lower()
