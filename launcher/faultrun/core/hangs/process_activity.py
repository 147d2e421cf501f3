"""What was one process found doing? From the letter of its state, its consumption and its stack.

Two formats of stacks are read: faulthandler's (CPython's Python/traceback.c, ``_Py_DumpTraceback``, "Stack":
the one thread that was asked; older workers say all, newest first and the main thread last), and that of
``py-spy dump``, which names it.
"""

import re
from dataclasses import dataclass

from faultrun.model.observed.hang import Activity

_FAULTHANDLER = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_PY_SPY = re.compile(r"^    (?P<function>.+) \((?P<file>.+?)(?::(?P<line>\d+))?\)$")
_THREAD = re.compile(r"^(?:(?:Current )?[Tt]hread |Stack )")
_MAIN = '"MainThread"'
_NO_FRAME = "<no Python frame>"
_MOST_FRAMES = 100
"""faulthandler writes no more; 3.13 does not say that it left some out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One call; ``line`` is 0 when the dump does not say."""

    file: str
    line: int
    function: str

    @property
    def shown(self) -> str:
        """``train.py:57 in forward``."""
        return f"{self.file.rpartition('/')[2]}:{self.line or '?'} in {self.function}"


def main_thread(dump: str) -> tuple[Frame, ...]:
    """The main thread's frames in ``dump``, innermost first; empty when none can be read."""
    threads: list[list[str]] = []
    for line in dump.splitlines():
        if _THREAD.match(line):
            threads.append([line])
        elif threads:
            threads[-1].append(line)
    if not threads:
        return ()
    named = [thread for thread in threads if _MAIN in thread[0]]
    frames = map(_frame, (named or threads)[0 if named else -1])
    return tuple(frame for frame in frames if frame is not None)


def has_left(dump: str) -> bool:
    """Whether the main thread runs no script any more: its interpreter ends, or waits for its threads.

    A script's own lines are called from its ``<module>``; a dump that was cut off says nothing.
    """
    lines = dump.splitlines()
    began, ended = any(_THREAD.match(line) for line in lines), dump.endswith("\n")
    frames = main_thread(dump)
    whole = began and ended and len(frames) < _MOST_FRAMES and all(line.strip() != "..." for line in lines)
    known = bool(frames) or _NO_FRAME in dump
    return whole and known and all(frame.function != "<module>" for frame in frames)


def _frame(line: str) -> Frame | None:
    match = _FAULTHANDLER.match(line) or _PY_SPY.match(line)
    if match is None:
        return None
    number = match["line"] or ""
    return Frame(
        file=match["file"], line=int(number) if number.isdecimal() else 0, function=match["function"]
    )


