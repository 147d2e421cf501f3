"""Which processors and NUMA nodes each worker is tied to: the plan, not the tying.

The wishes are read by ``bind_wishes``; this file looks at the machine and shares it out. As in msrun 2.10
(process_entity/_bind.py): NUMA wins over cores for memory, cores win over NUMA for processors, the scheduler
is tied only when it is named, and a rank without an entry of its own is left to the kernel with a note.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from faultrun.errors import assert_never
from faultrun.model.spec import Binding, Hold
from faultrun.platforms.bind_wishes import Auto, BindFile, CpuMode, Off, Table, Wish, expand

T = TypeVar("T")

Numbers = tuple[int, ...]
"""Processors or NUMA nodes, ascending; empty leaves the choice to the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """One NUMA node and those of its processors that we may use."""

    number: int
    cpus: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Processors that this process may use, and the NUMA nodes they belong to (none when unknown)."""

    allowed: Numbers
    nodes: tuple[NumaNode, ...]

    def cpus_of(self, numbers: Numbers) -> Numbers:
        """Usable processors of these NUMA nodes."""
        return tuple(cpu for node in self.nodes if node.number in numbers for cpu in node.cpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The plan, and what a person should know about it."""

    binding: Binding
    notes: tuple[str, ...] = ()


class NotOurs(ValueError):
    """A wish names a processor or NUMA node that we may not use. ``option`` is bind_core or bind_numa."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(reason)
        self.option = option


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What one wish gives to each local rank and to the scheduler."""

    ranks: tuple[Numbers, ...]
    scheduler: Numbers = ()
    notes: tuple[str, ...] = ()


def read_machine(sys_root: Path = Path("/sys")) -> Machine:
    """Ask the kernel which processors we may use and how they lie in NUMA nodes.

    ``sched_getaffinity`` already knows of cpusets and taskset, in cgroup v1 and v2 alike.
    """
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    nodes = []
    for entry in (sys_root / "devices/system/node").glob("node[0-9]*"):
        listed = (entry / "cpulist").read_text().strip()
        cpus = tuple(cpu for cpu in expand(listed) if cpu in allowed) if listed else ()
        if cpus:
            nodes.append(NumaNode(number=int(entry.name.removeprefix("node")), cpus=cpus))
    return Machine(allowed=allowed, nodes=tuple(sorted(nodes, key=lambda node: node.number)))


def plan_binding(core: Wish, numa: Wish, devices: Sequence[int], machine: Machine) -> Bound:
    """Tie each local rank as the wishes say; ``devices[i]`` is the physical device of local rank i.

    Raises NotOurs if a wish names a processor or NUMA node that we may not use.
    """
    if isinstance(numa, BindFile):
        return _from_bind_file(numa, devices, machine)
    nodes = _node_share(numa, devices, machine)
    cores = _core_share(core, devices, machine)
    cpus = tuple(own or machine.cpus_of(home) for own, home in zip(cores.ranks, nodes.ranks, strict=True))
    shared_out = isinstance(core, Auto) or isinstance(numa, Auto)
    return Bound(
        binding=_binding(
            cpus,
            nodes.ranks,
            scheduler=(cores.scheduler or machine.cpus_of(nodes.scheduler), nodes.scheduler),
            worker_env=tuple(_announced(tied) if shared_out else () for tied in cpus),
        ),
        notes=(*nodes.notes, *cores.notes),
    )


def share_cores(workers: int, machine: Machine) -> tuple[Numbers, ...]:
    """Share the processors evenly; no worker lies across NUMA nodes unless workers are fewer than nodes.

    The shares are disjoint, none is empty and together they are all processors.
    Empty when there are fewer processors than workers.
    """
    if len(machine.allowed) < workers:
        return ()
    groups = [node.cpus for node in machine.nodes]
    if sorted(cpu for group in groups for cpu in group) != sorted(machine.allowed):
        groups = [machine.allowed]  # some processor lies in no node, or no node is known
    if workers < len(groups):
        return tuple(tuple(cpu for group in part for cpu in group) for part in _dealt(groups, workers))
    crews = [len(part) for part in _dealt(range(workers), len(groups))]
    if any(len(group) < crew for group, crew in zip(groups, crews, strict=True)):
        groups, crews = [tuple(cpu for group in groups for cpu in group)], [workers]
    return tuple(
        tuple(part) for group, crew in zip(groups, crews, strict=True) for part in _dealt(group, crew)
    )


