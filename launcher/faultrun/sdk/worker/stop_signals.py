"""Signals that a platform sends to every process of a job, and that would end a rank before it is asked.

A Python that becomes a rank executes this file before its program, too: it imports what ``site`` has.
"""

import _signal  # type: ignore[import-not-found]  # no stubs
import os

OUTLIVED = (1, 10, 12)
"""SIGHUP, SIGUSR1 and SIGUSR2, by Linux's numbers on x86-64 and arm64."""

_UNANSWERED = 62
"""A real-time signal that is never sent. Where ``/proc`` shows that it is caught, the process answers none of
``OUTLIVED`` by itself, although it catches them."""

_TOLD = (*OUTLIVED, 2, 15)


def child_was_told(*, reaped: bool = False) -> bool:
    """Whether a signal that means a stop has ended a child that ``multiprocessing`` knows, as data loaders.

    A platform that signals all processes of a job meets children before their rank, and loops fail for them.
    ``reaped``: also one that is reaped, as by torch's loader before it fails, or that the script ended.
    """
    from multiprocessing import process

    known = [one() for one in tuple(process._dangling.data)] if reaped else process._children  # type: ignore[attr-defined]
    return any(one and one._popen and -(one._popen.poll() or 0) in _TOLD for one in tuple(known))


def outlive() -> None:
    """Have those of ``OUTLIVED`` that would end this process do nothing; nothing where C cannot be called.

    A C function takes them, behind Python's back. Python calls them SIG_DFL, as Lightning wants to find them;
    handlers that the program installs take its place, and are noted when they are called; calls of the system
    go on (SA_RESTART); and what is executed from here has the usual action again, which it would not have of
    a signal that is ignored.
    """
    if type(install := _signal.signal) is type(outlive):
        return  # it has been done
    try:
        import _ctypes

        class Address(_ctypes._SimpleCData):  # type: ignore[type-arg]  # it takes none when it runs
            _type_ = "P"

        libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # this process
        nothing, handle = Address(_ctypes.dlsym(libc, "abs")), _ctypes.dlsym(libc, "signal")
    except (ImportError, AttributeError, OSError):
        return
    answered = any(callable(_signal.getsignal(signum)) for signum in OUTLIVED)
    for signum in OUTLIVED if answered else (*OUTLIVED, _UNANSWERED):
        if _signal.getsignal(signum) == _signal.SIG_DFL:
            _ctypes.call_function(handle, (signum, nothing))

    asked, notes = _signal.getsignal, _Notes()

    def installed(signum: int, handler: object, /) -> object:
        is_noted = signum in _TOLD and callable(handler)
        before = install(signum, _Noted(handler, notes) if is_noted else handler)
        if signum in OUTLIVED and callable(handler):
            install(_UNANSWERED, _signal.SIG_DFL)
        return before.handler if isinstance(before, _Noted) else before

    def installed_for(signum: int, /) -> object:
        return one.handler if isinstance(one := asked(signum), _Noted) else one

    # ``signal.signal``, ``getsignal`` and ``sigwait`` find them by these names.
    _signal.signal, _signal.getsignal = installed, installed_for
    for name in ("sigwait", "sigwaitinfo", "sigtimedwait"):
        setattr(_signal, name, _NotedWait(getattr(_signal, name), notes))


class _Notes:
    """Where this process notes signals, as it was told before the program changes what it was told.

    A note is a line: the signal, how much the rank had printed to its two streams, and its count of steps.
    Children that are forked note nothing: pools end theirs by SIGTERM.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._page, _, self._slot = os.environ.get("FAULTRUN_PROGRESS", "").rpartition(":")
        folder = self._page.rpartition("/")[0]
        self._path = f"{folder}/signals_{os.environ.get('RANK') or self._slot}" if folder else ""

    def note(self, signum: int) -> None:
        """Append a line; nothing where there is no room."""
        if not self._path or os.getpid() != self._pid:
            return
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            os.write(fd, b"%d %d %d %d\n" % (signum, _size_of(1), _size_of(2), self._steps()))
            os.close(fd)
        except OSError:
            pass

    def _steps(self) -> int:
        """How many steps this rank has told of by the SDK: the fifth number of its slot (``model.wire``)."""
        try:
            fd = os.open(self._page, os.O_RDONLY | os.O_CLOEXEC)
            count = int.from_bytes(os.pread(fd, 8, 64 * int(self._slot) + 32), "little")
            os.close(fd)
        except (OSError, ValueError):
            return 0
        return count


def _size_of(stream: int) -> int:
    """How much was printed to a stream, in bytes; 0 where it is closed: then all of it came later."""
    try:
        return os.fstat(stream).st_size
    except OSError:
        return 0


class _Noted:
    """A handler of the program's. That it was called is noted, for faultrun to read when the rank has ended.

    A rank that ends with 0 then may have been told to, by a process that told no other.
    """

    def __init__(self, handler: object, notes: _Notes) -> None:
        self.handler, self._notes = handler, notes

    def __call__(self, signum: int, frame: object) -> None:
        self._notes.note(signum)
        self.handler(signum, frame)  # type: ignore[operator]  # who makes one knows


class _NotedWait:
    """``signal.sigwait`` and its like: a signal that a program waits for has no handler, and is noted too."""

    def __init__(self, wait: object, notes: _Notes) -> None:
        self._wait, self._notes = wait, notes

    def __call__(self, *args: object) -> object:
        came = self._wait(*args)  # type: ignore[operator]
        if (signum := getattr(came, "si_signo", came)) in _TOLD:
            self._notes.note(signum)
        return came
