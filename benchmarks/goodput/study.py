"""The questions of the page: each policy at each size, the best interval, and what changes with what.

The answer is a record of plain numbers. Page, documentation and plot are made from it alone.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from benchmarks.goodput import theory
from benchmarks.goodput.answers import Job
from benchmarks.goodput.assumptions import Assumptions
from benchmarks.goodput.changes import CHANGED_FOR, CHANGES, REINITS_S
from benchmarks.goodput.failures import Fault, months
from benchmarks.goodput.policies import NO_SAVES, Layout, Policy, kept_share, policies
from benchmarks.goodput.recoveries import Recoveries
from benchmarks.goodput.simulate import Many, run_all

SIZES = (8, 64, 1024, 16_384)
PUBLISHED = (16_384, 9600)
"""Sizes of which a source tells the ETTR."""

_LARGE = (1024, 16_384)
_SEARCHED = (
    (Layout.REPLICATED, "shell loop"),
    (Layout.REPLICATED, "+ standbys"),
    (Layout.SHARDED, "+ memory snapshots"),
)
"""One for each way of losing work; the others differ from one of these by a constant for each fault."""

_LESS = 0.3
"""Of the months: what is looked at many times looks at so many."""


@dataclass(slots=True, kw_only=True)
class Study:
    """``faults``: as many months as have so many faults, for each size; the same months for every policy."""

    assumed: Assumptions
    measured: Recoveries
    over_nodes: Recoveries
    sizes: Sequence[int]
    faults: int
    seed: int
    _months: dict[tuple[Assumptions, int], list[list[Fault]]] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Everything."""
        return {
            "name": "goodput",
            "promises": [],
            "assumed": asdict(self.assumed),
            "faults": self.faults,
            "seed": self.seed,
            "sizes": list(self.sizes),
            "about": {str(size): self._about(size) for size in self.sizes},
            "measured": {
                name: {"median_s": median(one.samples_s), "n": len(one.samples_s), "source": one.source}
                for name, one in self.measured.items()
            },
            "layouts": {layout.value: self._layout(layout) for layout in Layout},
            "no_saves": {str(size): self._no_saves(size) for size in self.sizes},
            "checks": [self._check(size) for size in self.sizes],
            "searches": [self._search(layout, name) for layout, name in _SEARCHED],
            "published": {str(size): self._at(size, self.assumed, share=1.0) for size in PUBLISHED},
            "reinits": {
                "of_s": list(REINITS_S),
                **{str(size): self._reinits(size) for size in self.sizes if size in _LARGE},
            },
            "changes": self._changes(max(self.sizes)),
        }

    def best_job(self, policy: Policy, layout: Layout, devices: int, assumed: Assumptions) -> Job:
        """Saves as often as Daly says for the faults that lose what no file has, and copies likewise."""
        mtbf_s = assumed.mtbf_s(devices)
        kept = kept_share(policy, layout, devices, assumed)
        every_s = theory.daly_s(assumed.save_s, mtbf_s / max(1 - kept, 1e-6))
        copy_every_s = theory.young_s(assumed.copy_s, mtbf_s / max(kept, 1e-6))
        job = self._job(layout, devices, every_s, assumed)
        return replace(job, copy_every_s=max(assumed.step_s, copy_every_s))

    def searched_every_s(self, policy: Policy, job: Job) -> float:
        """The interval with the highest ETTR of all that were tried: by doubling, then in steps of 10 %."""

        def ettr(every_s: float) -> float:
            return self.run(policy, replace(job, every_s=every_s), share=_LESS).mean.ettr

        around_s = max((60.0 * (1 << i) for i in range(13)), key=ettr)
        return max((around_s * math.exp(0.1 * i) for i in range(-7, 8)), key=ettr)

    def run(self, policy: Policy, job: Job, share: float = 1.0) -> Many:
        """Every month of that size, or the first share of them."""
        drawn = self._drawn(job.assumed, job.devices)
        return run_all(drawn[: max(20, math.ceil(len(drawn) * share))], policy, job)

    def _drawn(self, assumed: Assumptions, devices: int) -> list[list[Fault]]:
        key = (assumed, devices)
        if key not in self._months:
            self._months[key] = months(assumed, devices, self.faults, self.seed)
        return self._months[key]

    def _job(self, layout: Layout, devices: int, every_s: float, assumed: Assumptions) -> Job:
        return Job(
            devices=devices,
            layout=layout,
            every_s=every_s,
            copy_every_s=assumed.copy_every_s,
            assumed=assumed,
            measured=self.measured,
        )

    def _about(self, devices: int) -> dict[str, float]:
        return {
            "nodes": self.assumed.nodes(devices),
            "spare_nodes": self.assumed.spare_nodes(devices),
            "mtbf_s": self.assumed.mtbf_s(devices),
            "reinit_s": self.assumed.reinit_s(devices),
            "months": len(self._drawn(self.assumed, devices)),
        }

    def _layout(self, layout: Layout) -> dict[str, Any]:
        return {
            policy.name: {str(size): self._cell(policy, layout, size) for size in self.sizes}
            for policy in policies(layout)
        }

    def _cell(self, policy: Policy, layout: Layout, devices: int) -> dict[str, Any]:
        usual = self._job(layout, devices, self.assumed.save_every_s, self.assumed)
        best = self.best_job(policy, layout, devices, self.assumed)
        return {
            "usual": _numbers(self.run(policy, usual)),
            "best": _numbers(self.run(policy, best)),
            "every_s": best.every_s,
            "copy_every_s": best.copy_every_s,
        }

    def _no_saves(self, devices: int) -> dict[str, float]:
        return _numbers(self.run(NO_SAVES, self._job(Layout.REPLICATED, devices, math.inf, self.assumed)))

    def _check(self, devices: int) -> dict[str, float]:
        """A plain restart whose every recovery takes 5 min, beside Daly's complete model."""
        restart_s, mtbf_s = 300.0, self.assumed.mtbf_s(devices)
        every_s = theory.best_s(self.assumed.save_s, mtbf_s)
        policy, job = plain(self._job(Layout.SHARDED, devices, every_s, self.assumed), restart_s)
        return {
            "devices": devices,
            "every_s": every_s,
            "simulated": self.run(policy, job).mean.ettr,
            "formula": theory.ettr(every_s, self.assumed.save_s, restart_s, mtbf_s),
        }

    def _search(self, layout: Layout, name: str) -> dict[str, Any]:
        (policy,) = (one for one in policies(layout) if one.name == name)
        rows = []
        for size in self.sizes:
            job = self.best_job(policy, layout, size, self.assumed)
            searched_s = self.searched_every_s(policy, job)
            losing = 1 - kept_share(policy, layout, size, self.assumed)
            rows.append(
                {
                    "devices": size,
                    "young_s": theory.young_s(self.assumed.save_s, self.assumed.mtbf_s(size) / losing),
                    "daly_s": job.every_s,
                    "searched_s": searched_s,
                    "ettr_daly": self.run(policy, job, _LESS).mean.ettr,
                    "ettr_searched": self.run(policy, replace(job, every_s=searched_s), _LESS).mean.ettr,
                }
            )
        return {"layout": layout.value, "policy": name, "rows": rows}

    def _reinits(self, devices: int) -> dict[str, list[float]]:
        columns = [
            self._at(devices, replace(self.assumed, reinit_8_s=one, reinit_16384_s=one)) for one in REINITS_S
        ]
        return {name: [column[name] for column in columns] for name in columns[0]}

    def _changes(self, devices: int) -> list[dict[str, Any]]:
        """One assumption at a time, for the policies that it sets apart; and other measurements."""
        rows = [("as assumed", self)]
        rows += [(what, replace(self, assumed=replace(self.assumed, **change))) for what, change in CHANGES]
        rows.append(("restarts as over 3 nodes of a loaded machine", replace(self, measured=self.over_nodes)))
        return [
            {
                "what": what,
                "ettr": {
                    name: ettr
                    for name, ettr in other._at(devices, other.assumed).items()
                    if name in CHANGED_FOR
                },
            }
            for what, other in rows
        ]

    def _at(self, devices: int, assumed: Assumptions, share: float = _LESS) -> dict[str, float]:
        """The ETTR of every policy where ranks hold the same, each saving as often as is best for it."""
        layout = Layout.REPLICATED
        return {
            policy.name: self.run(policy, self.best_job(policy, layout, devices, assumed), share).mean.ettr
            for policy in policies(layout)
        }


def plain(job: Job, restart_s: float) -> tuple[Policy, Job]:
    """The same job where every fault is a rank's and every recovery takes ``restart_s``: Daly's world."""
    assumed = replace(
        job.assumed,
        everywhere=0.0,
        hang=0.0,
        node=0.0,
        human=0.0,
        load_s=0.0,
        reinit_8_s=0.0,
        reinit_16384_s=0.0,
    )
    measured = {name: replace(one, samples_s=(restart_s,)) for name, one in job.measured.items()}
    return policies(Layout.SHARDED)[0], replace(job, assumed=assumed, measured=measured)


def _numbers(many: Many) -> dict[str, float]:
    """Mean ETTR, the month that one in twenty is worse than, and where a mean month's time went."""
    return {
        "ettr": many.mean.ettr,
        "bad_month": many.ettrs[len(many.ettrs) // 20],
        **asdict(many.mean),
    }
