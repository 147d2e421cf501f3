"""Thousands of supervisors at one etcd: joining, keeping leases, an alarm, a plan, a new list of nodes."""

import asyncio
import json
import resource
import time
from collections.abc import Awaitable, Callable, Mapping
from statistics import median

from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.crowd import Crowd, Json, b64
from benchmarks.harness.etcd import Etcd, missing, three_members
from benchmarks.harness.series import Readings

IN_THE_PLAN = "list in the plan"
SIZES = {"1,000 supervisors": 1_000, "4,000 supervisors": 4_000}
_LEASE_S = 120
_FACT_BYTES, _HEADER_BYTES, _NODE_BYTES = 360, 900, 26
_ROUND_TRIPS = 5
_PATIENCE_S, _LIST_PATIENCE_S = 20.0, 60.0
_SOCKETS_A_SUPERVISOR = 3
"""Its own end of the watch, etcd's, and one of requests shared by several."""
_KEEPALIVE_LIMIT_S, _PLAN_LIMIT_S = 1e-3, 0.3e-3
"""Of etcd's processor time, for each supervisor: other work on the machine does not change it much."""


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One etcd, one crowd, every question once."""
    size = SIZES[attempt.case]
    _need_sockets(size * _SOCKETS_A_SUPERVISOR)
    with three_members(attempt.folder) as etcd:
        return asyncio.run(ask_everything(etcd, size, attempt.contender))


async def ask_everything(etcd: Etcd, size: int, contender: str) -> dict[str, list[float]]:
    """What this many supervisors measure at one etcd."""
    crowd = Crowd(etcd.endpoints, size)
    run = _Run(etcd, crowd)
    try:
        await crowd.connect()
        found = await run.joined()
        found |= await run.listening()
        nodes = _text(size * _NODE_BYTES)
        if contender == IN_THE_PLAN:
            found |= await run.planned(nodes)
            found |= {"list": found["plan"], "list_cpu": found["plan_cpu"]}
        else:
            found |= await run.kept_alive()
            found |= await run.alarmed()
            found |= await run.planned(_text(_HEADER_BYTES))
            found |= await run.listed(nodes)
        return {**found, "lost": [float(crowd.watches_lost)], "memory": [etcd.largest_mib]}
    finally:
        crowd.close()


class _Run:
    """The questions, in the order of a run's life."""

    def __init__(self, etcd: Etcd, crowd: Crowd) -> None:
        self._etcd, self._crowd = etcd, crowd
        self._heard: dict[str, int] = {}
        self._at_last = asyncio.Event()
        self._on_plan: Callable[[int], None] | None = None

    async def joined(self) -> dict[str, list[float]]:
        """Leases, then a statement of each until the coordinator has seen all of them."""
        leases_s = await _within(self._crowd.take_leases(_LEASE_S), "leases")
        seen: set[str] = set()
        everybody = asyncio.Event()

        def see(event: Json) -> None:
            seen.add(event["kv"]["key"])
            if len(seen) == self._crowd.size:
                everybody.set()

        coordinator = await self._crowd.watch(0, "/run/node/", see)
        fact = _text(_FACT_BYTES)

        async def join() -> None:
            await self._crowd.each(lambda at: self._crowd.put(at, f"/run/node/{at}/boot", fact))
            await everybody.wait()

        joined_s = await _within(join(), "joining")
        coordinator.cancel()
        return {"leases": [leases_s], "join": [joined_s]}

    async def listening(self) -> dict[str, list[float]]:
        """A watch of each."""
        took_s = await _within(self._crowd.watch_all("/run/all/", self._hear), "watches")
        return {"watches": [took_s]}

    async def kept_alive(self) -> dict[str, list[float]]:
        """One keepalive of each, in one burst; processor time of etcd for one."""
        before_s = self._etcd.used_cpu_s
        took_s = await _within(self._crowd.keep_alive(), "keepalives")
        return {"keepalives": [took_s], "keepalive": [(self._etcd.used_cpu_s - before_s) / self._crowd.size]}

    async def alarmed(self) -> dict[str, list[float]]:
        """Everybody saw a fault and wants to be the first to say so."""
        told = self._told("alarm")

        async def race() -> None:
            won = await self._crowd.each(lambda at: self._crowd.create(at, "/run/all/alarm/0", f"by {at}"))
            assert won.count(True) == 1
            await told()

        return {"alarm": [await _within(race(), "the alarm", self._count)]}

    async def planned(self, plan: str) -> dict[str, list[float]]:
        """A plan is written, until the last supervisor has it."""
        took, before_s = [], self._etcd.used_cpu_s
        for _ in range(_ROUND_TRIPS):
            told = self._told("plan")

            async def publish(until: Callable[[], Awaitable[None]] = told) -> None:
                await self._crowd.put(0, "/run/all/plan", plan)
                await until()

            took.append(await _within(publish(), "the plan", self._count))
        return {"plan": [median(took)], "plan_cpu": [(self._etcd.used_cpu_s - before_s) / _ROUND_TRIPS]}

    async def listed(self, nodes: str) -> dict[str, list[float]]:
        """The list is written once, the header names it, everybody reads it."""
        await self._crowd.put(0, "/run/topology/hash", nodes)
        reads: list[asyncio.Task[int]] = []

        def fetch(at: int) -> None:
            reads.append(asyncio.create_task(self._crowd.read(at, "/run/topology/hash")))

        self._on_plan = fetch
        told = self._told("plan")

        async def publish() -> None:
            await self._crowd.put(0, "/run/all/plan", _text(_HEADER_BYTES))
            await told()
            assert set(await asyncio.gather(*reads)) == {len(nodes)}

        before_s = self._etcd.used_cpu_s
        took_s = await _within(publish(), "the list", self._count, patience_s=_LIST_PATIENCE_S)
        return {"list": [took_s], "list_cpu": [self._etcd.used_cpu_s - before_s]}

    def _told(self, what: str) -> Callable[[], Awaitable[None]]:
        """Have each supervisor's next word about ``what`` counted; wait for the last one with the answer."""
        self._heard = {b64(f"/run/all/{what}"): 0} if what == "plan" else {b64("/run/all/alarm/0"): 0}
        self._at_last = at_last = asyncio.Event()

        async def everybody() -> None:
            await at_last.wait()

        return everybody

    def _hear(self, at: int, event: Json) -> None:
        key = event["kv"]["key"]
        if key not in self._heard:
            return
        self._heard[key] += 1
        if self._on_plan is not None:
            self._on_plan(at)
        if self._heard[key] == self._crowd.size:
            self._at_last.set()

    def _count(self) -> str:
        lost = f", {self._crowd.watches_lost} watches lost" if self._crowd.watches_lost else ""
        return f", {sum(self._heard.values())} of {self._crowd.size} have it{lost}"


