"""Whether a training whose survivors stayed is what it would have been: by what each rank wrote down. Pure.

A line of a rank is the moment (monotonic clock), the process, and ``begin STEP DIGEST`` (of all that it has
as the step begins), ``done STEP LOSS`` or ``back STEP``. A training that nobody disturbed is the law.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One of ``steps_RANK``."""

    at_s: float
    pid: int
    what: str
    step: int
    value: str


Truth = Mapping[tuple[str, int], str]
"""By what and step: digests and losses of one rank in the undisturbed training."""


def parse(text: str) -> list[Line]:
    """Whole lines: a process may die in the middle of none, for each is one write."""
    found = []
    for words in (line.split() for line in text.splitlines()):
        at_s, pid, what, step, value = words
        found.append(Line(float(at_s), int(pid), what, int(step), value))
    return found


def truth_of(lines: Iterable[Line]) -> Truth:
    """What an undisturbed rank wrote."""
    return {(line.what, line.step): line.value for line in lines if line.what != "back"}


def differing(rank: int, lines: Iterable[Line], truth: Truth) -> Iterator[str]:
    """Steps that began or ended with other bits."""
    for line in lines:
        right = truth.get((line.what, line.step), line.value)
        if line.value != right:
            yield f"rank {rank}: {line.what} {line.step} with {line.value} instead of {right}"


def out_of_order(rank: int, lines: Sequence[Line]) -> Iterator[str]:
    """Steps left out, and such as were made again by a rank that had neither come back nor come anew."""
    seen, came = 0, True
    for place, line in enumerate(lines):
        came = came or _comes(lines, place)
        if line.what != "begin":
            continue
        if line.step > seen + 1:
            yield f"rank {rank}: step {line.step} began, and {seen} was the last before it"
        elif line.step <= seen and not came:
            yield f"rank {rank}: step {line.step} was made again, and no group had been lost"
        seen, came = line.step, False


def missing(rank: int, lines: Iterable[Line], last: int) -> Iterator[str]:
    """Steps that never began; the one behind the last stands for the end."""
    begun = {line.step for line in lines if line.what == "begin"}
    gone = [step for step in range(1, last + 2) if step not in begun]
    if gone:
        yield f"rank {rank}: steps {gone[0]} to {gone[-1]} are not there ({len(gone)})"


def trained_again_s(of_ranks: Iterable[Sequence[Line]], since_s: float) -> float | None:
    """When every rank had done its first step after it came back, or came; None while one has not."""
    moments = []
    for lines in of_ranks:
        again = [place for place, line in enumerate(lines) if line.at_s > since_s and _comes(lines, place)]
        done = [line.at_s for line in lines[again[-1] :] if line.what == "done"] if again else []
        if not done:
            return None
        moments.append(done[0])
    return max(moments)


def lost_steps(of_ranks: Iterable[Sequence[Line]], since_s: float) -> int:
    """The most that one rank had done and did again."""
    most = 0
    for lines in of_ranks:
        done = max((line.step for line in lines if line.what == "done" and line.at_s <= since_s), default=0)
        again = [line.step for line in lines if line.what == "begin" and line.at_s > since_s]
        most = max(most, done - min(again, default=done + 1) + 1)
    return most


def _comes(lines: Sequence[Line], place: int) -> bool:
    """Whether a rank comes back there, or another process begins in its stead."""
    line = lines[place]
    return line.what == "back" or (place > 0 and lines[place - 1].pid != line.pid)
