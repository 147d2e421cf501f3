"""MindSpore's compiled graphs, kept from one incarnation to the next: which folder may be shared by whom.

MindSpore 2.10 takes a kept graph as it is, with every Python number that was
a constant when it was compiled (seen: ``x * self.k`` goes on with the ``k`` of
the first run). So a folder serves one script with the same arguments, workers
and version; whether its constants change with the step at which training
resumes, only its author knows.
"""

import hashlib
from pathlib import Path

from faultrun.model.plan import Plan
from faultrun.model.spec import Command


def key(source: Path | None, command: Command, world_size: int, version: str | None) -> str:
    """A name for what may share compiled graphs. A script that cannot be read counts by its name."""
    try:
        script = source.read_bytes() if source is not None else b""
    except OSError:
        script = b""
    parts = (script, *map(str.encode, (*command.prefix, *command.script_args, str(world_size), str(version))))
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


def variables(folder: str, plan: Plan) -> dict[str, str]:
    """What a worker of ``plan`` is told; each rank keeps a folder of its own in there.

    An incarnation that did not get past its start may have left half a file: the next begins a folder anew.
    """
    if not folder:
        return {}
    return {
        "MS_COMPILER_CACHE_ENABLE": "1",
        "MS_COMPILER_CACHE_PATH": f"{folder}/{_failed_starts(plan)}",
    }


def _failed_starts(plan: Plan) -> int:
    if plan.point is None:
        return sum(restart.step < 0 for restart in plan.ledger.restarts)
    return next((one.failures for one in plan.ledger.attempts if one.path == plan.point.path), 0)
