"""How many workers the Ascend Operator asks for: the variables that it sets in the pods of an AscendJob.

Each framework has its own (mind-cluster's ascend-operator). For MindSpore ``MS_WORKER_NUM``,
``MS_LOCAL_WORKER`` and ``MS_NODE_RANK``; for TensorFlow ``CM_WORKER_SIZE``, ``CM_LOCAL_WORKER`` and
``CM_RANK``; for PyTorch ``WORLD_SIZE``, ``LOCAL_WORLD_SIZE`` and ``RANK``, where WORLD_SIZE counts devices
and RANK counts *nodes*. Elsewhere WORLD_SIZE counts servers (the rank-table scripts) or is one worker's
(torchrun): the operator is known by its LOCAL_RANK, a list such as ``{0,1,2,3}``. Volcano's ``serverList``
names the nodes of a job without a rank table.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from faultrun.model.spec.run_spec import Framework
from faultrun.platforms.untrusted_files import Unfinished, json_document

_SCHEDULER = "MS_SCHED"
_LISTED_RANKS = r"\{\s*\d+\s*(,\s*\d+\s*)*\}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """``local`` of ``world`` workers belong on this node, the ``node_rank``-th.

    ``source`` names the variables. ``leader`` is where the first node is, ``host:port``, if they tell it.
    A pod of MindSpore's scheduler has no worker: ``local`` is 0.
    """

    world: int
    local: int
    node_rank: int
    source: str
    leader: str = ""


def allotment(environ: Mapping[str, str], framework: Framework) -> Allotment | None:
    """What the operator asks of this pod for ``framework``; None if it set nothing for it.

    ValueError when what it set makes no sense.
    """
    match framework:
        case Framework.MINDSPORE:
            if environ.get("MS_ROLE") == _SCHEDULER and environ.get("MS_WORKER_NUM"):
                world = _count(environ, "MS_WORKER_NUM")
                return Allotment(world=world, local=0, node_rank=0, source=f"MS_ROLE={_SCHEDULER}")
            names = ("MS_WORKER_NUM", "MS_LOCAL_WORKER", "MS_NODE_RANK")
            return _read(environ, *names, leader=_leader(environ, "MS_SCHED_HOST", "MS_SCHED_PORT"))
        case Framework.TENSORFLOW:
            names = ("CM_WORKER_SIZE", "CM_LOCAL_WORKER", "CM_RANK")
            return _read(environ, *names, leader=_leader(environ, "CM_CHIEF_IP", "CM_CHIEF_PORT"))
        case Framework.TORCH if re.fullmatch(_LISTED_RANKS, environ.get("LOCAL_RANK", "").strip()):
            names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK")
            return _read(environ, *names, leader=_leader(environ, "MASTER_ADDR", "MASTER_PORT"))
        case _:
            return None


def parse_server_list(content: bytes) -> tuple[str, ...]:
    """The addresses of ``serverList`` in the order of the nodes; each comes once.

    Raises Unfinished while it is being written, ValueError when it is none.
    """
    document = json_document(content)
    if isinstance(document, Mapping) and document.get("status") == "initializing":
        raise Unfinished('its status is "initializing"')
    if not (addresses := tuple(dict.fromkeys(_server_ips(document)))):
        raise ValueError("it names no server_ip")
    return addresses


def _leader(environ: Mapping[str, str], host: str, port: str) -> str:
    return ":".join(filter(None, (environ.get(host, ""), environ.get(port, "")))) if environ.get(host) else ""


def _read(
    environ: Mapping[str, str], world: str, local: str, node_rank: str, *, leader: str
) -> Allotment | None:
    """Both sizes must be there: msrun's and other launchers' variables are fewer."""
    if not environ.get(world) or not environ.get(local):
        return None
    found = Allotment(
        world=_count(environ, world),
        local=_count(environ, local),
        node_rank=_count(environ, node_rank) if environ.get(node_rank) else 0,
        source=f"{world}={environ[world]} and {local}={environ[local]}",
        leader=leader,
    )
    if not 0 < found.local <= found.world:
        raise ValueError(f"{found.source} do not fit together")
    return found


def _count(environ: Mapping[str, str], name: str) -> int:
    text = environ[name].strip()
    if not re.fullmatch(r"\d{1,6}", text, re.ASCII):
        raise ValueError(f"{name}={environ[name][:20]!r} is not a number")
    return int(text)


def _server_ips(value: object) -> Iterator[str]:
    """Every ``server_ip`` in the order of the text, wherever it stands."""
    match value:
        case dict():
            for key, inner in value.items():
                if key == "server_ip" and isinstance(inner, str) and inner.strip():
                    yield inner.strip()
                else:
                    yield from _server_ips(inner)
        case list():
            for inner in value:
                yield from _server_ips(inner)
        case _:
            return
