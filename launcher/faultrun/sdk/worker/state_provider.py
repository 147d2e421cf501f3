"""What the helper thread needs of the holder of the training state: torch, MindSpore or the script.

What a save will need is tried when saves are prepared (``preflight``), not
first when a peer has died: a few bytes take the way of every save (tmp,
fsync, name, manifest) into the directory of this rank, and are removed. What
will fail every time is refused; what may pass by itself, such as a full disk, is said, and training begins.
"""

import contextlib
import errno
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.worker.durable import size_of
from faultrun.sdk.worker.save_files import Folder, Position, Saved, SaveWriter, numbered
from faultrun.sdk.worker.training_stages import told
from faultrun.sdk.worker.update_lock import HoldLimits, NotSaved, UpdateLock

_FIRST_S = 5.0
_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY}
    | {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.EREMOTEIO}
)
"""Reasons (errno) that are there today and gone tomorrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOrder:
    """Save by ``until_s`` (monotonic clock). ``step`` is the global step that is wanted; None: the newest.

    ``leaves``: the process ends afterwards, so the main thread may be held up for good. ``peers_lost``: a
    peer is gone or stands still, so a step that talks to it never ends.
    """

    until_s: float
    leaves: bool = False
    step: int | None = None
    peers_lost: bool = False


class StateProvider(ABC):
    """Holds the training state of this worker, which the main thread changes under ``lock``."""

    def __init__(self, writer: SaveWriter, lock: UpdateLock) -> None:
        self.writer, self.lock = writer, lock
        self._last: Saved | None = None

    @abstractmethod
    def newest(self) -> int | None:
        """The newest step that could be saved now; None before the first. Any thread."""

    @abstractmethod
    def save(self, order: SaveOrder) -> Saved:
        """Save a step-consistent state, waiting for one at most until ``order.until_s``. Helper thread only.

        Raises NotSaved, OSError, or whatever the framework's writer raises.
        """

    def unfinished(self) -> bool:
        """Whether the process would be ending in the middle of training. A bare script does not say."""
        return False

    def _is_due(self, order: SaveOrder) -> bool:
        """Whether the state at the newest step is the one that ``order`` wants. NotSaved when it is past."""
        step = self.newest()
        if order.step is None or step is None:
            return order.step is None
        if step > order.step:
            raise NotSaved(f"step {order.step} is gone: this rank is at step {step}")
        return step == order.step

    def _is_written(self, step: int) -> bool:
        return self._last is not None and self._last.step == step and Path(self._last.path).exists()

    def _there_already(self, step: int) -> Saved | None:
        """The file or folder that holds this step already: written before, or what training resumed from."""
        if self._is_written(step):
            return self._last
        point = None if self.writer.session.has_stepped else self.writer.session.point
        if point is not None and point.step == step and (size_bytes := size_of(Path(point.path))):
            return Saved(
                path=point.path,
                step=step,
                size_bytes=size_bytes,
                took_s=0.0,
                digest="",
                replica_group=self.writer.folder.replica_group,
            )
        if step == 0:
            raise NotSaved("no step is finished: there is nothing to save")
        return None


def limits_of(order: SaveOrder) -> HoldLimits:
    """How long an order may wait. A rank that has lost a peer will hardly finish its first step."""
    first_s = _FIRST_S if order.peers_lost else float("inf")
    return HoldLimits(until_s=order.until_s, settle_s=0.25 if order.step is None else 0.0, first_s=first_s)


class ScriptProvider(StateProvider):
    """For scripts without a framework: ``save`` writes the whole state into the file that it is given.

    It runs in the helper thread at consistent moments. Until the script marks its updates (``updating``),
    only the inside of ``step`` is known to be consistent: the save happens there, while the main thread
    waits. FaultrunError: what it is given cannot be meant.
    """

    def __init__(self, save: Callable[[str], object], writer: SaveWriter, name: str) -> None:
        super().__init__(writer, UpdateLock())
        if not callable(save) or not isinstance(name, str) or Path(name).name != name:
            because = f"save is {save!r} and name {name!r}, not a function and the name of a file"
            hint = 'sdk.start(save=write_state, directory="ckpt", name="state.npz")'
            raise FaultrunError("faultrun.sdk cannot save this training", because=because, hint=hint)
        self._save = save
        self._name = Path(name)
        self._marked = False
        self._position: Position | None = None

    def begin(self) -> None:
        """The script starts to change its state."""
        self._marked = True
        self.lock.begin()

    def stepped(self, step: int, epoch: int | None) -> None:
        """A step is complete."""

        def note() -> None:
            self._position = Position(step, epoch)

        self.lock.boundary(note)
        self.lock.yield_to_reader()  # the next update may begin before another thread gets a turn
        if not self._marked:
            self.lock.begin()

    def newest(self) -> int | None:
        """The step that was last completed."""
        return self._position.step if self._position is not None else None

    def save(self, order: SaveOrder) -> Saved:
        """Save by the script's own function, which runs while the main thread changes nothing."""
        self.lock.hold(limits_of(order), lambda: False, lambda: self._is_due(order))
        try:
            if self._position is None:
                raise NotSaved("no step is finished: there is nothing to save")
            if not self._is_written(self._position.step) or self._last is None:
                file = f"{self._name.stem}-step_{self._position.step}{self._name.suffix}"
                place = numbered(self.writer.own_folder / file)
                self._last = self.writer.save_by_path(place, self._position, self._save)
            return self._last
        finally:
            if not order.leaves:
                self.lock.release()


