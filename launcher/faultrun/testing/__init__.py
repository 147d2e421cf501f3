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

from faultrun.testing.fault import VARIABLE, BadFault, Fault, Kind, Random, Trigger, parse
from faultrun.testing.injector import Injector, from_environment
from faultrun.testing.strike import InjectedError, remove_groups

__all__ = [
    "VARIABLE",
    "BadFault",
    "Fault",
    "InjectedError",
    "Injector",
    "Kind",
    "Random",
    "Trigger",
    "from_environment",
    "parse",
    "remove_groups",
]
