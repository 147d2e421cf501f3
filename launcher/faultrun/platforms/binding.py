"""Which processors and NUMA nodes each worker is tied to, by msrun's ``--bind_core`` and ``--bind_numa``.

A wish is ``True`` (share out what the machine has), ``False``, a JSON object
``{"device0": ["0-3"], "scheduler": ["4,5"]}``, or for ``--bind_numa`` a file or object of the newer form
with ``bind_config``, ``bind_cpu`` and ``bind_memory``. Sources, MindSpore 2.10: parallel/cluster/run.py and
process_entity/_bind.py. As there, NUMA wins over cores for memory, cores win over NUMA for processors, the
scheduler is tied only when it is named, and a rank without an entry is left to the kernel with a note.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from faultrun.model.spec.run_spec import Binding, Hold

T = TypeVar("T")

Numbers = tuple[int, ...]
"""Processors or NUMA nodes, ascending; empty leaves the choice to the kernel."""

ByDevice = Mapping[int | None, Numbers]
"""What each physical device's worker is tied to; None stands for the scheduler."""

_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_OWNER = re.compile(r"device_?(\d{1,6})|scheduler")
_NEW_FORM = frozenset({"bind_config", "bind_cpu", "bind_memory"})
_OBJECT = '{"device0":["0-3"]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class BindFile:
    """msrun's newer form: ``cpus`` are processors, or NUMA nodes, or (None) none's.

    ``told`` are the variables by which MindSpore finds the file (its workers read it again to tie their
    threads, and notice a change by its SHA-256); empty for an object on the command line.
    """

    cpus: ByDevice | None
    by_node: bool
    memory: ByDevice
    told: tuple[tuple[str, str], ...] = ()


Wish = bool | ByDevice | BindFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Processors:
    """Those that this process may use, and the NUMA nodes they belong to (none when unknown)."""

    allowed: Numbers
    nodes: Mapping[int, Numbers]

    def of(self, nodes: Numbers) -> Numbers:
        """Usable processors of these NUMA nodes."""
        return tuple(cpu for number, cpus in self.nodes.items() if number in nodes for cpu in cpus)


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


def read_bind_core(text: str) -> Wish:
    """The value of ``--bind_core``. ValueError with the reason."""
    if (word := {"true": True, "false": False}.get(text.strip().lower())) is not None:
        return word
    content = _parsed(text)
    if _NEW_FORM & content.keys():
        raise ValueError("a bind file's form belongs to --bind_numa")
    return _by_device(content, _listed)


def read_bind_numa(text: str) -> Wish:
    """The value of ``--bind_numa``; reads the file if it names one. ValueError with the reason."""
    if (word := {"true": True, "false": False}.get(text.strip().lower())) is not None:
        return word
    path = Path(text)
    if not text.lower().endswith(".json") and not (len(text) < 4096 and path.is_file()):
        content = _parsed(text)
        return _bind_file(content) if "bind_config" in content else _by_device(content, _listed)
    try:
        raw = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{text}: {error.strerror}") from None
    content = _parsed(raw)
    if not _NEW_FORM & content.keys():
        return _by_device(content, _listed)
    digest = hashlib.sha256(raw.encode("utf-8")).hexdigest()
    told = (("MSRUN_BIND_FILE", str(path.absolute())), ("MSRUN_BIND_FILE_HASH", digest))
    return _bind_file(content, told)


def expand(text: str) -> Numbers:
    """``0-2,5`` as (0, 1, 2, 5): the kernel's list format, ascending and without repeats."""
    numbers: set[int] = set()
    for part in text.split(","):
        if (match := _SPAN.fullmatch("".join(part.split()))) is None:
            raise ValueError(f"{text!r} is not a list such as 0-3 or 0,2")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{text!r} runs backwards")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def usable_processors(sys_root: Path = Path("/sys")) -> Processors:
    """Ask the kernel which processors we may use and how they lie in NUMA nodes.

    ``sched_getaffinity`` already knows of cpusets and taskset, in cgroup v1 and v2 alike.
    """
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    nodes = {}
    for entry in (sys_root / "devices/system/node").glob("node[0-9]*"):
        listed = (entry / "cpulist").read_text().strip()
        cpus = expand(listed) if listed else ()
        nodes[int(entry.name.removeprefix("node"))] = tuple(cpu for cpu in cpus if cpu in allowed)
    return Processors(allowed=allowed, nodes={at: nodes[at] for at in sorted(nodes) if nodes[at]})


