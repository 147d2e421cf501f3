"""Whether folders of checkpoints are what they were: a mount that dropped leaves an empty one, or none."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class Grounds:
    """The file systems of ``roots`` as this supervisor saw them last; those that are not there yet may come.

    Only its own looks are compared: device numbers change with every mount and boot.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self._devices: dict[str, int] = {}
        self.see(roots)

    def see(self, roots: Sequence[str]) -> None:
        """Take what is there now for right."""
        for root in roots:
            with suppress(OSError):
                self._devices[root] = Path(root).stat().st_dev

    def changed(self) -> bool:
        """Whether another file system lies under a root than before."""
        return any(_device_under(root) not in (before, None) for root, before in self._devices.items())


def unreadable(root: str) -> str:
    """Why nobody can say what lies in ``root``; '' if it can be read, or is not there."""
    try:
        with os.scandir(root):
            return ""
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _device_under(root: str) -> int | None:
    """The device of ``root``, or of the nearest folder above it that there is; None: nobody can say."""
    path = Path(root)
    with suppress(OSError):
        return next(place for place in (path, *path.parents) if place.exists()).stat().st_dev
    return None
