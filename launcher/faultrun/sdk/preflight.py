"""What a save will need is tried when saves are prepared, not first when a peer has died.

A few bytes take the way of every save (tmp, fsync, name, manifest) into the
directory of this rank, and are removed. What will fail every time is refused
here; what may pass by itself, such as a full disk, is said, and training begins.
"""

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from faultrun.errors import FaultrunError
from faultrun.sdk.files import Folder, Shelf, Stamp, numbered
from faultrun.sdk.session import Session

_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY}
    | {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.EREMOTEIO}
)
"""Reasons (errno) that are there today and gone tomorrow."""


def folder_of(directory: str | os.PathLike[str] | Folder) -> Folder:
    """A folder as given, or the one for a pure data parallel run in ``directory``."""
    return directory if isinstance(directory, Folder) else Folder(directory=directory)


def preflight(shelf: Shelf, under: str = "", save: Callable[[Path], object] | None = None) -> None:
    """Have ``save`` save something small into a directory below ``under`` in the shelf's folder; remove it.

    By default a few bytes. FaultrunError where saving can never succeed.
    """
    check(shelf.folder, shelf.session)
    place = shelf.folder.path / under
    ours = place / f".tmp.rank{shelf.session.rank}_{os.getpid()}.preflight"
    try:
        if save is None:
            shelf.save(numbered(ours / "state"), Stamp(step=0), lambda sink: sink.write(b"faultrun"))
        else:
            save(ours)
    except OSError as err:
        _judge(place, err)
    except Exception as err:  # the script's own functions and objects may raise anything
        raise FaultrunError(
            "faultrun.sdk cannot save this training",
            because=f"trying it raised {type(err).__name__}: {err}",
            hint="see the traceback; what is saved must exist, and be picklable, before the first step",
        ) from err
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(ours)


def check(folder: Folder, session: Session) -> None:
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


def _judge(place: Path, err: OSError) -> None:
    why = err.strerror or str(err)
    if err.errno not in _PASSING:
        raise FaultrunError(
            f"nothing can be saved in {place}",
            because=f"{why}: {err.filename or place}",
            hint="give a directory= that this process may write to",
        ) from err
    print(  # noqa: T201 - the worker's log is where the user of the SDK looks
        f"faultrun: nothing can be saved in {place} now ({why}); training goes on", file=sys.stderr
    )


def _refuse(because: str, hint: str) -> None:
    raise FaultrunError("faultrun.sdk cannot save this training", because=because, hint=hint)