def plan_binding(core: Wish, numa: Wish, devices: Sequence[int], machine: Processors) -> Bound:
    """Tie each local rank as the wishes say; ``devices[i]`` is the physical device of local rank i.

    Raises NotOurs if a wish names a processor or NUMA node that we may not use.
    """
    if isinstance(numa, BindFile):
        return _from_bind_file(numa, devices, machine)
    nodes = _node_share(numa, devices, machine)
    cores = _core_share(core, devices, machine)
    cpus = tuple(own or machine.of(home) for own, home in zip(cores.ranks, nodes.ranks, strict=True))
    shared_out = core is True or numa is True
    # MindSpore's ``set_cpu_affinity(True)`` shares this out among its threads, as under msrun.
    told = tuple((("MSRUN_CPU_LIST", str(list(own))),) if shared_out and own else () for own in cpus)
    scheduler = (cores.scheduler or machine.of(nodes.scheduler), nodes.scheduler)
    return Bound(binding=_binding(cpus, nodes.ranks, scheduler, told), notes=(*nodes.notes, *cores.notes))


def share_cores(workers: int, machine: Processors) -> tuple[Numbers, ...]:
    """Share the processors evenly; no worker lies across NUMA nodes unless workers are fewer than nodes.

    The shares are disjoint, none is empty and together they are all processors.
    Empty when there are fewer processors than workers.
    """
    if len(machine.allowed) < workers:
        return ()
    groups = list(machine.nodes.values())
    if sorted(cpu for group in groups for cpu in group) != sorted(machine.allowed):
        groups = [machine.allowed]  # some processor lies in no node, or no node is known
    if workers < len(groups):
        return tuple(tuple(cpu for group in part for cpu in group) for part in _dealt(groups, workers))
    counts = [len(part) for part in _dealt(range(workers), len(groups))]
    if any(len(group) < count for group, count in zip(groups, counts, strict=True)):
        groups, counts = [tuple(cpu for group in groups for cpu in group)], [workers]
    return tuple(tuple(part) for group, n in zip(groups, counts, strict=True) for part in _dealt(group, n))


def _core_share(wish: Wish, devices: Sequence[int], machine: Processors) -> _Share:
    nobody = ((),) * len(devices)
    if isinstance(wish, bool):
        shares = share_cores(len(devices), machine) if wish else nobody
        few = f"--bind_core has no effect here: {len(machine.allowed)} processors for {len(devices)} workers"
        return _Share(ranks=shares) if shares else _Share(ranks=nobody, notes=(few,))
    assert not isinstance(wish, BindFile), "read_bind_core reads none"
    return _from_table(wish, devices, machine.allowed, "bind_core", "processor")


def _node_share(wish: bool | ByDevice, devices: Sequence[int], machine: Processors) -> _Share:
    nobody = ((),) * len(devices)
    numbers = tuple(machine.nodes)
    if not isinstance(wish, bool):
        return _from_table(wish, devices, numbers, "bind_numa", "NUMA node")
    if not wish:
        return _Share(ranks=nobody)
    if len(numbers) < len(devices):
        # msrun refuses too: workers that share a node would be held to its memory for nothing.
        few = f"--bind_numa has no effect here: {len(numbers)} NUMA nodes for {len(devices)} workers"
        return _Share(ranks=nobody, notes=(f"{few}; --bind_core=True shares the cores",))
    return _Share(ranks=tuple((number,) for number in numbers[: len(devices)]))


def _from_bind_file(wish: BindFile, devices: Sequence[int], machine: Processors) -> Bound:
    numbers = tuple(machine.nodes)
    memory = _from_table(wish.memory, devices, numbers, "bind_numa", "NUMA node")
    known, thing = (numbers, "NUMA node") if wish.by_node else (machine.allowed, "processor")
    share = _from_table(wish.cpus or {}, devices, known, "bind_numa", thing)
    cpus, scheduler = share.ranks, share.scheduler
    if wish.by_node:
        cpus, scheduler = tuple(machine.of(home) for home in cpus), machine.of(scheduler)
    told = (wish.told,) * len(devices)
    binding = _binding(cpus, memory.ranks, (scheduler, memory.scheduler), told)
    return Bound(binding=binding, notes=share.notes if wish.cpus is not None else ())


