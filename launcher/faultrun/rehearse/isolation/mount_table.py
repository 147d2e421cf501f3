"""What is mounted where, and how each mount is shown in a private view of the file system. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

_OCTAL = re.compile(r"\\([0-7]{3})")
_AS_THEY_ARE = ("/proc", "/sys", "/dev")
"""Folders of the kernel and its devices, which accelerators need."""
_OF_DEVICES = frozenset({"devtmpfs", "devpts", "mqueue", "hugetlbfs"})
"""What is mounted below ``/dev`` and holds no files that a training could save; ``/dev/shm`` holds some."""


class Showing(Enum):
    """How a mount appears in the view."""

    AS_IT_IS = "as it is"
    COPIED_ON_WRITE = "copied on write"
    READ_ONLY = "read only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of ``/proc/self/mountinfo``: proc(5). ``parent`` is the number of the mount that it is on."""

    number: int
    parent: int
    path: str
    options: tuple[str, ...]
    fstype: str

    @property
    def showing(self) -> Showing:
        """What is done with it."""
        if self._of_the_kernel:
            return Showing.AS_IT_IS
        return Showing.READ_ONLY if "ro" in self.options else Showing.COPIED_ON_WRITE

    @property
    def _of_the_kernel(self) -> bool:
        if self.path.startswith("/dev/"):
            return self.fstype in _OF_DEVICES
        return any(self.path == one or self.path.startswith(f"{one}/") for one in _AS_THEY_ARE)


def visible(lines: Iterable[str]) -> tuple[Mount, ...]:
    """The mounts that can be seen, the outer ones first, without those of the kernel below another of them.

    The root itself is not among them. The order of ``lines`` says nothing.
    """
    every = {one.number: one for line in lines if (one := _mount(line)) is not None}
    inside = tuple(f"{one}/" for one in _AS_THEY_ARE)
    seen = [
        one
        for one in every.values()
        if one.path != "/" and not (one.showing is Showing.AS_IT_IS and one.path.startswith(inside))
    ]
    shown = [one for one in seen if _reached(one, every) and not _covered(one, every)]
    return tuple(sorted(shown, key=lambda one: (one.path.count("/"), one.path)))


def _mount(line: str) -> Mount | None:
    fields = line.split(" ")
    if "-" not in fields[6:] or not (fields[0].isdigit() and fields[1].isdigit()):
        return None
    return Mount(
        number=int(fields[0]),
        parent=int(fields[1]),
        path=_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), fields[4]),
        options=tuple(fields[5].split(",")),
        fstype=fields[fields.index("-", 6) + 1],
    )


def _covered(one: Mount, every: Mapping[int, Mount]) -> bool:
    """Whether another is mounted on its root."""
    return any(top.parent == one.number and top.path == one.path for top in every.values())


def _reached(one: Mount, every: Mapping[int, Mount]) -> bool:
    """Whether a path leads to the place where it is mounted."""
    if (under := every.get(one.parent)) is None or under is one:
        return True
    if one.path == under.path:
        return _reached(under, every)
    beside = (other for other in every.values() if other.parent == one.parent and other is not one)
    if any(one.path.startswith(f"{other.path.rstrip('/')}/") for other in beside):
        return False
    return _reached(under, every) and not _covered(under, every)