_BUSY_SHARE, _SPIN_SHARE, _STARVED_SHARE = 0.2, 0.5, 0.5
_BUSY_IO_BYTES = 256 * 1024
_POLLS_PER_S = 2.0
"""More: a thread that polls waits. A rank that is stuck is not woken, but for
once or twice in a moment, by a signal or as it falls asleep."""
_STATES = {
    "": Activity.UNKNOWN,
    "T": Activity.STOPPED,
    "t": Activity.TRACED,
    "Z": Activity.DEAD,
    "X": Activity.DEAD,
}
_SLEEPS = frozenset({"", "nanosleep", "clock_nanosleep"})
_MEETING_PLACES = (
    "/torch/distributed/",
    "/torch/autograd/",
    "/torch/_tensor.py",
    "/torch/cuda/",
    "/torch_npu/",
    "/mindspore/",
    "/horovod/",
    "/tensorflow/python/",
    "/mpi4py/",
)
"""Library code whose innermost frame means: in a collective, or in what ends with one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """One rank's process over a short time.

    ``state`` is the letter of proc(5). Shares are of one processor: of the main thread, of its waiting for a
    processor (``starved_s`` in seconds), of the children together; ``wakes_per_s`` are the main thread's.
    ``io_bytes`` were read or written by all of them. ``syscall`` is the name of a sleeping call if it is
    known. ``frames`` are of the main thread, innermost first; ``moved``: a second dump showed other
    functions; ``leaving``: the dump has no line of a script. For ``held_s`` it is known never to have left
    state D.
    """

    rank: int
    state: str = ""
    main_share: float = 0.0
    starved_share: float = 0.0
    starved_s: float = 0.0
    wakes_per_s: float = 0.0
    children_share: float = 0.0
    io_bytes: int = 0
    wchan: str = ""
    syscall: str = ""
    frames: tuple[Frame, ...] = ()
    moved: bool = False
    leaving: bool = False
    held_s: float = 0.0


def activity_of(look: ProcessSample) -> Activity:
    """What the rank does. Signs of work come before signs of being stuck."""
    if look.state in _STATES:
        return _STATES[look.state]
    if look.leaving:
        return Activity.LEAVING
    if look.starved_share >= _STARVED_SHARE:
        return Activity.STARVED
    if _works(look):
        return Activity.WORKING
    if look.state == "D":
        return Activity.UNINTERRUPTIBLE
    if _meets(look):
        return Activity.WAITING
    if look.main_share >= _SPIN_SHARE:
        return Activity.SPINNING
    if look.wakes_per_s > _POLLS_PER_S:
        return Activity.POLLING
    return Activity.SLEEPING if look.syscall in _SLEEPS else Activity.BLOCKED


def describe(found: Activity, look: ProcessSample) -> str:
    """The stance in words, with its evidence; a phrase that follows "rank 3"."""
    if found is Activity.WORKING:
        return _work(look)
    return _WORDS.get(found, "is silent").format(
        look=look,
        wchan=f" in {look.wchan}" if look.wchan else "",
        syscall=f" in {look.syscall}" if look.syscall else "",
        starved_share=min(1.0, look.starved_share),
    )


def _works(look: ProcessSample) -> bool:
    """A thread that has computed and sleeps now is elsewhere in its program: one that spins never sleeps."""
    moves = look.main_share >= _BUSY_SHARE and (look.moved or (look.state == "S" and not _meets(look)))
    return moves or look.children_share >= _BUSY_SHARE or look.io_bytes >= _BUSY_IO_BYTES


def _meets(look: ProcessSample) -> bool:
    """Whether it stands in a collective; some poll there, and sleep between two looks."""
    return bool(look.frames) and any(place in look.frames[0].file for place in _MEETING_PLACES)


def _work(look: ProcessSample) -> str:
    if look.io_bytes >= _BUSY_IO_BYTES:
        return f"reads or writes ({look.io_bytes / 1e6:.1f} MB)"
    if look.children_share >= _BUSY_SHARE:
        return f"has children at work ({look.children_share:.0%} of a core)"
    return "is at work: its stack moves"


_WORDS = {
    Activity.STOPPED: "is stopped (state T: SIGSTOP)",
    Activity.TRACED: "is held by a debugger (state t)",
    Activity.DEAD: "has lost its main thread (state Z)",
    Activity.LEAVING: "is leaving: its interpreter has begun to end",
    Activity.UNINTERRUPTIBLE: (
        "is in an uninterruptible sleep{wchan} (state D: a device or file system does not answer)"
    ),
    Activity.SPINNING: (
        "spins (state {look.state}, {look.main_share:.0%} of a core, and its stack does not move)"
    ),
    Activity.SLEEPING: "sleeps (state {look.state}{syscall}; neither it nor its children work)",
    Activity.BLOCKED: "is blocked (state {look.state}{syscall})",
    Activity.POLLING: "polls (state {look.state}{syscall}; woke up {look.wakes_per_s:.0f} times a second)",
    Activity.WAITING: (
        "waits in a collective (state {look.state}) as all others do; did every rank call the same one?"
    ),
    Activity.STARVED: "waits for a processor ({starved_share:.0%} of the time)",
}
