"""A rank, a host or etcd's leader dies in a training over several nodes: how long until all train again."""

import os
import signal
import statistics
import time
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.harness import etcd, journal
from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.launched import ROOT
from benchmarks.harness.launchers import LAUNCHERS_OF_NODES, WARM, Meeting
from benchmarks.harness.netns import refused
from benchmarks.harness.nodes import Nodes, machines
from benchmarks.harness.procfs import clones, peak_rss_mib, pss_mib
from benchmarks.harness.series import NotRun, Readings

TORCHRUN = "torchrun"
CASES = {"2 nodes": ("a", "b"), "3 nodes": ("a", "b", "c")}
A_HOST, THE_LEADER = "a host dies, 2 nodes and a spare", "etcd's leader dies, 2 nodes"
KILLS, STEPS_BEFORE, LEASE_S, STEP_S = 3, 25, 5, 0.1
_DRAIN_LIMIT_S, _SPAWN_LIMIT_S, _RSS_LIMIT_MIB = 0.025, 0.060, 40.0
_START_S, _READY_S, _BACK_S = 120.0, 180.0, 120.0
_WATCHED_S = 8.0
_PARTS = {"sweep": "Drained", "survey": "RecoveryPointChosen", "plan": "PlanAdopted"}
_PARTS |= {"prepare": "Prepared", "go": "GoGiven", "spawn": "WorkerStarted"}
"""What the last node has reached, one after the other, since the last rank was gone."""


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One training; in it several kills of a rank, or one of the others."""
    if attempt.case in CASES:
        return _ranks_die(attempt)
    if attempt.contender != WARM:
        raise NotMeasured("this case is about faultrun with standbys alone")
    return _host_dies(attempt) if attempt.case == A_HOST else _leader_dies(attempt)


def missing(contender: str) -> str:
    """Why nothing can be measured here; empty if it can."""
    return refused() or etcd.missing(contender)


def _started(attempt: Attempt, nodes: Nodes, stores: Mapping[str, int], size: int) -> None:
    """Everybody trains, and whoever has standbys has them ready."""
    addresses = nodes.switch.addresses
    script = str(ROOT / "benchmarks" / "jobs" / "ddp.py")
    contender = LAUNCHERS_OF_NODES[attempt.contender]
    members = tuple(name for name in addresses if name not in stores)
    for at, name in enumerate(members):
        meeting = Meeting(
            size=size,
            name=name,
            address=addresses[name],
            first=addresses[members[0]],
            at=at,
            etcd=",".join(f"{addresses[store]}:{etcd.CLIENTS}" for store in stores),
            lease_s=LEASE_S,
        )
        program = (script, "--steps=1000000", f"--step_s={STEP_S}", "--save_every=10")
        nodes.start(name, contender.command(meeting, program), contender.environ)
    nodes.wait_for(lambda: len(nodes.steps()) == size, within_s=_START_S, what="training")


def _settled(attempt: Attempt, nodes: Nodes, old: frozenset[int]) -> None:
    """So many steps in this life, and standbys for the next."""

    def trained() -> bool:
        done = [note for note in nodes.notes if note.what == "step" and note.pid not in old]
        return len(done) >= STEPS_BEFORE * len({note.rank for note in done} or {0})

    nodes.wait_for(trained, within_s=_START_S, what="steps after a start")
    if attempt.contender == WARM:
        nodes.wait_for(
            lambda: all(map(_has_standbys, map(nodes.journal, nodes.runs))),
            within_s=_READY_S,
            what="the standbys",
        )


def _has_standbys(lines: list[dict[str, Any]]) -> bool:
    """Whether what was said of standbys last is that they are ready; a spare has none to speak of."""
    newest = {line["rank"]: line["state"] for line in lines if line["event"] == "StandbyChanged"}
    has_ranks = any(line["event"] == "WorkerStarted" for line in lines)
    return not has_ranks or (bool(newest) and set(newest.values()) == {"ready"})


def _ranks_die(attempt: Attempt) -> dict[str, list[float]]:
    names = CASES[attempt.case]
    found: dict[str, list[float]] = {}
    with machines(attempt.folder, names, ("store",)) as (nodes, stores):
        _started(attempt, nodes, stores, len(names))
        old: frozenset[int] = frozenset()
        for number in range(KILLS):
            _settled(attempt, nodes, old)
            killed_s, old = _kill(nodes, number % len(names)), nodes.pids()
            parts = {"first_step": _all_train(nodes, killed_s, old, len(names)) - killed_s}
            if attempt.contender != TORCHRUN:
                parts |= _timeline([nodes.journal(name) for name in names], killed_s, number)
            for key, value in parts.items():
                found.setdefault(key, []).append(value)
        if attempt.contender != TORCHRUN:
            found["supervisor"] = [peak_rss_mib(run.pid) for run in nodes.runs.values()]
            found["member"] = [max(map(pss_mib, clones(run.pid))) for run in nodes.runs.values()]
    return found


def _kill(nodes: Nodes, rank: int) -> float:
    """End the newest process of a rank; when that was."""
    pid = [note.pid for note in nodes.notes if note.what == "step" and note.rank == rank][-1]
    killed_s = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return killed_s


def _all_train(nodes: Nodes, since_s: float, old: frozenset[int], size: int) -> float:
    """When the last of all ranks did its first step, in a process that is none of ``old``."""

    def first_steps() -> dict[int, float]:
        return nodes.steps(after_s=since_s, not_of=old)

    nodes.wait_for(lambda: len(first_steps()) == size, within_s=_BACK_S, what="training again")
    return max(first_steps().values())


def _timeline(journals: list[list[dict[str, Any]]], killed_s: float, life: int) -> dict[str, float]:
    """What the journals of all nodes say of the end of ``life`` and of what followed."""

    def moments(event: str, life: int) -> list[float]:
        of = (line for lines in journals for line in lines if line["incarnation"] == life)
        return [line["mono_s"] for line in of if line["event"] == event]

    exits = moments("WorkerExit", life)
    gone_s = max(exits)
    reached = {part: max(moments(event, life + (event in _NEXT))) for part, event in _PARTS.items()}
    parts, before_s = {}, gone_s
    for part, at_s in reached.items():
        parts[part] = max(0.0, at_s - before_s)
        before_s = max(before_s, at_s)
    return {
        "detect": min(exits) - killed_s,
        "drain": max(moments("GaspRequested", life)) - min(exits),
        "gone": gone_s - killed_s,
        **parts,
        "spawned": reached["spawn"] - gone_s,
    }


_NEXT = ("PlanAdopted", "Prepared", "GoGiven", "WorkerStarted")
"""These are about the life to come."""


def _host_dies(attempt: Attempt) -> dict[str, list[float]]:
    """All that runs on a host dies, with no word to anybody; a spare has its place."""
    with machines(attempt.folder, ("a", "b", "c"), ("store",)) as (nodes, stores):
        _started(attempt, nodes, stores, 2)
        _settled(attempt, nodes, frozenset())
        journals = {name: nodes.journal(name) for name in nodes.runs}
        members = [name for name, lines in journals.items() if journal.of(lines, "WorkerStarted")]
        old, killed_s = nodes.pids(), time.monotonic()
        nodes.kill_machine(members[-1])
        return {"beyond_lease": [_all_train(nodes, killed_s, old, 2) - killed_s - LEASE_S]}


def _leader_dies(attempt: Attempt) -> dict[str, list[float]]:
    """Training must not notice: the longest time between two steps, in steps as they were before."""
    with machines(attempt.folder, ("a", "b"), ("e0", "e1", "e2")) as (nodes, stores):
        _started(attempt, nodes, stores, 2)
        _settled(attempt, nodes, frozenset())
        addresses = {name: nodes.switch.addresses[name] for name in stores}
        with nodes.switch.desk.inside():
            leader = etcd.leader(addresses)
        killed_s = time.monotonic()
        os.kill(stores[leader], signal.SIGKILL)
        while time.monotonic() < killed_s + _WATCHED_S:
            nodes.wait_for(lambda: True, within_s=_WATCHED_S, what="steps")
            nodes.listen(100)
        at_s = sorted(note.at_s for note in nodes.notes if note.what == "step" and note.rank == 0)
        gaps = [(late, late - early) for early, late in pairwise(at_s)]
        usual_s = statistics.median(gap for late, gap in gaps if late < killed_s)
        longest_s = max(gap for late, gap in gaps if late > killed_s)
        return {"gap": [longest_s / usual_s]}


def _of_all(readings: Readings, contender: str, metric: str) -> list[float]:
    return [value for case in CASES for value in readings.of(case, contender, metric).values]


def judge_part(readings: Readings, part: str, limit_s: float) -> Verdict:
    """Until the last of three nodes has done it, cold and with standbys."""
    medians = readings.medians("3 nodes", (WARM, OURS), part)
    words = (f"{name}: median {median * 1e3:.0f} ms" for name, median in medians.items())
    return Verdict.of_all([median <= limit_s for median in medians.values()], words)


def judge_ratio(readings: Readings, name: str, limit: float) -> Verdict:
    """First steps against those of torchrun, case by case."""
    ratios = {}
    for case in CASES:
        medians = readings.medians(case, (name, TORCHRUN))
        if len(medians) == 2:
            ratios[case] = medians[name] / medians[TORCHRUN]
    words = (f"{case} {ratio:.2f} of torchrun's" for case, ratio in ratios.items())
    return Verdict.of_all([ratio <= limit for ratio in ratios.values()], words)


def judge_host(readings: Readings) -> Verdict:
    """What the spare takes when the lease is over."""
    series = readings.some(A_HOST, WARM, "beyond_lease")
    words = f"lease {series.median:+.2f} s (at most {series.most:+.2f} s, n={len(series)})"
    return Verdict(kept=series.median <= 1, measured=words)


def judge_leader(readings: Readings) -> Verdict:
    """The longest gap, in usual steps."""
    series = readings.some(THE_LEADER, WARM, "gap")
    return Verdict(kept=series.median <= 2, measured=f"{series.median:.2f} (at most {series.most:.2f})")


def judge_memory(readings: Readings) -> Verdict:
    """The supervisor at its largest, and its largest helper."""
    ours, helper = _of_all(readings, WARM, "supervisor"), _of_all(readings, WARM, "member")
    if not ours:
        raise NotRun
    words = f"at most {max(ours):.1f} MiB, its member process PSS {max(helper):.1f} MiB"
    return Verdict(kept=max(ours) <= _RSS_LIMIT_MIB, measured=words)


BENCHMARK = Benchmark(
    name="several_nodes",
    title="A training over several nodes: a rank, a host, etcd's leader dies",
    method=(
        "Each node is a network namespace of this machine with its own address and host name, on one"
        f" bridge: one torch worker a node over gloo, a step of {STEP_S:g} s, a checkpoint every 10 steps in"
        " a folder that all share. faultrun meets at an etcd of one member in a namespace of its own (three"
        f" where its leader dies) with a lease of {LEASE_S} s, torchrun by its own c10d rendezvous. In each"
        f" training {KILLS} ranks are killed, on another node each time, after {STEPS_BEFORE} steps and"
        " when standbys are ready. Parts are from the journals, for the last of all nodes: *sweep* is from"
        " the last rank's end until what it left is gone, then *survey* (of checkpoints), *plan*,"
        " *prepare*, *go* and *spawn*; they sum up to *last rank gone → last node spawned*. The kernel"
        " takes down a killed torch process for a while before anybody hears of it: that is"
        " *kill → noticed*. All nodes share the processors and the disk of this machine."
    ),
    contenders=(WARM, OURS, TORCHRUN),
    cases=(*CASES, A_HOST, THE_LEADER),
    metrics=(
        Metric(key="detect", label="kill → noticed", unit=Unit.MILLISECONDS),
        Metric(key="drain", label="noticed → last node draining", unit=Unit.MILLISECONDS),
        Metric(key="gone", label="kill → last rank gone", unit=Unit.MILLISECONDS),
        *(Metric(key=part, label=part, unit=Unit.MILLISECONDS) for part in _PARTS),
        Metric(key="spawned", label="last rank gone → last node spawned", unit=Unit.MILLISECONDS),
        Metric(key="first_step", label="kill → first step of all", unit=Unit.SECONDS),
        Metric(key="beyond_lease", label="host death → all train, beyond the lease", unit=Unit.SECONDS),
        Metric(key="gap", label="longest time between steps, in usual steps", unit=Unit.COUNT),
        Metric(key="supervisor", label="largest RSS of a supervisor", unit=Unit.MEBIBYTES),
        Metric(key="member", label="PSS of its largest helper process", unit=Unit.MEBIBYTES),
    ),
    promises=(
        Promise(
            text="3 nodes: rank death → last node draining ≤ 25 ms",
            judge=partial(judge_part, part="drain", limit_s=_DRAIN_LIMIT_S),
        ),
        Promise(
            text="3 nodes: last rank gone → last node spawned ≤ 60 ms",
            judge=partial(judge_part, part="spawned", limit_s=_SPAWN_LIMIT_S),
        ),
        Promise(
            text="several nodes, kill → first step of all: warm ≤ 1/10 of torchrun's",
            judge=partial(judge_ratio, name=WARM, limit=1 / 10),
        ),
        Promise(
            text="several nodes, kill → first step of all: cold no slower than torchrun's",
            judge=partial(judge_ratio, name=OURS, limit=1),
        ),
        Promise(text="host death → a spare trains ≤ lease + 1 s", judge=judge_host),
        Promise(text="etcd's leader killed: longest time between steps ≤ 2 usual steps", judge=judge_leader),
        Promise(
            text="several nodes: supervisor ≤ 40 MiB, its member process counted apart", judge=judge_memory
        ),
    ),
    rounds=3,
    measure=measure,
    missing=missing,
)
