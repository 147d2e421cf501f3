"""A view of the file system of our own, in which whatever is written goes to a scratch folder.

Every path means what it means outside; nothing is copied before it is written to (mount_namespaces(7),
Documentation/filesystems/overlayfs.rst of Linux). A user who is not root does it in a user namespace. Nothing
here can be undone: call it in a process that ends afterwards.
"""

import ctypes
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from faultrun.rehearse.isolation.mount_table import Mount, Showing, visible

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
_KEPT_FLAGS = {
    os.ST_NOSUID: 0x2,
    os.ST_NODEV: 0x4,
    os.ST_NOEXEC: 0x8,
    os.ST_NOATIME: 0x400,
    os.ST_NODIRATIME: 0x800,
    os.ST_RELATIME: 0x200000,
}
"""The flags of mount(2) for those of statvfs(3): in a user namespace a mount must keep what it had."""
_PLACE = "place"
_MEMORY = "/dev/shm"
"""Where the libraries make shared memory and semaphores: shm_overview(7)."""
_MOST_FOLDERS = 2000


class NoPrivateView(Exception):
    """This machine does not let us have one; the text says why."""


SHARED = "out"
"""The folder in the scratch folder that is the same inside and outside of the view."""


ASIDE = "aside"
"""The folder of a layer in which the kernel prepares what it moves into place."""


def enter(scratch: Path, outputs: Sequence[str] = ()) -> None:
    """Have this process, and all that come from it, see a view whose changes lie in ``scratch``.

    ``outputs`` are folders that will be written to, beside the working directory. Raises NoPrivateView, after
    which the process must end: it may be half way in.
    """
    folder = Path.cwd()
    root, shared = scratch / "root", scratch / SHARED
    root.mkdir(parents=True)
    shared.mkdir(exist_ok=True)
    above = _above([f"{folder}/.", *outputs])
    _refuse_foreign(folder)  # before: inside, a group that is not ours looks like any other
    _separate()
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE, "")
    mounts = visible(Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines())
    builder = _Builder(folders=above, root=root, scratch=scratch, mounts={one.path: one for one in mounts})
    try:
        builder.show("/")
        _mount(str(shared), f"{root}{shared}", "", _MS_BIND, "")
        os.chroot(root)
        os.chdir(folder)
    except OSError as error:
        raise NoPrivateView(f"the view cannot be entered: {error}") from error


def written(scratch: Path) -> tuple[tuple[Path, str], ...]:
    """The folders in ``scratch`` with what was written in the view, and the path that each stands for."""
    layers = sorted(scratch.glob("layer_*/written"))
    return tuple((one, (one.parent / _PLACE).read_text(encoding="utf-8")) for one in layers)


