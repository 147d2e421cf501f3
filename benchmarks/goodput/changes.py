"""What is varied, one at a time, to see which assumption the result hangs on."""

from collections.abc import Mapping
from typing import Any

from benchmarks.goodput.assumptions import DAY_S, LLAMA_FAILURES

REINITS_S = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

CHANGED_FOR = (
    "torchrun",
    "faultrun, restart",
    "+ gasp",
    "+ standbys",
    "+ survivors stay",
    "+ spares over nodes",
    "torchrun, given the same spares (supposed)",
)
"""The policies that a change can set apart; a shell loop and ft_launcher do as torchrun does."""

CHANGES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("6.5 faults in 1,000 node-days, as on RSC-1 [7]", {"failures_per_node_day": 0.0065}),
    ("four times the faults", {"failures_per_node_day": 4 * LLAMA_FAILURES}),
    ("25 % of the faults take a node [8]", {"node": 0.25}),
    ("78 % of them [1]", {"node": 0.78}),
    ("no hangs", {"hang": 0.0}),
    ("10 % hangs", {"hang": 0.1}),
    ("no faults that end all ranks", {"everywhere": 0.0}),
    ("30 % of them", {"everywhere": 0.3}),
    ("a platform that replaces a node in 5 min [3]", {"replace_s": 300.0}),
    ("in 1 h", {"replace_s": 3600.0}),
    ("a repair takes 7 days", {"repair_s": 7 * DAY_S}),
    ("a save stops training for 1 s (asynchronous)", {"save_s": 1.0}),
    ("for 2 min, and so do gasp and load", {"save_s": 120.0, "gasp_s": 120.0, "load_s": 120.0}),
    ("a quarter of re-init is communicators", {"group": 0.25}),
    ("all of it", {"group": 1.0}),
    ("nobody has to come", {"human": 0.0}),
)
