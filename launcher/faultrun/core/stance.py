"""What was one process found doing? From the letter of its state, its consumption and its stack."""

from collections.abc import Callable
from dataclasses import dataclass

from faultrun.core.stacks import Frame
from faultrun.model.hang import Stance

_BUSY_SHARE = 0.2
_SPIN_SHARE = 0.5
_STARVED_SHARE = 0.5
_BUSY_IO_BYTES = 256 * 1024
_POLLS_PER_S = 2.0
"""Whoever looks for something again and again waits for it; a rank that is stuck is not woken."""
_STATES = {
    "": Stance.UNKNOWN,
    "T": Stance.STOPPED,
    "t": Stance.TRACED,
    "Z": Stance.DEAD,
    "X": Stance.DEAD,
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
class Look:
    """One rank's process over a short time.

    ``state`` is the letter of proc(5). Shares are of one processor: of the
    main thread, of its waiting for a processor (``starved_s`` in seconds), of
    the children together; ``wakes_per_s`` are the main thread's. ``io_bytes``
    were read or written by all of them. ``syscall`` is the name of a sleeping
    call if it is known. ``frames`` are of the main thread, innermost first;
    ``moved``: a second dump showed other functions; ``leaving``: the dump has
    no line of a script. For ``held_s`` it is known never to have left state D.
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


def stance(look: Look) -> Stance:
    """What the rank does. Signs of work come before signs of being stuck."""
    if look.state in _STATES:
        return _STATES[look.state]
    if look.leaving:
        return Stance.LEAVING
    if look.starved_share >= _STARVED_SHARE:
        return Stance.STARVED
    if _works(look):
        return Stance.WORKING
    if look.state == "D":
        return Stance.UNINTERRUPTIBLE
    if _meets(look):
        return Stance.WAITING
    if look.main_share >= _SPIN_SHARE:
        return Stance.SPINNING
    if look.wakes_per_s >= _POLLS_PER_S:
        return Stance.POLLING
    return Stance.SLEEPING if look.syscall in _SLEEPS else Stance.BLOCKED


def describe(found: Stance, look: Look) -> str:
    """The stance in words, with its evidence; a phrase that follows "rank 3"."""
    words = _WORDS.get(found)
    return words(look) if words is not None else "is silent"


def _works(look: Look) -> bool:
    """A thread that has computed and sleeps now has come to somewhere else: whoever spins never sleeps."""
    moves = look.main_share >= _BUSY_SHARE and (look.moved or (look.state == "S" and not _meets(look)))
    return moves or look.children_share >= _BUSY_SHARE or look.io_bytes >= _BUSY_IO_BYTES


def _meets(look: Look) -> bool:
    """Whether it stands in a collective; some poll there, and sleep between two looks."""
    return bool(look.frames) and any(place in look.frames[0].file for place in _MEETING_PLACES)


def _stuck_in_the_kernel(look: Look) -> str:
    where = f" in {look.wchan}" if look.wchan else ""
    return f"is in an uninterruptible sleep{where} (state D: a device or file system does not answer)"


def _work(look: Look) -> str:
    if look.io_bytes >= _BUSY_IO_BYTES:
        return f"reads or writes ({look.io_bytes / 1e6:.1f} MB)"
    if look.children_share >= _BUSY_SHARE:
        return f"has children at work ({look.children_share:.0%} of a core)"
    return "is at work: its stack moves"


def _in(look: Look) -> str:
    return f" in {look.syscall}" if look.syscall else ""


_WORDS: dict[Stance, Callable[[Look], str]] = {
    Stance.STOPPED: lambda _: "is stopped (state T: SIGSTOP)",
    Stance.TRACED: lambda _: "is held by a debugger (state t)",
    Stance.DEAD: lambda _: "has lost its main thread (state Z)",
    Stance.LEAVING: lambda _: "is leaving: its interpreter has begun to end",
    Stance.UNINTERRUPTIBLE: _stuck_in_the_kernel,
    Stance.SPINNING: lambda look: (
        f"spins (state {look.state}, {look.main_share:.0%} of a core, and its stack does not move)"
    ),
    Stance.SLEEPING: lambda look: f"sleeps (state {look.state}{_in(look)}; neither it nor its children work)",
    Stance.BLOCKED: lambda look: f"is blocked (state {look.state}{_in(look)})",
    Stance.POLLING: lambda look: (
        f"polls (state {look.state}{_in(look)}; woke up {look.wakes_per_s:.0f} times a second)"
    ),
    Stance.WAITING: lambda look: (
        f"waits in a collective (state {look.state}) as all others do; did every rank call the same one?"
    ),
    Stance.STARVED: lambda look: f"waits for a processor ({min(1.0, look.starved_share):.0%} of the time)",
    Stance.WORKING: _work,
}
