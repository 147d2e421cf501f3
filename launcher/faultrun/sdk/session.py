"""Who this worker is and where it resumes: the environment that faultrun set, read once and checked.

Knows nothing of training. Outside faultrun there is no session, and all of the SDK does nothing.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from faultrun.model.wire import PROGRESS_VARIABLE, SOCKET_VARIABLE

DEFAULT_GRACE_S = 30.0
"""Length of the grace window when nobody says another: what container platforms give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPoint:
    """Where this worker is to go on.

    ``path`` is the checkpoint file or directory that was chosen for this rank; ``step`` the global
    step it holds (the next one to run is ``step + 1``); ``epoch`` as the
    checkpoint counts it; None where the checkpoint does not say. ``reason``
    is why the workers were started again ("fault", "stop", ...).
    """

    path: str
    step: int | None
    epoch: int | None
    reason: str
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One worker of one incarnation. ``socket`` and ``progress`` are "" where faultrun gave none."""

    rank: int = 0
    world_size: int = 1
    run_id: str = ""
    incarnation: int = 0
    grace_s: float = DEFAULT_GRACE_S
    node: str = ""
    socket: str = ""
    progress: str = ""
    error_file: str = ""
    point: RecoveryPoint | None = None
    replica_ranks: tuple[int, ...] = field(default=())


def read_session(environ: Mapping[str, str]) -> Session | None:
    """The session that ``environ`` describes; None when faultrun did not start this process."""
    if not environ.get(SOCKET_VARIABLE) and not environ.get(PROGRESS_VARIABLE):
        return None
    return read_identity(environ)


def read_identity(environ: Mapping[str, str]) -> Session:
    """Rank, world and run as any launcher sets them; alone in the world when none did."""
    rank = _number(environ, ("RANK", "RANK_ID")) or 0
    incarnation = _number(environ, ("FAULTRUN_INCARNATION", "TORCHELASTIC_RESTART_COUNT")) or 0
    return Session(
        rank=rank,
        world_size=max(_number(environ, ("WORLD_SIZE", "RANK_SIZE")) or 1, rank + 1),
        run_id=environ.get("FAULTRUN_RUN_ID", ""),
        incarnation=incarnation,
        grace_s=_seconds(environ.get("FAULTRUN_GRACE_S", "")),
        node=environ.get("FAULTRUN_NODE", "") or os.uname().nodename,
        socket=environ.get(SOCKET_VARIABLE, ""),
        progress=environ.get(PROGRESS_VARIABLE, ""),
        error_file=environ.get("TORCHELASTIC_ERROR_FILE", ""),
        point=_recovery_point(environ, incarnation),
    )


def _recovery_point(environ: Mapping[str, str], incarnation: int) -> RecoveryPoint | None:
    path = environ.get("FAULTRUN_RESUME_FROM", "")
    if not path:
        return None
    return RecoveryPoint(
        path=path,
        step=_number(environ, ("FAULTRUN_RESUME_STEP",)),
        epoch=_number(environ, ("FAULTRUN_RESUME_EPOCH",)),
        reason=environ.get("FAULTRUN_RESTART_REASON", ""),
        incarnation=incarnation,
    )


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return DEFAULT_GRACE_S
    return seconds if 0 < seconds < 1e6 else DEFAULT_GRACE_S
