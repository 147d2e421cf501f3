"""Faults on demand: rehearse how a training job dies, at a rank, step and phase of your choice or at random.

    FAULTRUN_CHAOS='kill:rank=1,step=50' faultrun --worker_num=4 train.py

A script that uses ``faultrun.sdk`` needs no change. Any other says where it is:

    from faultrun import testing

    chaos = testing.from_environment()   # does nothing unless FAULTRUN_CHAOS is set
    chaos.at("startup")
    ...
    chaos.at("step", n)
    chaos.at("save", n, path="ckpt/net-12.ckpt")

Faults are real: signals, exhausted memory, a disk without room. The grammar is in ``fault``.
"""

import functools
import os
from collections.abc import Mapping

from faultrun.testing.fault import CHAOS_VARIABLE, InjectedFault, RandomFaults, Trigger, parse
from faultrun.testing.inject import strike


class Injector:
    """``at`` is called where the script is; it strikes when that is the moment. Each fault strikes once."""

    def __init__(
        self,
        faults: tuple[InjectedFault, ...],
        chance: RandomFaults | None,
        rank: int,
        life: int,
        world_size: int,
    ) -> None:
        self._faults = [fault for fault in faults if fault.rank in (None, rank)]
        self._chance = chance.strikes(life, world_size) if chance is not None else None
        self._rank, self._life = rank, life
        self._steps = 0
        self._last: int | None = None

    def at(self, phase: Trigger | str, step: int | None = None, path: str = "") -> None:
        """The script is in ``phase``, has finished global ``step``, has written ``path``."""
        phase = Trigger(phase)
        if phase is Trigger.STEP:
            if step is not None and step == self._last:
                return  # told twice: by the script and by the SDK
            self._last = step
        due = [fault for fault in self._faults if fault.hits(self._rank, self._life, phase, step)]
        if phase is Trigger.STEP:
            self._steps += 1
            if self._chance is not None and self._chance[1] == self._steps:
                due += [self._chance[0]] if self._chance[0].rank == self._rank else []
        for fault in due:
            if fault in self._faults:
                self._faults.remove(fault)
            strike(fault, f"in {phase.value}" + (f" {step}" if step is not None else ""), path)


@functools.cache
def from_environment() -> Injector:
    """This process's injector: the faults of ``FAULTRUN_CHAOS``; it never strikes without.

    BadFault: the text is wrong.
    """
    return injector_of(os.environ)


def injector_of(environ: Mapping[str, str]) -> Injector:
    """The faults that ``environ`` describes for the worker that it describes. BadFault: the text is wrong."""
    faults, chance = parse(environ.get(CHAOS_VARIABLE, ""))
    life = int(environ.get("FAULTRUN_INCARNATION", environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
    world_size = int(environ.get("WORLD_SIZE", "1"))
    return Injector(faults, chance, rank=int(environ.get("RANK", "0")), life=life, world_size=world_size)
