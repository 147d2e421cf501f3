"""What goes over ``FAULTRUN_SOCKET``, and the layout of the progress page; shared by SDK and supervisor.

The socket is a Unix stream; each message is one JSON object on one line, at
most ``MAX_LINE_BYTES`` long, with its kind under ``"kind"``. Unknown kinds
and unknown keys are ignored by both sides, so either may be newer.

worker -> supervisor
    hello   {rank, pid, incarnation, sdk, parked} first message of a connection; ``parked``: not this rank's
                                                  worker yet, but who takes its place when that dies
    step    {step, epoch?, phase?}                the first step at once, then at most about one a second
    ack     {step?}                               the gasp request was heard; newest consistent step, if any
    saved   {path, step, size_bytes, took_s, digest, replica_group, stopping}   an empty group: all ranks
    failed  {why}
    awaits_gasp {}                                a collective broke, and no request has come for a while
    can_rejoin {incarnation, trains_on?, waits?}  from now on this process outlives the death of a peer;
                                                  ``trains_on``: why it cannot share out a missing peer's
                                                  samples, "" where it can; without it it was not asked to;
                                                  ``waits``: all stand ``at_boundary``, as they were asked
    cannot_rejoin {incarnation, why}              not, or not any more: who waits for it waits in vain
    can_join {}                                   a newcomer has come to its first step: it waits for ``join``
    rejoined {incarnation, step, times}           in the new group, at this step; ``times``: what has happened
                                                  since the death by name, in seconds of CLOCK_MONOTONIC
    memory  {host_bytes, device?, device_bytes?, beside_bytes?, free_bytes?, total_bytes?}
                                                  what this process has needed at most, as ``MemoryUsed``
    memory_fault {incarnation, what}              memory of this process is bad; answered by ``peer_lost`` to
                                                  all where it is repaired in place, else it ends
    snapshot {bytes, whole?}                      wants so much shared memory for copies of its state,
                                                  ``whole``: which no other has; the next node is to
                                                  have a copy
    next_node {incarnation, at}                   where the next node takes in copies
supervisor -> worker
    gasp    {deadline_s, reason}                  save and leave; seconds from now until SIGKILL
    save    {deadline_s, step?}                   save and go on training (``faultrun checkpoint-now``)
    threads {}                                    write the stacks of all threads but the main one
    peer_lost {incarnation, timeout_s?, at_boundary?}
                                                  a rank of this incarnation's group is gone: leave the group,
                                                  and wait so long for ``join``; ``at_boundary``: none is
                                                  gone, so all wait between two steps for this word again
    join    {incarnation, store, page, timeout_s, newcomers, missing?, secret?, fds?, stdout?, stderr?,
             error_file?}
                                                  enter this incarnation: ``store`` is a path for a file, or
                                                  an address (``rendezvous_store``), which ``secret`` opens;
                                                  ``newcomers`` the ranks that were not in the last,
                                                  ``missing`` those that are not in this one either,
                                                  ``page`` what PROGRESS_VARIABLE has; the worker says hello
                                                  again. ``fds`` 1: its rank's memory snapshots come along
    snapshot_fd {fds}                             the memory: a descriptor (SCM_RIGHTS), one a message
    snapshot_refused {why}
    copies_at {incarnation, at, own, next, asked} this node takes in copies there. Who is ``asked`` tells the
                                                  others over the group's store, as node ``own`` in order,
                                                  and finds out where node ``next`` listens
    copies_end {incarnation, why}                 copies leave this node no more: it is not to be waited for
controller (``faultrun stop|status|prestop``) -> supervisor
    stop    {source, late_s?}   status {}         answered by one JSON line each; late_s: since the platform's
                                                  clock began, which is when its hook was started

The progress page is a file of one slot of ``SLOT_BYTES`` for each local rank: a step costs the worker one
write into the page cache, and the supervisor reads how far a rank had come even after SIGKILL. None maps it.
"""

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

MAX_LINE_BYTES = 65536
_TOO_LARGE = 1 << 63
_LONGEST_INTEGER = 24  # characters; int() of thousands of digits is slow, and then an error

WINDOW_WORD = "deadline_s"
"""What ``gasp``, ``save`` and ``saving`` call the length of a window, in seconds from when they are sent."""

SOCKET_VARIABLE = "FAULTRUN_SOCKET"
PROGRESS_VARIABLE = "FAULTRUN_PROGRESS"
"""``<path>:<slot>`` of this worker's place in the progress page."""

REJOIN_VARIABLE = "FAULTRUN_REJOIN"
"""Set to 1 for a newcomer: a process that takes the place of a dead rank beside ranks that live on."""

MISSING_VARIABLE = "FAULTRUN_WHILE_MISSING"
"""Set to ``train`` where ranks may train on while the place of another is empty (``can_rejoin``)."""

VERDICT_VARIABLE = "FAULTRUN_VERDICT_S"
"""How long it may take on several nodes from the error of a collective until a lost peer is known."""

