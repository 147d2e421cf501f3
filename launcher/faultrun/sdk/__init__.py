"""Make a training script fault tolerant: three lines for torch, one callback for MindSpore, a few calls else.

    from faultrun import sdk

    point = sdk.resume()                          # where to go on; None: from the start
    sdk.start(save=write_state, directory="ckpt") # what to do when a peer dies or faultrun is told to stop
    for n in range(point.step + 1 if point else 1, last + 1):
        ...
        sdk.step(n)                               # step n is complete
    sdk.done()                                    # nothing is left to do, whatever ends this process

Call ``start`` (or ``sdk.torch.protect``, or make ``sdk.mindspore.DyingGasp``) in the main thread, after the
state exists and before the loop. Without faultrun every call does nothing and ``resume`` returns None.

``sdk.torch``, ``sdk.mindspore``, ``sdk.transformers``, ``sdk.accelerate`` and ``sdk.lightning`` import their
framework when they are first used.
"""

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from faultrun.model.observed.progress import WorkPhase
from faultrun.sdk.memory_fault import MemoryFault, MemoryFaultKind
from faultrun.sdk.session import ResumePoint as RecoveryPoint
from faultrun.sdk.worker.save_files import Folder, SaveWriter, folder_of
from faultrun.sdk.worker.state_provider import ScriptProvider, preflight
from faultrun.sdk.worker.worker import worker

__all__ = [
    "Folder",
    "MemoryFault",
    "MemoryFaultKind",
    "RecoveryPoint",
    "WorkPhase",
    "done",
    "is_newcomer",
    "phase",
    "resume",
    "should_stop",
    "start",
    "step",
    "updating",
]

_LONGEST_END_S = 86400.0

_script: ScriptProvider | None = None


def start(
    save: Callable[[str], object] | None = None,
    *,
    directory: str | Path | Folder | None = None,
    name: str = "gasp.ckpt",
) -> None:
    """Connect to faultrun; with ``save``, be ready to save when asked. Call it in the main thread.

    ``save(path)`` writes the whole state into the file ``path``, which does not exist yet; it runs in another
    thread while the main thread changes nothing. Files go to ``<directory>/rank_<rank>/<name's
    stem>-step_<n><its suffix>``, each with a manifest. Unless updates are marked with ``updating``, saving
    happens inside ``step`` only. ValueError: ``save`` without ``directory``. FaultrunError: nothing could
    ever be saved there, as a tiny save shows.
    """
    global _script  # noqa: PLW0603 - a process is one worker
    if (this := worker()) is None or save is None:
        return
    if directory is None:
        raise ValueError("sdk.start(save=...) needs directory=: where the saves go")
    _script = ScriptProvider(save, SaveWriter(folder_of(directory), this.session), name)
    this.keep(_script)
    preflight(_script.writer, f"rank_{this.session.rank}")
    this.point_for(_script.writer.folder.path)


def step(n: int, epoch: int | None = None) -> None:
    """Global step ``n`` (counted from 1 since the very first start) is complete. A few microseconds."""
    if (this := worker()) is not None:
        this.step(n, epoch)
        if _script is not None:
            _script.stepped(n, epoch)


@contextlib.contextmanager
def updating() -> Iterator[None]:
    """Mark a stretch in which the state changes; at all other times it may then be saved."""
    if _script is None:
        yield
        return
    _script.begin()
    with phase(WorkPhase.UPDATING):
        yield  # an exception leaves the state marked as half changed, which it is
    _script.lock.end()


@contextlib.contextmanager
def phase(what: WorkPhase | str) -> Iterator[None]:
    """Tell what this rank does for a while: each has its own limit before it is a hang.

    ValueError: unknown, or "done", which is no phase that ends (see ``done``).

    ``"evaluating"``, ``"saving"``; ``"collective"`` for waiting for other ranks;
    ``"unknown"`` for work outside of the training loop.
    """
    if (this := worker()) is None:
        yield
        return
    if (now := WorkPhase(what)) is WorkPhase.DONE:
        raise ValueError("nothing comes after being done; call sdk.done() instead of sdk.phase('done')")
    before = this.works_at(now)
    try:
        yield
    finally:
        this.works_at(before)


def done(*, ends_within_s: float = 300.0) -> None:
    """This rank has done everything and written everything; call it last, in the main thread.

    Frameworks crash and hang while they take themselves down, and a run that is complete would be repeated
    from its last save. After this call a signal that ends the process is no failure, and after
    ``ends_within_s`` SIGALRM ends a process that cannot end. An exit code other than 0 remains a failure, and
    another ``step`` takes the word back. ValueError: not a time of up to a day.
    """
    if (this := worker()) is None:
        return
    if not 0 < ends_within_s <= _LONGEST_END_S:
        raise ValueError(f"ends_within_s is {ends_within_s}, not a time of up to a day in seconds")
    this.done(ends_within_s)


def resume() -> RecoveryPoint | None:
    """Where this worker is to go on; None when training starts from nothing, or without faultrun.

    None also where the recovery point is of another program below this rank, as the log then tells.
    """
    this = worker()
    return this.point_for() if this is not None else None


def is_newcomer() -> bool:
    """Whether this process takes, or is to take, a dead rank's place while the other ranks live and train."""
    this = worker()
    return this is not None and this.session.is_newcomer


def on_peer_lost(call: Callable[[], object]) -> None:
    """Have ``call`` run, in another thread, as soon as another rank has died and this one is to live on.

    For a training that recovers by itself (``--worker_exit_codes=torchft``): it can abort what waits for that
    rank, instead of finding out by a timeout. Nothing without faultrun; what it raises is printed.
    """
    if (this := worker()) is not None:
        this.regroup.when_lost(call)


def should_stop() -> bool:
    """Whether to leave the loop here, after this step: for scripts that save and end in their own way.

    Every rank of a node gets True at the same step when the ranks meet in a
    collective every step. The process then ends with 143, whatever the script returns.
    """
    this = worker()
    return this is not None and this.should_stop()


def __getattr__(name: str) -> Any:
    if name in ("accelerate", "lightning", "mindformers", "mindspore", "torch", "transformers"):
        return import_module(f"faultrun.sdk.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
