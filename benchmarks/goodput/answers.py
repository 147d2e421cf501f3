"""What a fault costs under a policy: how long nothing is trained, and what of the unsaved work is left."""

from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.goodput import recoveries
from benchmarks.goodput.assumptions import Assumptions
from benchmarks.goodput.failures import Fault, Kind
from benchmarks.goodput.policies import Layout, Policy, kept_kinds
from benchmarks.goodput.recoveries import Recoveries


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training. ``every_s`` lies between the end of a save and the next; infinite: none.

    ``copy_every_s`` lies between two copies in memory, where there are any.
    """

    devices: int
    layout: Layout
    every_s: float
    copy_every_s: float
    assumed: Assumptions
    measured: Recoveries


class Answer(NamedTuple):
    """What a fault costs. ``kept``: the work since the last save is not lost, but for ``again_s`` of it.

    ``saved``: it is in a file now; else it goes on in memory, and the next save is due when it was.
    """

    noticed_s: float
    hardware_s: float
    restart_s: float
    kept: bool
    saved: bool
    again_s: float

    @property
    def down_s(self) -> float:
        """From the fault to the first new step."""
        return self.noticed_s + self.hardware_s + self.restart_s


class Answers:
    """All answers of one policy in one job. What is the same for every fault is worked out once."""

    def __init__(self, policy: Policy, job: Job) -> None:
        assumed, measured = job.assumed, job.measured
        self._policy, self._assumed = policy, assumed
        self._one_node = assumed.nodes(job.devices) == 1
        self._kept = kept_kinds(policy, job.layout, one_node=self._one_node)
        self._redone_s = job.copy_every_s if job.layout is Layout.SHARDED else assumed.step_s
        self._hang_s = assumed.hang_faultrun_s if policy.ours else assumed.hang_others_s
        reinit_s = assumed.reinit_s(job.devices)
        self._all_s, self._group_s = reinit_s + assumed.load_s, assumed.group * reinit_s
        self._warm_s = self._group_s + assumed.load_s
        self._cold = measured[policy.start]
        self._warm, self._spare, self._stay = (
            measured[name] for name in (recoveries.STANDBYS, recoveries.SPARE, recoveries.STAY)
        )

    def answer(self, fault: Fault, *, spare: bool, unsaved: bool) -> Answer:
        """To ``fault``. ``spare``: one waits; ``unsaved``: there is work that no file has."""
        policy, assumed = self._policy, self._assumed
        kept = fault.kind in self._kept
        stays = policy.stays and kept and fault.kind is Kind.RANK
        noticed_s, hardware_s = 0.0, assumed.human_s if fault.human else 0.0
        if fault.kind is Kind.NODE:
            noticed_s = assumed.lease_s
            hardware_s += 0.0 if spare else assumed.replace_s
        elif fault.kind is Kind.HANG:
            noticed_s = self._hang_s
        gasp = policy.gasps and unsaved and not stays and self._somebody_lives(fault.kind)
        return Answer(
            noticed_s=noticed_s,
            hardware_s=hardware_s,
            restart_s=self._start_s(fault, stays=stays, spare=spare) + (assumed.gasp_s if gasp else 0.0),
            kept=kept,
            saved=kept and not stays,
            again_s=fault.step * self._redone_s if kept else 0.0,
        )

    def _somebody_lives(self, kind: Kind) -> bool:
        return kind is not Kind.EVERYWHERE and not (kind is Kind.NODE and self._one_node)

    def _start_s(self, fault: Fault, *, stays: bool, spare: bool) -> float:
        """From the last rank's end to the first step of all: as measured, and what a large cluster adds."""
        if stays:
            return self._stay.drawn(fault.recovery) + self._group_s
        cold_node = fault.kind is Kind.NODE and not spare  # it has no standbys, and all wait for it
        if not self._policy.standbys or cold_node:
            return self._cold.drawn(fault.recovery) + self._all_s
        warm = self._spare if fault.kind is Kind.NODE else self._warm
        return warm.drawn(fault.recovery) + self._warm_s