FULL_VARIABLE = "FAULTRUN_WORLD_SIZE_FULL"
"""How many workers the run has when none is left out; set only where it may go on with fewer."""

ACCUMULATE_VARIABLE = "FAULTRUN_ACCUMULATE"
"""Beside it: in how many parts a rank does its share of a global batch, so that none is larger than ever."""

CHECK_VARIABLE = "FAULTRUN_SDK_CHECK"
"""``1``: the SDK compares a step that comes again with its first try."""

STACKS_SIGNAL = 61
"""A real-time signal (signal(7): 34 to 64) that no framework uses: the SDK answers it with a dump of the main
thread's stack. Sent only to a main thread whose process catches it, because others would die of it."""

UNANSWERED_SIGNAL = 62
"""A real-time signal that is never sent. A rank that catches it has no handler of its own for SIGHUP, SIGUSR1
and SIGUSR2, although it catches them: ``sdk/worker/stop_signals.py``, which says the same number."""

STACKS_FILE = "stacks_{rank}.txt"
"""Where the dump goes, beside the progress page; removed when nothing was ever asked for."""

SIGNALS_FILE = "signals_{rank}"
"""Beside it: a line for each signal to stop that the rank's program took: the signal, how large its two logs
were, and how many steps it had finished (``sdk/worker/stop_signals.py``)."""

PROGRAMS_FILE = "programs_{rank}.jsonl"
"""Beside it: which programs below the rank asked for the recovery point, and why one was not given it
(``sdk/worker/programs.py``)."""

THREADS_FILE = "threads_{rank}.txt"
"""Where the stacks of the other threads go, each time anew."""

SLOT_BYTES = 64
_SLOT = struct.Struct("<qqqdq")
_NUMBER = struct.Struct("<q")
SAVE_OFFSET = 40
"""In slot 0: one more than the step that the ranks save together, times 65536, plus how many agreed to it."""
STOP_OFFSET = 48
"""In slot 0: the global step after which all ranks of this page stop, 0 for none."""
INTERVAL_OFFSET = 56
"""In every slot: how many steps lie between two copies of its rank's state, 0 for unsaid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One slot: newest finished global step, its epoch, what the rank does now and since when.

    ``phase`` is the position of a ``WorkPhase`` in its definition order; ``at_monotonic_s`` is
    CLOCK_MONOTONIC, the same clock for all processes of a machine, and changes with every word. ``epoch`` is
    -1 when the script does not say. ``count`` is how many steps this process has finished.
    """

    step: int
    epoch: int
    phase: int
    at_monotonic_s: float
    count: int


def pack_word(step: int, epoch: int, phase: int, at_monotonic_s: float, count: int) -> bytes:
    """The slot's first bytes, with the fields of ``Progress``; all are 0 in an unused slot."""
    return _SLOT.pack(step, epoch, phase, at_monotonic_s, count)


def pack_number(number: int) -> bytes:
    """What stands at ``SAVE_OFFSET``, ``STOP_OFFSET`` or ``INTERVAL_OFFSET``."""
    return _NUMBER.pack(number)


def unpack_number(page: bytes, offset: int) -> int:
    """The number that stands at ``offset`` of ``page``; 0 where none was written."""
    number: int = _NUMBER.unpack_from(page, offset)[0]
    return number


def widest_interval(page: bytes) -> int:
    """The longest interval of any rank of this page; 0 when none has said one."""
    return max(unpack_number(page, offset) for offset in range(INTERVAL_OFFSET, len(page), SLOT_BYTES))


def unpack_progress(slot: bytes) -> Progress | None:
    """The content of one slot; None until its worker has finished a step."""
    progress = unpack_word(slot)
    return progress if progress is not None and progress.count > 0 else None


def unpack_word(slot: bytes) -> Progress | None:
    """Read one slot as soon as its worker has written to it, a step or not; None when it never wrote."""
    if len(slot) < _SLOT.size:  # the page was cut
        return None
    step, epoch, phase, at_s, count = _SLOT.unpack_from(slot)
    if at_s <= 0.0:
        return None
    return Progress(step=step, epoch=epoch, phase=phase, at_monotonic_s=at_s, count=count)


def message(kind: str, **fields: Any) -> bytes:
    """One line ready to be sent. ValueError if it would be longer than a line may be."""
    line = json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a {kind} message of {len(line)} bytes")
    return line


def parse(line: bytes) -> dict[str, Any] | None:
    """The message on one line; None for anything that is not one. Its numbers are finite and fit 64 bits.

    A number that cannot be meant reads as null: a save is not forgotten because the time that it took is NaN.
    """
    try:
        data = json.loads(line, parse_int=_integer, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and isinstance(data.get("kind"), str) else None


def _integer(digits: str) -> int | None:
    number = int(digits) if len(digits) < _LONGEST_INTEGER else _TOO_LARGE
    return number if -_TOO_LARGE <= number < _TOO_LARGE else None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None
