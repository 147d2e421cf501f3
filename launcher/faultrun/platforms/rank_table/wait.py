"""Waiting for a platform's file, a rank table, that is not there yet or is being written while we look.

The platform makes the file with ``{"status": "initializing"}`` when it makes the pod, and writes it when
every pod of the job has its devices; a ConfigMap may lag a minute behind. A table is used once two looks, a
pause apart, found the same bytes, or when it was not touched for a while.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from faultrun.errors import FaultrunError
from faultrun.platforms.file_watch import FileIdentity, identity_of
from faultrun.platforms.rank_table.rank_table import MOST_TABLE_BYTES
from faultrun.platforms.untrusted_files import Unfinished, read_bounded

T = TypeVar("T")

LOOK_EVERY_S = 0.5
_HINT = "the job's events say why not all its pods have devices; --rank_table_wait=TIME waits longer"
_UNTOUCHED_S, _SECOND_LOOKS_S = 5.0, 10.0


class NotFinished(FaultrunError):
    """The platform has not finished a file (EX_UNAVAILABLE): trying again later can help."""

    exit_code = 69


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited(Generic[T]):
    """What a file is called, and what reads it: Unfinished means "not yet", ValueError "never"."""

    what: str
    parse: Callable[[bytes], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """At most ``within_s``; ``pause`` waits that many seconds or raises; ``say`` tells a person."""

    within_s: float
    pause: Callable[[float], None]
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look(Generic[T]):
    """What one look found: its bytes, and a value, a mistake in it, or (None) why there is nothing yet."""

    content: bytes = b""
    found: T | ValueError | None = None
    settled: bool = False
    why: str = "it does not stop changing"


def await_file(awaited: Awaited[T], path: str, patience: Patience) -> T:
    """Return what the finished file says.

    Raises NotFinished when it is not finished in time, ValueError when it is
    finished and wrong, and whatever ``patience.pause`` raises.
    """
    began = time.monotonic()
    before: _Look[T] = _Look()
    now = _look(awaited, path)
    announced = False
    while now.found is None or not (now.settled or now.content == before.content):
        waited_s = time.monotonic() - began
        if waited_s >= max(patience.within_s, _SECOND_LOOKS_S if now.found is not None else 0.0):
            raise not_finished(awaited.what, path, now.why, waited_s)
        if now.found is None and not announced:
            where = f"{awaited.what} {Path(path).absolute()}"
            patience.say(f"waiting for the {where}, at most {patience.within_s:g} s: {now.why}")
            announced = True
        patience.pause(LOOK_EVERY_S)
        before, now = now, _look(awaited, path)
    if isinstance(now.found, ValueError):
        raise now.found
    if announced:
        patience.say(f"the {awaited.what} is finished after {time.monotonic() - began:.1f} s")
    return now.found


def not_finished(what: str, path: str, why: str, waited_s: float) -> NotFinished:
    """The error that names the file, what it said last and how long it was waited for."""
    after = f" after {waited_s:.0f} s" if waited_s >= 1 else ""
    hint = _HINT if Path(path).exists() else f"is the path right, as seen from {Path.cwd()}? {_HINT}"
    return NotFinished(f"the {what} {path} is not finished{after}", because=why, hint=hint)


def _look(awaited: Awaited[T], path: str) -> _Look[T]:
    file = Path(path)
    before = identity_of(file)
    content = b""
    try:
        content = read_bounded(file, MOST_TABLE_BYTES)
        found: T | ValueError = awaited.parse(content)
    except OSError as error:
        return _Look(why=os.strerror(error.errno) if error.errno else str(error))
    except Unfinished as error:
        return _Look(content=content, why=str(error))
    except ValueError as error:
        found = error
    return _Look(content=content, found=found, settled=_untouched(before, identity_of(file)))


def _untouched(before: FileIdentity | None, after: FileIdentity | None) -> bool:
    """Whether one look is enough: the file stood still while we read and for some time before."""
    if before is None or before != after:
        return False
    _, _, _, modified_ns, changed_ns = before
    return time.time() - max(modified_ns, changed_ns) / 1e9 > _UNTOUCHED_S