async def _within(
    work: Awaitable[object], what: str, so_far: Callable[[], str] = str, patience_s: float = _PATIENCE_S
) -> float:
    """How long it takes; NotMeasured if that is too long."""
    began_s = time.perf_counter()
    try:
        await asyncio.wait_for(work, patience_s)
    except (TimeoutError, asyncio.TimeoutError):
        raise NotMeasured(f"{what}: not everybody within {patience_s:g} s{so_far()}") from None
    except (RuntimeError, OSError) as error:
        raise NotMeasured(f"{what}: {error}") from error
    return time.perf_counter() - began_s


def _text(size_bytes: int) -> str:
    """A value of this size, as JSON is."""
    entry = json.dumps(["worker-0123", "9f3a11c2"])
    return (entry * (size_bytes // len(entry) + 1))[:size_bytes]


def _need_sockets(count: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count:
        raise NotMeasured(f"{count} descriptors are needed, ulimit -Hn is {most}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def judge(readings: Readings) -> Verdict:
    """What each supervisor of the larger crowd costs etcd, and whether it ever lost its leader."""
    case, size = list(SIZES.items())[-1]
    keepalive, plan, lost = (readings.some(case, OURS, key) for key in ("keepalive", "plan_cpu", "lost"))
    each_s = plan.median / size
    kept = keepalive.median < _KEEPALIVE_LIMIT_S and each_s < _PLAN_LIMIT_S and max(lost.values) == 0
    words = f"{keepalive.median * 1e3:.2f} ms, {each_s * 1e3:.2f} ms, {max(lost.values):.0f} watches lost"
    return Verdict(kept=kept, measured=words)


BENCHMARK = Benchmark(
    name="scale",
    title="Thousands of supervisors at one etcd",
    method=(
        "Three members of a real etcd on this machine, and supervisors that are simulated in one process"
        " beside them, on the same processors: etcd of its own can do more. *join* is a statement of"
        f" {_FACT_BYTES} bytes of each until one watch has seen all of them, *alarm* everybody's attempt to"
        " create one key until the last watch has told of it, *plan* one write until the last watch has it."
        f" A plan of {OURS} has {_HEADER_BYTES} bytes, and the list of nodes ({_NODE_BYTES} bytes each) is"
        f" read by its hash when it has changed (*new list*); `{IN_THE_PLAN}` has it in every plan. Watches"
        f" that etcd ends, because it has no leader for a while, are opened again. {_PATIENCE_S:g} s are the"
        f" most for each question, {_LIST_PATIENCE_S:g} s for the list."
    ),
    contenders=(OURS, IN_THE_PLAN),
    cases=tuple(SIZES),
    metrics=(
        Metric(key="leases", label="leases", unit=Unit.SECONDS),
        Metric(key="join", label="join", unit=Unit.SECONDS),
        Metric(key="watches", label="watches", unit=Unit.SECONDS),
        Metric(key="keepalives", label="keepalives", unit=Unit.SECONDS),
        Metric(key="keepalive", label="etcd's processor time for a keepalive", unit=Unit.MILLISECONDS),
        Metric(key="alarm", label="alarm → last", unit=Unit.SECONDS),
        Metric(key="plan", label="plan → last", unit=Unit.SECONDS),
        Metric(key="plan_cpu", label="etcd's processor time for a plan", unit=Unit.SECONDS),
        Metric(key="list", label="new list → last", unit=Unit.SECONDS),
        Metric(key="list_cpu", label="etcd's processor time for the list", unit=Unit.SECONDS),
        Metric(key="lost", label="watches lost", unit=Unit.COUNT),
        Metric(key="memory", label="largest member", unit=Unit.MEBIBYTES),
    ),
    promises=(
        Promise(
            text=(
                "4,000 supervisors, of etcd's processor time for each: a keepalive"
                f" < {_KEEPALIVE_LIMIT_S * 1e3:g} ms, a plan < {_PLAN_LIMIT_S * 1e3:g} ms; no watch lost"
            ),
            judge=judge,
        ),
    ),
    rounds=1,
    measure=measure,
    missing=missing,
)