def _separate() -> None:
    """Have mounts of our own, as root or as the user that we are."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0 and _LIBC.unshare(_CLONE_NEWNS) == 0:
        return
    if _LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
        why = os.strerror(ctypes.get_errno())
        raise NoPrivateView(f"neither mounts nor users of our own are allowed here (unshare: {why})")
    try:
        Path("/proc/self/setgroups").write_bytes(b"deny")
        Path("/proc/self/uid_map").write_bytes(f"{uid} {uid} 1".encode())
        Path("/proc/self/gid_map").write_bytes(f"{gid} {gid} 1".encode())
    except OSError as error:
        raise NoPrivateView(f"a user of our own is not allowed here: {error.strerror}") from error


@dataclass(slots=True)
class _Builder:
    """Puts the view together below ``root``; what is written in it goes to layers in ``scratch``."""

    folders: Sequence[str]
    root: Path
    scratch: Path
    mounts: Mapping[str, Mount]
    layers: int = 0

    def show(self, path: str) -> None:
        """Show the folder or file ``path``, and every mount on it or below."""
        target = Path(f"{self.root}{path}".rstrip("/"))
        mount = self.mounts.get(path)
        if mount is not None and mount.showing is Showing.AS_IT_IS:
            _mount(path, target, "", _MS_BIND | _MS_REC, "")
            for one in self._mounts_below(path):
                self._beside_devices(one)
            if path == "/dev" and _MEMORY not in self.mounts:
                self._beside_devices(_MEMORY)
            return
        below = self._mounts_below(path)
        if mount is not None and (mount.showing is Showing.READ_ONLY or not Path(path).is_dir()):
            self._read_only(path, target)
        elif not self._overlaid(path, target):
            # A user who is not root may lay nothing over a folder with mounts in it, but over all beside.
            if not below:
                self._read_only(path, target)
            else:
                self._pieces(path, target)
                return
        for one in below:
            if Path(f"{self.root}{one}").exists() and self._outermost(one, path):
                self.show(one)

    def _beside_devices(self, path: str) -> None:
        """Files among the devices: shared memory is shown as it was, and changed in the view alone.

        Semaphores and the memory of data loaders are made there, so it must take what is new.
        """
        kind, target = _kind(path), Path(f"{self.root}{path}")
        if stat.S_ISREG(kind):
            self._read_only(path, target)
        elif stat.S_ISDIR(kind) and not self._overlaid(path, target):
            self._pieces(path, target)

    def _overlaid(self, path: str, target: Path) -> bool:
        self.layers += 1
        try:
            _overlay(path, target, self.scratch / f"layer_{self.layers}", self.folders)
        except NoPrivateView:
            return False
        return True

    def _pieces(self, path: str, target: Path) -> None:
        """What is in ``path`` one by one, in a folder of our own that takes what is new."""
        self.layers += 1
        layer = self.scratch / f"layer_{self.layers}"
        upper = _layer(layer, path)
        _mount(str(upper), target, "", _MS_BIND | _MS_REC, "")
        with os.scandir(path) as found:
            entries = [one for one in found if one.path not in (str(self.scratch), str(self.root))]
        for one in entries:
            there = target / one.name
            if one.is_symlink():
                there.symlink_to(Path(one.path).readlink())
            elif one.is_dir(follow_symlinks=False):
                there.mkdir()
                self.show(one.path)
            elif one.path in self.mounts or one.is_file(follow_symlinks=False):
                there.touch()
                self._read_only(one.path, there)

    def _read_only(self, path: str, target: Path) -> None:
        """Show ``path`` at ``target`` as it is, and read-only."""
        _mount(path, target, "", _MS_BIND, "")
        flags = os.statvfs(path).f_flag
        kept = sum(flag for asked, flag in _KEPT_FLAGS.items() if flags & asked)
        _mount("none", target, "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept, "")

    def _mounts_below(self, path: str) -> list[str]:
        inside = f"{path.rstrip('/')}/"
        return [one for one in self.mounts if one.startswith(inside) and one != path]

    def _outermost(self, one: str, path: str) -> bool:
        """Whether nothing else is mounted between ``path`` and ``one``."""
        others = (other for other in self.mounts if other not in (one, path))
        return not any(one.startswith(f"{other}/") and len(other) > len(path) for other in others)


def _refuse_foreign(folder: Path) -> None:
    """Raise NoPrivateView where files of ours belong to a group that another user's view does not know.

    An overlay cannot take them over when they are written to (EOVERFLOW). Root knows every group.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        return
    for place, folders, files in islice(os.walk(folder), _MOST_FOLDERS):
        for name in (".", *folders, *files):
            info = os.lstat(f"{place}/{name}")
            if info.st_uid == uid and info.st_gid != gid:
                raise NoPrivateView(
                    f"{place}/{name} belongs to a group ({info.st_gid}) that is not your first"
                )


def _kind(path: str) -> int:
    """The kind of file that ``path`` itself is; 0 where there is none, or it may not be looked at."""
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _above(outputs: Sequence[str]) -> tuple[str, ...]:
    """The folders that ``outputs`` lie in: an overlay can take over none that is another's, but for root."""
    if os.geteuid() == 0:
        return ()
    places = (Path(one).absolute() for one in outputs)
    above = {str(one) for place in places for one in place.parents if one.is_dir()}
    return tuple(sorted(above - {"/"}))


def _layer(layer: Path, place: str) -> Path:
    """A folder that takes what is written to ``place``, with its mode."""
    upper = layer / "written"
    upper.mkdir(parents=True)
    (layer / _PLACE).write_text(place, encoding="utf-8")
    upper.chmod(Path(place).stat().st_mode & 0o7777)
    return upper


def _overlay(lower: str, target: Path, layer: Path, folders: Sequence[str]) -> None:
    upper, aside = _layer(layer, lower), layer / ASIDE
    aside.mkdir()
    inside = f"{lower.rstrip('/')}/"
    for folder in folders:
        if folder.startswith(inside):
            there = upper / folder[len(inside) :]
            there.mkdir(parents=True, exist_ok=True)
            there.chmod(Path(folder).stat().st_mode & 0o7777)
    layers = ",".join(
        f"{name}dir={_escaped(path)}" for name, path in (("lower", lower), ("upper", upper), ("work", aside))
    )
    # In a user namespace an overlay may keep its notes only under names that a user may write. Without it is
    # mounted all the same, and a new folder cannot be renamed.
    own = ",userxattr" if os.geteuid() != 0 else ""
    if failed := _mounted("overlay", target, "overlay", 0, f"{layers}{own}"):
        raise NoPrivateView(f"no overlay over {lower}: {os.strerror(failed)}")


def _escaped(path: str | Path) -> str:
    return "".join(f"\\{letter}" if letter in "\\:," else letter for letter in str(path))


def _mount(source: str, target: str | Path, fstype: str, flags: int, data: str) -> None:
    if failed := _mounted(source, target, fstype, flags, data):
        raise NoPrivateView(f"{target} cannot be mounted: {os.strerror(failed)}")


def _mounted(source: str, target: str | Path, fstype: str, flags: int, data: str) -> int:
    """The errno of mount(2); 0 when it is done."""
    words = (os.fsencode(source), os.fsencode(target), fstype.encode() or None)
    if _LIBC.mount(*words, ctypes.c_ulong(flags), os.fsencode(data) or None) == 0:
        return 0
    return ctypes.get_errno()