def _from_table(wish: ByDevice, devices: Sequence[int], known: Numbers, option: str, thing: str) -> _Share:
    """Look up each rank's device; NotOurs for a number that this machine does not give us."""
    for number in (number for numbers in wish.values() for number in numbers):
        if number not in known:
            listed = ",".join(str(entry) for entry in known) or "none"
            raise NotOurs(option, f"{thing} {number} is not ours to use (there are: {listed})")
    left_out = [str(rank) for rank, device in enumerate(devices) if not wish.get(device)]
    note = f"--{option} names no {thing} for local rank {', '.join(left_out)}: the kernel chooses"
    ranks = tuple(wish.get(device, ()) for device in devices)
    return _Share(ranks=ranks, scheduler=wish.get(None, ()), notes=(note,) if left_out else ())


def _binding(
    cpus: tuple[Numbers, ...],
    memory_nodes: tuple[Numbers, ...],
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


def _dealt(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Cut ``items`` into ``parts`` consecutive pieces whose lengths differ by at most one."""
    ends = [len(items) // parts * part + min(part, len(items) % parts) for part in range(parts + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


def _parsed(text: str) -> Mapping[str, object]:
    try:
        content = json.loads(text)
    except ValueError:
        raise ValueError(f"it is neither True nor False nor JSON such as {_OBJECT}") from None
    match content:
        case dict():
            return content
        case _:
            raise ValueError(f"it is not a JSON object such as {_OBJECT}")


def _bind_file(content: Mapping[str, object], told: tuple[tuple[str, str], ...] = ()) -> BindFile:
    modes = _object(content, "bind_config")
    cpu_mode = _mode(modes, "bind_cpu_mode", ("cpu", "numa", "none"))
    memory_mode = _mode(modes, "bind_memory_mode", ("numa", "none"))
    cpus = None
    if cpu_mode != "none":
        cpus = _by_device(_object(content, "bind_cpu"), _main if cpu_mode == "cpu" else _nodes)
    memory = _by_device(_object(content, "bind_memory"), _nodes) if memory_mode != "none" else {}
    return BindFile(cpus=cpus, by_node=cpu_mode == "numa", memory=memory, told=told)


def _by_device(
    content: Mapping[str, object], numbers_of: Callable[[str, object], Numbers | None]
) -> ByDevice:
    """``content`` by its owners, without those that have no numbers."""
    read = ((owner, numbers_of(owner, value)) for owner, value in content.items())
    return {_owner(owner): numbers for owner, numbers in read if numbers is not None}


def _listed(owner: str, value: object) -> Numbers:
    """``["0-3", "5"]``."""
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ValueError(f'{owner} needs a list of texts such as ["0-3"]')
    return expand(",".join(value)) if value else ()


def _main(owner: str, value: object) -> Numbers | None:
    """``{"main": "0-3", ...}``; only ``main`` is the process's, the rest are threads'."""
    match value:
        case None:
            return None
        case {"main": str(main) | int(main)} if main != "":
            return expand(str(main))
        case dict():
            return ()
        case _:
            raise ValueError(f'bind_cpu: {owner} needs an object such as {{"main": "0-3"}}')


def _nodes(owner: str, value: object) -> Numbers | None:
    """``0`` or ``"0-1"``."""
    match value:
        case None:
            return None
        case int() | str() if not isinstance(value, bool):
            return expand(str(value))
        case _:
            raise ValueError(f"{owner} needs a NUMA node such as 0 or a text such as 0-1")


def _mode(modes: Mapping[str, object], key: str, known: tuple[str, ...]) -> str:
    if (mode := str(modes.get(key, "none")).lower()) not in known:
        raise ValueError(f"{key} is {mode!r}, not one of {', '.join(known)}")
    return mode


def _object(content: Mapping[str, object], key: str) -> Mapping[str, object]:
    match content.get(key, {}):
        case dict() as found:
            return found
        case _:
            raise ValueError(f"{key} is not a JSON object")


def _owner(key: str) -> int | None:
    if (match := _OWNER.fullmatch(key)) is None:
        raise ValueError(f"{key!r} is neither deviceN nor scheduler")
    return int(match[1]) if match[1] else None
