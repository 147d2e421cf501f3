"""Who a worker is told to be beside its rank, and where it works."""

import re
from dataclasses import dataclass
from enum import Enum

FOLDERS_VARIABLE = "FAULTRUN_WORKER_FOLDERS"
"""Tells a worker the ``folder`` of its identity, by which it finds those of its peers."""
_FIELDS = ("{rank}", "{local_rank}", "{node_rank}")


def folder_template(text: str) -> str:
    """A folder for each worker. ValueError: braces hold none of the three words."""
    for field in re.findall(r"\{[^}]*\}", text):
        if field not in _FIELDS:
            raise ValueError(f"{field} is none of {', '.join(_FIELDS)}")
    return text


class RankEnv(Enum):
    """Which variables tell a worker its rank: torchrun's and msrun's, or none, as where no launcher is."""

    TORCHRUN = "torchrun"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """torchrun's ``--role`` and ``--virtual-local-rank``, ``--rank_env`` and ``--worker_dir``.

    ``own_device``: each worker sees its own GPU alone, as number 0. ``folder`` is where it works, absolute,
    with ``{rank}``, ``{local_rank}`` and ``{node_rank}``; empty: where faultrun was started.
    """

    role: str = "default"
    own_device: bool = False
    folder: str = ""
    rank_env: RankEnv = RankEnv.TORCHRUN

    def folder_of(self, rank: int, local_rank: int, node_rank: int) -> str | None:
        """The folder of one worker; None where it is faultrun's own."""
        if not self.folder:
            return None
        filled = self.folder
        for field, number in zip(_FIELDS, (rank, local_rank, node_rank), strict=True):
            filled = filled.replace(field, str(number))
        return filled
