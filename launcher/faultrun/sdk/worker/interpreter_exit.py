"""Whether this interpreter ends with 0: it has decided by the time it is taken down, and does not tell."""

import opcode
import sys
import threading
from types import FrameType
from typing import NoReturn

_RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})


class ExitWatch:
    """Knows whether the exit code will be 0.

    Frameworks crash while they are taken down, and then the code that the script earned is lost. It is 0 for
    certain in two cases, by what CPython (3.10 to 3.13) leaves behind:

    * the lowest frame of the main thread stands at its return: nothing was
      raised past it, and a module that returns ends with 0;
    * the ``SystemExit`` of the newest ``sys.exit(0)`` was dropped with no
      Python frame below it, and every frame still stands where it called:
      it was not caught, and the interpreter has taken its code.

    Everything else is no answer: an exception, ``raise SystemExit(x)`` without ``sys.exit``, a ``finally`` on
    the way, ``os._exit``. Stands before ``sys.exit``; ``begin`` while the program runs, in any thread; asked
    while it ends. Made when the SDK is imported: ``sys.exit(main())`` looks ``sys.exit`` up before ``main``
    runs.
    """

    def __init__(self) -> None:
        self._lowest: FrameType | None = None
        self._newest = 0
        self._exited_with_zero = False
        self._exit = sys.exit
        sys.exit = self._exiting

    def begin(self) -> None:
        """From now on the lowest frame of the main thread is the program's."""
        self._lowest = _lowest_frame()

    def is_zero(self) -> bool:
        """Whether the exit code is 0 for certain, short of what ends the process from here on."""
        lowest, self._lowest = self._lowest, None  # the frame holds on to the whole program
        return self._exited_with_zero or (lowest is not None and _returned(lowest))

    def dropped(self, number: int, stack: tuple[tuple[FrameType, int], ...]) -> None:
        """No frame has the ``number``-th ``SystemExit`` any more, which came from ``stack`` with 0."""
        unmoved = all(frame.f_lasti == place for frame, place in stack)
        self._exited_with_zero = number == self._newest and unmoved and _nothing_runs()

    def _exiting(self, status: object = None) -> NoReturn:
        self._newest += 1
        try:
            self._exit(status)  # type: ignore[arg-type]  # the user's, whatever it is
        except SystemExit as error:
            if _is_zero(error.code) and threading.current_thread() is threading.main_thread():
                error._faultrun = _Farewell(self, self._newest, _stack())  # type: ignore[attr-defined]
            raise


class _Farewell:
    """Goes with an exception, and tells when that is dropped."""

    def __init__(self, watch: ExitWatch, number: int, stack: tuple[tuple[FrameType, int], ...]) -> None:
        self._watch, self._number, self._stack = watch, number, stack

    def __del__(self) -> None:
        self._watch.dropped(self._number, self._stack)


def _stack() -> tuple[tuple[FrameType, int], ...]:
    """The frames that called ``sys.exit``, and at which instruction each of them did."""
    stack = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        stack.append((frame, frame.f_lasti))
        frame = frame.f_back
    return tuple(stack)


def _nothing_runs() -> bool:
    """Whether the main thread has no frame but those of this module."""
    frame: FrameType | None = sys._getframe(0)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame is None and threading.current_thread() is threading.main_thread()


def _is_zero(code: object) -> bool:
    """A process has eight bits for it."""
    return code is None or (isinstance(code, int) and code & 0xFF == 0)


def _lowest_frame() -> FrameType | None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _returned(frame: FrameType) -> bool:
    return frame.f_lasti >= 0 and opcode.opname[frame.f_code.co_code[frame.f_lasti]] in _RETURNS
