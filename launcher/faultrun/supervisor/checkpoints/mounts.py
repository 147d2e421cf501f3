"""Whether folders of checkpoints are what they were: a mount that dropped leaves an empty one, or none."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from faultrun.files import replace_durably
from faultrun.platforms.storage import nearest

MOUNTS_FILE = "mounts.json"


class Mounts:
    """What ``roots`` lie on, as it was when one was seen last; those that are not there yet may come.

    Device numbers change with every mount and boot: only those of this supervisor's own looks are
    compared. Where a file system is mounted stays, and is kept in ``log_dir`` for the supervisors to
    come, also for a folder that the first save has yet to make. ``anew`` forgets what another run kept.
    """

    def __init__(self, roots: Sequence[str], log_dir: Path, *, anew: bool) -> None:
        self._path = log_dir / MOUNTS_FILE
        self._devices = _devices(roots)
        self._on_disk: dict[str, str] | None = None
        self._mounts = _mounts(roots)
        with suppress(OSError, ValueError, AttributeError):
            kept = {} if anew else json.loads(self._path.read_text()).items()
            self._mounts |= {str(root): str(mount) for root, mount in kept}
        self._keep()

    def see(self, roots: Sequence[str]) -> None:
        """Take what is there now for right."""
        self._devices |= _devices(roots)
        self._mounts |= _mounts(roots)
        self._keep()

    def changed(self) -> bool:
        """Whether another file system lies under a root than before, or none any more."""
        if any(_device_under(root) not in (before, None) for root, before in self._devices.items()):
            return True
        # A folder may come to be a mount of its own, below the one that it was in.
        mounts = ((f"{_mount_of(root)}/", before.rstrip("/")) for root, before in self._mounts.items())
        return any(not mount.startswith(f"{before}/") for mount, before in mounts)

    def _keep(self) -> None:
        """All nodes wait for a survey, and a disk takes its time: what is on it need not be written again."""
        if self._mounts == self._on_disk:
            return
        with suppress(OSError):  # it is known as long as we live
            replace_durably(self._path, json.dumps(self._mounts).encode())
            self._on_disk = dict(self._mounts)


def unreadable(root: str) -> str:
    """Why it is unknown what lies in ``root``; '' if it can be read, or is not there."""
    try:
        with os.scandir(root):
            return ""
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _devices(roots: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for root in roots:
        with suppress(OSError):
            found[root] = Path(root).stat().st_dev
    return found


def _mounts(roots: Sequence[str]) -> dict[str, str]:
    return {root: _mount_of(root) for root in roots}


def _device_under(root: str) -> int | None:
    """The device of ``root``, or of the nearest folder above it that there is; None: unknown."""
    with suppress(OSError):
        return nearest(Path(root)).stat().st_dev
    return None


def _mount_of(root: str) -> str:
    """Where the file system is mounted that ``root`` lies in, or will lie in."""
    place = os.path.realpath(root)
    while not os.path.ismount(place):
        place = os.path.dirname(place)  # noqa: PTH120 - a string is all there is
    return place


def _kept(path: Path) -> dict[str, str]:
    with suppress(OSError, ValueError, AttributeError):
        return {str(root): str(mount) for root, mount in json.loads(path.read_text()).items()}
    return {}
