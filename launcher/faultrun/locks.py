"""One holder at a time for a path, over all processes that ask.

``flock``, which the kernel takes back when its holder ends, however it ends. A file system that has none
(NFS without its lock service, some FUSE) gets a lease: a marker beside it that its holder's thread
refreshes, and that another process may take once it was not refreshed for ``LEASE_S``.
Forked helpers close what they inherit and executed ones inherit nothing, so no lock outlives its holder.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pwd import getpwuid
from typing import Protocol

LEASE_S = 30.0
"""All who share a folder must agree on it."""

_MODE = (
    0o600  # to open a file is to be able to lock it: with 0644 any user of the machine could keep a run out
)
_NO_FLOCK = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
_HELD = frozenset({errno.EACCES, errno.EAGAIN})
_LOOK_AGAIN_S = 0.02
_KERNELS_LIST = Path("/proc/locks")


class Busy(Exception):
    """Another process holds ``path``. Who that is, is looked up when it is asked for, which should be soon.

    Each time that ``/proc/locks`` is opened the kernel waits until no processor is at a lock: 7 ms and more.
    """

    def __init__(self, path: Path, look: Callable[[], tuple[int | None, str]]) -> None:
        super().__init__(str(path))
        self._path, self._look = path, look
        self._found: tuple[int | None, str] | None = None

    @property
    def pid(self) -> int | None:
        """The holder; None for one of elsewhere, or hidden."""
        return self._holder[0]

    @property
    def holder(self) -> str:
        """The holder in words."""
        return self._holder[1]

    @property
    def _holder(self) -> tuple[int | None, str]:
        self._found = self._found or self._look()
        return self._found

    def __str__(self) -> str:
        return f"{self._path} is held by {self.holder}"


class Lock(Protocol):
    """What is held until it is released."""

    def release(self) -> None:
        """Let others have it."""


class Flock:
    """The kernel's lock on the file ``path``, readable by its owner only; not taken yet."""

    def __init__(self, path: Path) -> None:
        self._path, self._fd = path, -1

    def take(self) -> bool:
        """Take it, if it is free. OSError where the file cannot be made, or there is no flock."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = self._opened()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in _HELD:
                raise
            return False
        if not os.fstat(fd).st_nlink:  # its holder has removed it meanwhile: others lock another file
            os.close(fd)
            return False
        self._fd = fd
        return True

    def release(self) -> None:
        """Let others have it, whatever process has inherited it."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = -1

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(self._path, flags | os.O_CREAT, _MODE)
        except PermissionError:  # fs.protected_regular: in /tmp no user creates what another has made
            if not self._path.exists():
                raise
        return os.open(self._path, flags)


def hold(
    path: Path,
    *,
    wait_s: float | None = 0.0,
    native: Callable[[Path], Flock] = Flock,
    lease_s: float = LEASE_S,
) -> Lock:
    """Lock ``path`` until ``release`` or the end of this process.

    Busy when it is still held after ``wait_s``; where there is no flock, after the time in which a dead
    holder's lease ends, unless ``wait_s`` is None: then one of another machine is never taken for dead.
    OSError where the file cannot be made.
    """
    _keep_others_out(path)
    lock, until_s = native(path), time.monotonic() + (wait_s or 0.0)
    try:
        while not lock.take():
            if time.monotonic() >= until_s:
                raise Busy(path, lambda: _holder(path))
            time.sleep(_LOOK_AGAIN_S)
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        return _leased(path, wait_s, lease_s)
    return lock


@contextmanager
def held(
    path: Path, *, wait_s: float, native: Callable[[Path], Flock] = Flock, lease_s: float = LEASE_S
) -> Iterator[None]:
    """Hold ``path`` for a moment and leave no file there. Raises as ``hold`` does."""
    lock = hold(path, wait_s=wait_s, native=native, lease_s=lease_s)
    try:
        yield
    finally:
        # While it is held: a process that opened the file meanwhile sees that it has no name, and asks again.
        path.unlink(missing_ok=True)
        lock.release()


def busy(path: Path) -> Busy | None:
    """Who holds the flock on ``path`` now; None where none does, or that is unknown. Nothing is written.

    For an instant ``path`` is held for reading: ``hold`` with a wait does not mind.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Busy(path, lambda: _holder(path))
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def _leased(path: Path, wait_s: float | None, lease_s: float) -> Lock:
    from filelock import SoftFileLease, Timeout  # noqa: PLC0415  few file systems need it, and it costs megabytes

    lease = SoftFileLease(path.with_name(f"{path.name}.lease"), mode=_MODE, lease_duration=lease_s)
    try:
        patience_s = 0.0 if wait_s is None else max(wait_s, 1.5 * lease_s)
        lease.acquire(timeout=patience_s, poll_interval=_LOOK_AGAIN_S)
    except Timeout:
        owner = lease.owner
        holder = f"pid {owner.pid} on {owner.hostname}" if owner is not None else "somebody"
        raise Busy(path, lambda: (None, holder)) from None
    return lease


def _keep_others_out(path: Path) -> None:
    """A lock file that an earlier version left readable to all becomes its owner's."""
    with suppress(OSError):
        seen = path.lstat()
        if stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid() and seen.st_mode & 0o077:
            path.chmod(_MODE)


def _holder(path: Path) -> tuple[int | None, str]:
    pid = _flock_holder(path)
    return pid, described(pid)


def _flock_holder(path: Path) -> int | None:
    """Who holds a flock, by ``/proc/locks`` (proc_locks(5)); None if it is not of our pid namespace."""
    with suppress(OSError, ValueError):
        seen = path.stat()
        device = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
        for line in _KERNELS_LIST.read_text().splitlines():
            words = line.split()
            if len(words) > 5 and words[1] == "FLOCK" and words[5] == device and int(words[4]) > 0:
                return int(words[4])
    return None


def described(pid: int | None) -> str:
    """A process in words."""
    if pid is None:
        return "a process that cannot be seen from here"
    with suppress(OSError):
        folder = Path(f"/proc/{pid}")
        name, uid = (folder / "comm").read_text(errors="replace").rstrip("\n"), folder.stat().st_uid
        with suppress(KeyError):
            return f"pid {pid} ({name}, user {getpwuid(uid).pw_name})"
        return f"pid {pid} ({name}, user {uid})"
    return f"pid {pid}"
