"""Rehearsals that have much time and need little of it, and what their JSON says."""

import sys
from typing import Any

_SOON = """
import runpy
import sys
from faultrun.rehearse import scene
shares_s, shortest_s = scene.shares_s, float(sys.argv.pop(1))
def short(total_s):
    least_s, usual_s, most_s = shares_s(total_s)
    return min(shortest_s, least_s), usual_s, min(22.0, most_s)
scene.shares_s = short
runpy.run_module("faultrun", run_name="__main__", alter_sys=True)
"""


def rehearse_command(least_s: float = 4.8) -> tuple[str, ...]:
    """``faultrun rehearse``, but that the undisturbed part takes ``least_s`` where all goes well.

    It would take more the more time there is in all, which a busy machine may need.
    """
    return (sys.executable, "-c", _SOON, str(least_s), "rehearse")


def fault(found: dict[str, Any], name: str) -> dict[str, Any]:
    """The one fault of that name."""
    (one,) = [one for one in found["faults"] if one["fault"] == name]
    assert isinstance(one, dict)
    return one
