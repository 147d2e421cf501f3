"""What a rehearsal was asked for: its own options, and the settings of the run that is rehearsed."""

import os
from dataclasses import dataclass

from faultrun.cli.options.settings import Asked, Settings, collect_for_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The rehearsal's own options, by the names of their parameters."""

    minutes: float
    faults: str | None
    as_json: bool
    diff: bool
    scratch: str | None
    isolation: str


def settings_of(asked: Asked) -> Settings:
    """What was said in every layer, as ``run`` reads it."""
    return collect_for_run(asked, os.environ)
