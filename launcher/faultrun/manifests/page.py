"""What every rule is given: the text, what was understood of it, and the cluster's settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from faultrun.manifests.workload import Manifest

GRACE_OVER_TIME_S = 900
"""The scheduler's default; it takes 2 to 3600 (ascend-for-volcano, plugin/const.go)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What faultrun's options and variables ask of the pod around it; None where nothing is said."""

    stop_grace_s: float | None = None
    log_dir: str | None = None
    checkpoint_dirs: tuple[str, ...] = ()
    resume: str | None = None


Reader = Callable[[tuple[str, ...], Mapping[str, str]], Wishes]
"""Reads faultrun's words and variables as faultrun will; FaultrunError for what it would refuse."""


def no_wishes(_words: tuple[str, ...], _environ: Mapping[str, str]) -> Wishes:
    """A Reader that knows no option."""
    return Wishes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One file under review. ``grace_over_time_s`` is the scheduler's, from whom ``source`` says."""

    text: str
    manifest: Manifest
    grace_over_time_s: int = GRACE_OVER_TIME_S
    source: str = "the scheduler's default"
    reader: Reader = no_wishes
