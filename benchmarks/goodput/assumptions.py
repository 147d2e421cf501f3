"""Everything that the simulation is told and has not measured: each with its default, and why that default.

The arguments of ``python -m benchmarks.goodput`` and a table of its page are made from this one class.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from faultrun.cli.options.values import seconds
from faultrun.observe.card.card import duration

DAY_S = 86_400.0
_YEAR_S = 365 * DAY_S
LLAMA_FAILURES = 419 / 54 / 2048
"""For each node and day: 419 unexpected interruptions in 54 days of 2,048 nodes."""

TIME, SHARE, NUMBER, WHOLE = "time", "share", "number", "whole"
"""The units. Each is read and shown in its own way."""

_READ: dict[str, Callable[[str], float]] = {TIME: seconds(_YEAR_S), SHARE: float, NUMBER: float, WHOLE: int}


def _assume(default: Any, unit: str, what: str, why: str) -> Any:
    return field(default=default, metadata={"unit": unit, "what": what, "why": why})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What a cluster, its faults and a training are like. Shares are of all faults, times in seconds."""

    days: float = _assume(30.0, NUMBER, "length of a training", "a month")
    devices_per_node: int = _assume(8, WHOLE, "devices of a node", "the clusters of the sources have 8")
    failures_per_node_day: float = _assume(
        LLAMA_FAILURES,
        NUMBER,
        "faults that end a training, for each node and day",
        "Llama 3 405B: 419 unexpected interruptions in 54 days of 16,384 devices [1]",
    )
    everywhere: float = _assume(
        0.129, SHARE, "faults that end all ranks at once", "Llama 3: software bugs, 54 of 419 [1]"
    )
    hang: float = _assume(
        0.017, SHARE, "faults after which nobody ends", "Llama 3: watchdog of the collectives, 7 of 419 [1]"
    )
    node: float = _assume(
        0.415, SHARE, "faults after which the node must be replaced", "Crusoe: 41.5 % replaced hosts [2]"
    )
    human: float = _assume(
        3 / 419, SHARE, "faults that wait for a person besides", "Llama 3: 3 of 419 needed hands [1]"
    )
    human_s: float = _assume(7200.0, TIME, "that wait", "nobody publishes it; a guess")
    replace_s: float = _assume(
        900.0,
        TIME,
        "until another node is there, without a spare",
        "Crusoe promises 5 min [3], a queue hours",
    )
    repair_s: float = _assume(
        DAY_S, TIME, "until a replaced node is a spare again", "parts on site; a claim takes 3 to 14 days [4]"
    )
    spares: float = _assume(
        0.01, SHARE, "spare nodes, of all; at least one", "enough for the repairs at 16,384"
    )
    lease_s: float = _assume(10.0, TIME, "until a silent node counts as lost", "the default of `--lease_ttl`")
    hang_faultrun_s: float = _assume(
        300.0, TIME, "faultrun: until a rank that hangs is replaced", "no limit given: 5 min (docs/hangs.md)"
    )
    hang_others_s: float = _assume(
        600.0,
        TIME,
        "the others: the same",
        "NCCL's collectives time out (pytorch PR 110947); ft_launcher's heartbeats: 45 min by default [5]",
    )
    save_every_s: float = _assume(
        1800.0, TIME, "between two periodic saves", "where no other interval is named"
    )
    save_s: float = _assume(
        30.0,
        TIME,
        "training stands still for a save",
        "4 GB of each of 16,384 devices into a store of 2 TB/s [6]; asynchronous saves: 1 s",
    )
    gasp_s: float = _assume(30.0, TIME, "a dying gasp is written in", "as much as a periodic save writes")
    load_s: float = _assume(30.0, TIME, "a checkpoint is loaded in", "as much as a save writes")
    step_s: float = _assume(5.0, TIME, "a step", "a guess; it matters little")
    copy_s: float = _assume(
        0.5,
        TIME,
        "training stands still for a copy in memory",
        "4 GB at 12 ms for 100 MB, measured on one core",
    )
    copy_every_s: float = _assume(50.0, TIME, "between two such copies", "copies may take 1 % of the speed")
    reinit_8_s: float = _assume(
        10.0, TIME, "re-init at 8 devices, beyond what was measured on 2 CPU cores", "a guess; see *re-init*"
    )
    reinit_16384_s: float = _assume(
        180.0, TIME, "re-init at 16,384 devices, between them by a power law", "a guess; see *re-init*"
    )
    group: float = _assume(
        0.5,
        SHARE,
        "of re-init: communicators, which standbys and survivors set up too",
        "a guess; 0.25 and 1 below",
    )

    def __post_init__(self) -> None:
        """ValueError when the kinds of faults are more than all, or a time or a share is none."""
        if self.everywhere + self.hang + self.node > 1:
            raise ValueError("everywhere, hang and node are more than all faults")
        for one in fields(self):
            value = getattr(self, one.name)
            if value < 0 or math.isnan(value):
                raise ValueError(f"{one.name} is {value}")
            if one.metadata["unit"] is SHARE and value > 1:
                raise ValueError(f"{one.name} is a share, and {value} is more than all")

    @property
    def length_s(self) -> float:
        """How long a training is watched."""
        return self.days * DAY_S

    def nodes(self, devices: int) -> int:
        """How many nodes that many devices fill."""
        return -(-devices // self.devices_per_node)

    def mtbf_s(self, devices: int) -> float:
        """The mean time between two faults of a training on so many devices."""
        return DAY_S / (self.failures_per_node_day * self.nodes(devices))

    def spare_nodes(self, devices: int) -> int:
        """How many spares wait."""
        return max(1, math.ceil(self.nodes(devices) * self.spares))

    def reinit_s(self, devices: int) -> float:
        """What large clusters need beyond the measured seconds: communicators, devices, large models."""
        if self.reinit_8_s <= 0 or self.reinit_16384_s <= 0:
            return self.reinit_8_s if devices <= 8 else self.reinit_16384_s
        slope = math.log(self.reinit_16384_s / self.reinit_8_s) / math.log(16_384 / 8)
        return self.reinit_8_s * math.exp(slope * math.log(devices / 8))


def read(name: str, text: str) -> float:
    """An argument's value. ValueError when it is none."""
    unit: str = Assumptions.__dataclass_fields__[name].metadata["unit"]
    return _READ[unit](text)


def shown(name: str, value: float) -> str:
    """As people write it, and as ``read`` reads it."""
    unit = Assumptions.__dataclass_fields__[name].metadata["unit"]
    return duration(value) if unit is TIME else f"{value:.4g}"
