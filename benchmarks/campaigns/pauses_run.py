"""One training that pauses, or hangs, under faultrun as it comes; judged by its journal."""

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.campaigns.engine import NotPossible
from benchmarks.harness import journal
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import LOG_DIR
from benchmarks.harness.machine import crowding
from benchmarks.harness.notes import select
from benchmarks.jobs.pause_deed import HANGS, PAUSES

_SHORTEST_S, _LONGEST_S = 1.0, 120.0
_LIMITS_S = (4.0, 12.0)
_MINDSPORE_SHARE = 0.25
_EVERYBODY_SHARE = 0.3
_MINDSPORE_WAITS_S = 8.0
"""MindSpore's AllReduce on the CPU gives a silent peer up by itself after some 20 s, whoever launched it."""

_ALONE = frozenset({"load", "save"})
"""What one rank does to the whole machine; all at once would only be more of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job. A pause takes ``seconds``; a hang has no end, and ``limit_s`` by the user (0: none)."""

    number: int
    kind: str
    seconds: float
    everybody: bool
    framework: str
    limit_s: float = 0.0

    @property
    def hangs(self) -> bool:
        """Whether the rank never goes on."""
        return self.limit_s > 0


def plan(pauses: int, hangs: int, seed: int) -> list[Case]:
    """Kinds take turns; lengths are spread evenly over their orders of magnitude."""
    chance = random.Random(seed)
    kinds, stuck = tuple(PAUSES), tuple(HANGS)
    cases = [_pause(chance, number, kinds[number % len(kinds)]) for number in range(pauses)]
    for number in range(hangs):
        kind = stuck[number % len(stuck)]
        framework = "torch" if kind == "deadlock" else _framework(chance)
        hang = Case(number=pauses + number, kind=kind, seconds=0.0, everybody=False, framework=framework)
        cases.append(replace(hang, limit_s=round(chance.uniform(*_LIMITS_S), 1)))
    return cases


def _pause(chance: random.Random, number: int, kind: str) -> Case:
    case = Case(
        number=number,
        kind=kind,
        seconds=round(_SHORTEST_S * (_LONGEST_S / _SHORTEST_S) ** chance.random(), 1),
        everybody=kind not in _ALONE and chance.random() < _EVERYBODY_SHARE,
        framework=_framework(chance),
    )
    if case.framework != "mindspore" or case.seconds <= _MINDSPORE_WAITS_S:
        return case
    if kind == "kernel":  # its ranks come out of the kernel one long after the other
        return replace(case, framework="torch")
    if case.everybody:
        return case
    if kind in _ALONE:
        return replace(case, seconds=_MINDSPORE_WAITS_S)
    return replace(case, everybody=True)


def _framework(chance: random.Random) -> str:
    return "mindspore" if chance.random() < _MINDSPORE_SHARE else "torch"


VICTIM = 1
_FREEZER = Path("/sys/fs/cgroup/freezer")
_START_S, _END_S = 300.0, 300.0
_LATE_S = 3.0
_SOON_S, _SOON_STEPS, _STEP_S = 2.0, 40, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What became of a job. ``lines`` are the journal's, ``crowded`` is how much later things happened."""

    exit_code: int
    lines: list[dict[str, Any]]
    crowded: float

    @property
    def warned(self) -> list[dict[str, Any]]:
        """The warnings of a hang."""
        return journal.of(self.lines, "HangWarned")

    @property
    def acted(self) -> list[dict[str, Any]]:
        """The hangs for which a rank was replaced."""
        return journal.of(self.lines, "HangDetected")


def missing(case: Case) -> str:
    """Why this machine cannot have such a pause; empty where it can."""
    if case.kind == "file server" and not (os.geteuid() == 0 and os.access("/dev/fuse", os.W_OK)):
        return "a file system that does not answer needs root and /dev/fuse"
    return ""


def run(case: Case, folder: Path) -> Seen:
    """Train, pause or hang, train on."""
    if why := missing(case):
        raise NotPossible(why)
    crowded = crowding()
    with Launched(_command(case), folder, {}) as launched:
        launched.wait_for(lambda: bool(select(launched.notes, "hung")), within_s=_START_S, what="the pause")
        if case.kind == "frozen":
            with _frozen(launched.processes(), f"pauses-{launched.tag}"):
                time.sleep(case.seconds)
        code = launched.wait_for_the_end(within_s=case.seconds + _END_S)
        launched.kill_all()
    return Seen(exit_code=code, lines=journal.read(folder), crowded=max(crowded, crowding()))


def judge(case: Case, seen: Seen) -> list[str]:
    """What was promised and not kept."""
    wrong = [f"exit code {seen.exit_code}"] if seen.exit_code else []
    return [*wrong, *(_wrong_hang(case, seen) if case.hangs else _wrong_pause(seen))]


def _command(case: Case) -> tuple[str, ...]:
    limit = (f"--hang_limits=step={case.limit_s:g}s,checkpoint={case.limit_s:g}s",) if case.hangs else ()
    options = ("--worker_num=2", f"--log_dir={LOG_DIR}", "--checkpoint_dir=checkpoints", "--standby=none")
    script = str(ROOT / "benchmarks" / "jobs" / f"hang_{case.framework}.py")
    words = (f"--deed={case.kind}", f"--seconds={case.seconds:g}", f"--step_s={_STEP_S}")
    everybody = ("--everybody",) if case.everybody else ()
    return (sys.executable, "-m", "faultrun", *options, *limit, script, *words, *everybody)


def _wrong_pause(seen: Seen) -> Iterator[str]:
    for line in seen.acted:
        yield f"rank {line['rank']} was replaced after {line['silent_s']} s: {line['because']}"
    if len(journal.of(seen.lines, "IncarnationStarted")) != 1:
        yield "it was restarted"


def _wrong_hang(case: Case, seen: Seen) -> Iterator[str]:
    warned, acted, crowded = seen.warned, seen.acted, seen.crowded
    if [line["rank"] for line in acted] != [VICTIM]:
        yield f"replaced: {[line['rank'] for line in acted]}, meant rank {VICTIM} once"
    for line in acted:
        if line["silent_s"] > case.limit_s + _LATE_S * crowded:
            yield f"replaced after {line['silent_s']} s, the limit is {case.limit_s:g} s"
    if case.kind == "saves":  # where a silence is usual for a minute
        return
    soon_s = max(_SOON_S, _SOON_STEPS * _STEP_S) * crowded
    if not warned or warned[0]["silent_s"] > soon_s:
        yield f"no warning within {soon_s:g} s"


@contextmanager
def _frozen(pids: set[int], name: str) -> Iterator[None]:
    """Everything of a run stands still: by the cgroup freezer where there is one, else by SIGSTOP."""
    group = _FREEZER / name
    try:
        group.mkdir()
        _move(pids, group)
    except OSError:
        _signal(pids, signal.SIGSTOP)
        yield
        _signal(pids, signal.SIGCONT)
        return
    try:
        (group / "freezer.state").write_text("FROZEN")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        _move({int(pid) for pid in (group / "cgroup.procs").read_text().split()}, _FREEZER)
        with suppress(OSError):
            group.rmdir()


def _move(pids: set[int], group: Path) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))


def _signal(pids: set[int], signum: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)
