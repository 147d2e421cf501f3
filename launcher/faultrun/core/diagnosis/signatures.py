"""What ends a process, and what the words it leaves behind mean; the rows are in ``signature_table``.

The core may not ask the operating system; Linux has one numbering of signals on the machines that train
(x86-64, arm64), written down here. Source: signal(7), section "Signal numbering for standard signals".
"""

from collections.abc import Sequence

from faultrun.core.diagnosis.signature_table import ROWS
from faultrun.core.diagnosis.tracebacks import is_chatter
from faultrun.errors import assert_never
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.observed.evidence import FaultClass, Finding, Raised, Row

REFUSED = "refused-by-sdk"
"""What a rank's own note says of an exception of ours; nothing in a log is read for it."""

_SIGNALS = (
    "SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE "
    "SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ "
    "SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS"
)
SIGNAL_NAMES = dict(enumerate(_SIGNALS.split(), start=1))


def signal_name(signum: int) -> str:
    """SIGKILL for 9; ``signal 63`` for one that has no name."""
    return SIGNAL_NAMES.get(signum, f"signal {signum}")


def recognise(
    rows: Sequence[Row], status: ExitStatus, raised: Raised | None, lines: Sequence[str]
) -> Finding | None:
    """What the table says of a worker that ended with ``status``; ``lines`` are its log's last, oldest first.

    A refusal by our own SDK says itself what it is. Else the exception is asked first, then those that it
    came from: a program wraps what a file system or a network raised. Log lines are weaker: a program
    that met trouble and got over it prints the same words. So they are asked only where nothing else is
    known (but for faulty devices and the like), newest first, and one that speaks of a peer's end gives
    way to one of its own. Memory and disks come back: what a log says of them explains no program error, and
    no signal from outside. What a library says with less than the level of an error is trouble that it
    gets over, unless it is a device's, or one of the user's own rows says otherwise.
    """
    if raised is not None and raised.because:
        words = {"says": "refused by faultrun.sdk", "line": raised.because, "hint": raised.hint}
        return Finding(name=REFUSED, fault_class=FaultClass.DETERMINISTIC, **words)
    if raised is not None:
        text = f"{raised.kind}: {raised.message}"
        found = next((found for row in rows if (found := row.found_in(text))), None)
        if found is not None:
            return found
        if raised.kind not in PROGRAM_ERRORS:
            wrapped = [row for row in rows if row.fault_class in _PASSED_ON]
            for earlier in raised.came_from:
                found = next((found for row in wrapped if (found := row.found_in(earlier))), None)
                if found is not None:
                    return found
    if raised is not None or (isinstance(status, Signaled) and status.signum not in _LAST_WORDS):
        comes_back = raised.kind in PROGRAM_ERRORS if raised is not None else class_of(status) in _OUTSIDE
        known = _STRONG - {FaultClass.RESOURCE} if comes_back else _STRONG
        rows = [row for row in rows if row.fault_class in known]
    text = "\n".join(lines)
    rows = [row for row in rows if row.may_be_in(text)]  # of most logs nothing is left
    below = [row for row in rows if row.fault_class in _STRONG or row not in _BUILT_IN]
    follower: Finding | None = None
    for line in reversed(lines):
        for row in below if is_chatter(line) else rows:
            found = row.found_in(line)
            if found is not None and found.fault_class is not FaultClass.CONSEQUENCE:
                return found
            follower = follower or found
    return follower


def class_of(status: ExitStatus) -> FaultClass:
    """What the bare end of a process says: signals from outside are transient, its own code says nothing."""
    match status:
        case Signaled(signum=signum):
            return _SIGNAL_CLASSES.get(signum, FaultClass.UNKNOWN)
        case Exited(code=code):
            return _EXIT_CLASSES.get(code, FaultClass.UNKNOWN)
        case _:
            assert_never(status)


_ERRORS = (
    "ArithmeticError AssertionError AttributeError ImportError IndentationError IndexError IsADirectoryError "
    "KeyError LookupError ModuleNotFoundError NameError NotImplementedError OverflowError RecursionError "
    "SyntaxError TypeError UnboundLocalError ValueError ZeroDivisionError"
)
PROGRAM_ERRORS = frozenset(_ERRORS.split())
"""Built-in exceptions that the same program raises again on the same input."""

_LAST_WORDS = frozenset({6, 15})
"""SIGABRT and SIGTERM: libraries print why before they raise one of these against themselves."""

_STRONG = frozenset({FaultClass.RESOURCE, FaultClass.HARDWARE, FaultClass.PREEMPTION})

_OUTSIDE = frozenset({FaultClass.TRANSIENT})
"""Signals of this class are sent by a person or a program: SIGKILL, SIGTERM and the like."""

_PASSED_ON = frozenset({FaultClass.TRANSIENT, FaultClass.CONSEQUENCE, *_STRONG})
"""What stays true of an exception that was raised for another one."""

_BUILT_IN = frozenset(ROWS)

_SIGNAL_CLASSES = {
    1: FaultClass.TRANSIENT,
    2: FaultClass.TRANSIENT,
    9: FaultClass.TRANSIENT,
    15: FaultClass.TRANSIENT,
    24: FaultClass.RESOURCE,  # SIGXCPU: ulimit -t
    25: FaultClass.RESOURCE,  # SIGXFSZ: ulimit -f
}

_EXIT_CLASSES = {
    75: FaultClass.TRANSIENT,  # EX_TEMPFAIL of sysexits.h
    120: FaultClass.RESOURCE,  # CPython: its standard streams could not be flushed (pylifecycle.c)
    126: FaultClass.DETERMINISTIC,  # not executable, as a shell says
    127: FaultClass.DETERMINISTIC,  # not found
    143: FaultClass.TRANSIENT,  # ended by its own SIGTERM handler
}