def _core_share(wish: Wish, devices: Sequence[int], machine: Machine) -> _Share:
    nobody = ((),) * len(devices)
    match wish:
        case Off() | BindFile():
            return _Share(ranks=nobody)
        case Auto():
            shares = share_cores(len(devices), machine)
            supply = f"{len(machine.allowed)} processors for {len(devices)} workers"
            few = f"--bind_core has no effect here: {supply}"
            return _Share(ranks=shares) if shares else _Share(ranks=nobody, notes=(few,))
        case Table():
            return _from_table(wish, devices, machine.allowed, "bind_core", "processor")
        case _:
            assert_never(wish)


def _node_share(wish: Wish, devices: Sequence[int], machine: Machine) -> _Share:
    nobody = ((),) * len(devices)
    numbers = tuple(node.number for node in machine.nodes)
    match wish:
        case Off() | BindFile():
            return _Share(ranks=nobody)
        case Auto() if len(numbers) < len(devices):
            # msrun refuses too: workers that share a node would be held to its memory for nothing.
            few = f"--bind_numa has no effect here: {len(numbers)} NUMA nodes for {len(devices)} workers"
            return _Share(ranks=nobody, notes=(f"{few}; --bind_core=True shares the cores",))
        case Auto():
            return _Share(ranks=tuple((number,) for number in numbers[: len(devices)]))
        case Table():
            return _from_table(wish, devices, numbers, "bind_numa", "NUMA node")
        case _:
            assert_never(wish)


def _from_bind_file(wish: BindFile, devices: Sequence[int], machine: Machine) -> Bound:
    numbers = tuple(node.number for node in machine.nodes)
    memory = _from_table(wish.memory, devices, numbers, "bind_numa", "NUMA node")
    if wish.cpu_mode is CpuMode.CPU:
        share = _from_table(wish.cpus, devices, machine.allowed, "bind_numa", "processor")
        cpus, scheduler = share.ranks, share.scheduler
    else:
        share = _from_table(wish.cpus, devices, numbers, "bind_numa", "NUMA node")
        cpus = tuple(machine.cpus_of(home) for home in share.ranks)
        scheduler = machine.cpus_of(share.scheduler)
    told = (("MSRUN_BIND_FILE", wish.path), ("MSRUN_BIND_FILE_HASH", wish.sha256)) if wish.path else ()
    return Bound(
        binding=_binding(
            cpus,
            memory.ranks,
            scheduler=(scheduler, memory.scheduler),
            worker_env=(told,) * len(devices),
        ),
        notes=share.notes if wish.cpu_mode is not CpuMode.NONE else (),
    )


def _from_table(table: Table, devices: Sequence[int], known: Numbers, option: str, thing: str) -> _Share:
    """Look up each rank's device; NotOurs for a number that this machine does not give us."""
    for numbers in table.numbers.values():
        for number in numbers:
            if number not in known:
                listed = ",".join(str(entry) for entry in known) or "none"
                raise NotOurs(option, f"{thing} {number} is not ours to use (there are: {listed})")
    left_out = [rank for rank, device in enumerate(devices) if not table.numbers.get(device)]
    ranks = ", ".join(str(rank) for rank in left_out)
    note = f"--{option} names no {thing} for local rank {ranks}: the kernel chooses"
    return _Share(
        ranks=tuple(table.numbers.get(device, ()) for device in devices),
        scheduler=table.numbers.get(None, ()),
        notes=(note,) if left_out else (),
    )


def _binding(
    cpus: tuple[Numbers, ...],
    memory_nodes: tuple[Numbers, ...],
    *,
    scheduler: tuple[Numbers, Numbers],
    worker_env: tuple[tuple[tuple[str, str], ...], ...],
) -> Binding:
    if not any((*cpus, *memory_nodes, *scheduler, *worker_env)):
        return Binding()
    return Binding(
        hold=Hold.NUMA if any((*memory_nodes, scheduler[1])) else Hold.CORES,
        cpus=cpus,
        memory_nodes=memory_nodes,
        scheduler_cpus=scheduler[0],
        scheduler_memory_nodes=scheduler[1],
        worker_env=worker_env,
    )


def _announced(cpus: Numbers) -> tuple[tuple[str, str], ...]:
    """Tell MindSpore's ``set_cpu_affinity(True)``, as msrun does, what to share out among its threads."""
    return (("MSRUN_CPU_LIST", str(list(cpus))),) if cpus else ()


def _dealt(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Cut ``items`` into ``parts`` consecutive pieces whose lengths differ by at most one."""
    size, more = divmod(len(items), parts)
    pieces: list[Sequence[T]] = []
    start = 0
    for part in range(parts):
        end = start + size + (1 if part < more else 0)
        pieces.append(items[start:end])
        start = end
    return pieces