def preflight(writer: SaveWriter, under: str = "", save: Callable[[Path], object] | None = None) -> None:
    """Have ``save`` save something small into a directory below ``under`` in the writer's folder; remove it.

    By default a few bytes. FaultrunError where saving can never succeed.
    """
    check_folder(writer.folder, writer.session)
    place = writer.folder.path / under
    ours = place / f".tmp.rank{writer.session.rank}_{os.getpid()}.preflight"
    try:
        if save is None:
            writer.save(numbered(ours / "state"), Position(), lambda sink: sink.write(b"faultrun"))
        else:
            save(ours)
    except OSError as err:
        why = err.strerror or str(err)
        if err.errno not in _PASSING and err.filename2 is not None:
            because = f"the file system cannot rename, by which a save appears as a whole: {why}"
            hint = "give a directory= on another file system, and copy the saves from there"
            raise FaultrunError(f"nothing can be saved in {place}", because=because, hint=hint) from None
        if err.errno not in _PASSING:
            because = f"{why}: {err.filename or place}"
            hint = "give a directory= that this process may write to"
            raise FaultrunError(f"nothing can be saved in {place}", because=because, hint=hint) from err
        told(f"nothing can be saved in {place} now ({why}); training goes on")
    except Exception as err:  # the script's own functions and objects may raise anything
        because = f"trying it raised {type(err).__name__}: {err}"
        hint = "see the traceback; what is saved must exist, and be picklable, before the first step"
        raise FaultrunError("faultrun.sdk cannot save this training", because=because, hint=hint) from err
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(ours)


def check_folder(folder: Folder, session: Session) -> None:
    """FaultrunError for a folder that cannot be meant."""
    if not isinstance(folder.directory, Path):
        _refuse(f"directory is {folder.directory!r}, which is no path", 'give a path: directory="ckpt"')
    if not isinstance(folder.keep, int) or folder.keep < 1:
        _refuse(
            f"keep is {folder.keep!r}, and the newest gasp is the one that is needed", "give keep=1 or more"
        )
    group = folder.replica_group
    world = range(session.world_size)
    if not isinstance(group, tuple) or not all(isinstance(rank, int) and rank in world for rank in group):
        _refuse(
            f"replica_group is {group!r}, and this world has the ranks 0 to {world[-1]}",
            f"give the ranks that hold the same state: replica_group=({session.rank},)",
        )
    if group and session.rank not in group:
        _refuse(
            f"replica_group {group!r} does not hold this rank, {session.rank}",
            "give the ranks that hold the same state as this one, itself among them",
        )


def _refuse(because: str, hint: str) -> None:
    raise FaultrunError("faultrun.sdk cannot save this training", because=because, hint=hint)
