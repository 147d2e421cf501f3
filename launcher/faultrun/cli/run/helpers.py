"""Processes of our own beside the workers, forked while the supervisor has no threads yet."""

import ctypes
import gc
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faultrun.cli.run.outlets import sidecars
from faultrun.model.spec.output import Stream
from faultrun.model.spec.run_spec import RunSpec
from faultrun.model.topology import BootId
from faultrun.terminal import BottomRow
from faultrun.workers.deadman import Deadman
from faultrun.workers.fork_server import ForkServer
from faultrun.workers.logs.log_follower import Follower
from faultrun.workers.logs.log_rotation import Rotator
from faultrun.workers.logs.streams import Streams
from faultrun.workers.process import become_subreaper
from faultrun.workers.sweep import sweep

if TYPE_CHECKING:
    from faultrun.supervisor.platform.fault_files import FaultFileWatcher

LEFTOVERS_PATIENCE_S = 10.0
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Helpers:
    """The supervisor's ends of them."""

    streams: Streams
    fault_files: "FaultFileWatcher | None"
    deadman: Deadman
    fork_server: ForkServer


def fork_helpers(
    spec: RunSpec, log_dir: Path, next_seq: int, row: BottomRow | None, boot: BootId, stack: ExitStack
) -> Helpers:
    """Start them, and see to it that no process outlives us; ``stack`` ends them.

    A follower only where a user wants to see workers' output; sidecars may end a moment after us.
    """
    gc.freeze()  # a collection that touches what is there would copy it for every helper
    _need_little_memory()
    logs = spec.logs
    # One of several nodes learns its ranks only when others have come.
    ranks = ((rank % spec.slots, rank) for rank in sorted(spec.topology.all_ranks))
    shown = any(logs.console(rank, local) is not Stream.NONE for local, rank in ranks)
    needed = shown or logs.picked_out or logs.picked_err
    follower = stack.enter_context(closing(Follower(row))) if needed else None
    rotator = stack.enter_context(closing(Rotator(logs.max_bytes))) if logs.max_bytes else None
    fault_files = fault_file_watcher_for(spec)
    if fault_files is not None:
        stack.enter_context(closing(fault_files))
    for sidecar in sidecars(spec, log_dir, next_seq, row):
        stack.enter_context(closing(sidecar))
    deadman = Deadman(boot)
    boots = frozenset({boot})
    stack.callback(lambda: deadman.leaves or sweep(boots, patience_s=LEFTOVERS_PATIENCE_S))
    become_subreaper()
    streams = Streams(logs, log_dir, follower, rotator)
    fork_server = stack.enter_context(closing(ForkServer()))
    return Helpers(streams=streams, fault_files=fault_files, deadman=deadman, fork_server=fork_server)


def _need_little_memory() -> None:
    """Give back what importing has left free, and let threads, which wait for files, have one heap together.

    What is large goes back as soon as it is free: Python's table of names is made anew after some dozens of
    restarts, and the heap would keep a megabyte of each. That is glibc's, mallopt(3); others do as they do.
    """
    libc = ctypes.CDLL(None)
    with suppress(AttributeError):
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, 128 << 10)
        libc.malloc_trim(0)


def fault_file_watcher_for(spec: RunSpec) -> "FaultFileWatcher | None":
    """Start watching what the run names; None if it names nothing. Before any thread is started."""
    files = spec.fault_files
    if not files.fault_config and not files.reset_config:
        return None
    from faultrun.supervisor.platform.fault_files import FaultFileWatcher, sources

    return FaultFileWatcher(sources(files, spec.rendezvous.rank_table_file))
