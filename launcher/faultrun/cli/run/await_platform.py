"""Waiting, before anything is started, for what the platform has not finished: rank table, server list.

Signals are blocked since the first instruction; here they are taken one by one, so that a stop ends the wait
at once, as PID 1 too. There is nothing to save yet.
"""

import signal
from collections.abc import Callable
from dataclasses import replace

from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.resolve.platform import RANK_TABLE, SERVER_LIST, rank_table_named, server_list_path
from faultrun.cli.resolve.spec import Resolved, resolve
from faultrun.platforms.rank_table_wait import NotFinished, Patience, await_file
from faultrun.workers import signals

_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StoppedWaiting(Exception):
    """Somebody told us to stop by the signal ``signum``."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def resolve_when_ready(settings: Settings, around: ProcessContext, say: Callable[[str], None]) -> Resolved:
    """Resolve, with what the platform writes waited for and read until it stood still.

    Raises what ``resolve`` does, NotFinished after the wait, and StoppedWaiting. A dry run waits for nothing.
    """
    if settings.dry_run:
        return resolve(settings, around)
    wait_s = settings.rank_table_wait
    try:
        ready = _ready(settings, around, Patience(within_s=0.0, pause=_pause, say=say))
    except NotFinished:
        _find_other_mistakes(settings, around)
        ready = _ready(settings, around, Patience(within_s=wait_s, pause=_pause, say=say))
    return resolve(settings, ready)


def _find_other_mistakes(settings: Settings, around: ProcessContext) -> None:
    """A typing error should not be told after minutes of waiting."""
    try:
        resolve(settings, around)
    except NotFinished:
        return


def _ready(settings: Settings, around: ProcessContext, patience: Patience) -> ProcessContext:
    named, listed = rank_table_named(settings, around), server_list_path(around)
    try:
        if named is not None:
            return replace(around, rank_table=await_file(RANK_TABLE, named.path, patience))
        if listed:
            return replace(around, servers=await_file(SERVER_LIST, listed, patience))
    except ValueError:
        return around  # it is finished and wrong: resolve says how, and what that means
    return around


def _pause(seconds: float) -> None:
    """Wait, or raise StoppedWaiting when a stop signal is there."""
    signals.block()
    # nohup starts us with SIGHUP ignored; blocked, it would be kept for us all the same.
    ignored = {one for one in _STOPS if signal.getsignal(one) is signal.SIG_IGN}
    told = signal.sigtimedwait(set(_STOPS) - ignored, seconds)
    if told is not None:
        raise StoppedWaiting(told.si_signo)
