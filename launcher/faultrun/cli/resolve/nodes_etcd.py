"""How this node finds the others of its run: an etcd that is there, or the one that the first node serves.

torchrun's ``etcd`` and ``etcd-v2`` name the first kind. Its ``c10d`` and ``static``, and msrun's
``--master_addr``, name the host of the second.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from faultrun.cli.options.choices import none_of
from faultrun.cli.options.node_addresses import Endpoint, bare, endpoint, endpoints
from faultrun.cli.options.settings import INSIDE_WORKER, Settings
from faultrun.cli.options.values import switch
from faultrun.cli.resolve.context import ResolveContext
from faultrun.cli.resolve.workers import Workers
from faultrun.model.spec.nodes_spec import AgreementSpec, EtcdAccess
from faultrun.model.spec.run_spec import Framework
from faultrun.model.topology import NodeId, node_folder
from faultrun.platforms import this_machine

_BACKENDS = ("etcd", "etcd-v2", "c10d", "static")
_ETCD = ("etcd", "etcd-v2")
_USUAL_PORT = {"c10d": 29_400}
_STATIC_PORT, _MINDSPORE_PORT = 29_500, 8118
_FILES = {
    **dict.fromkeys(("cacert", "ca_cert"), "ca_file"),
    **dict.fromkeys(("cert", "ssl_cert"), "cert_file"),
    **dict.fromkeys(("key", "ssl_cert_key"), "key_file"),
    "password_file": "password_file",
}
"""Keys of ``--rdzv-conf`` as torchrun's etcd and etcd-v2 call them, and a field of ``EtcdAccess``."""
_PASSWORDS = ("password", "passwd", "pass")
_ANYWHERE = "192.0.2.1"
"""An address that no host has (RFC 5737): the way there begins at the address of the default route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """Who this node is among the others. ``meeting`` is where they serve etcd themselves, else empty."""

    name: NodeId
    addr: str
    agreement: AgreementSpec
    meeting: str = ""


def resolve_node(ctx: ResolveContext, framework: Framework, workers: Workers) -> NodeIdentity | None:
    """Settle who this node is and where all agree; None for the only node.

    UsageError (ConfigError) when too little is said, or one thing contradicts another.
    """
    settings = ctx.settings
    if workers.nodes == 1:
        ctx.no_effect("one node needs no rendezvous", Settings.rdzv_conf, Settings.local_addr)
        alone = (Settings.lease_ttl, Settings.node_wait, Settings.on_agreement_loss, Settings.node_name)
        ctx.no_effect("one node agrees with itself", *alone)
        return None
    if (backend := settings.rdzv_backend.strip().lower()) and backend not in _BACKENDS:
        raise settings.refuse(Settings.rdzv_backend, none_of(backend, _BACKENDS))
    rank = _node_rank(ctx, workers)
    named = settings.read(Settings.rdzv_endpoint, endpoints) or ()
    if backend in _ETCD or (not backend and (len(named) > 1 or any(one.scheme for one in named))):
        return _with_etcd(ctx, named, rank)
    return _with_leader(ctx, framework, workers, backend, rank)


def _with_etcd(ctx: ResolveContext, named: tuple[Endpoint, ...], rank: int | None) -> NodeIdentity:
    settings = ctx.settings
    if not named:
        because = "nothing says where etcd is"
        raise settings.refuse(Settings.rdzv_backend, because, "--rdzv-endpoint=HOST:2379,HOST:2379,HOST:2379")
    ctx.no_effect("workers meet on the node that has rank 0", Settings.master_addr)
    addr = _own_address(ctx, [one.host for one in named])
    name = _name(ctx, rank, on_one_machine=_loopback(addr))
    return NodeIdentity(name=name, addr=addr, agreement=_spec(ctx, etcd_access(ctx, named), rank))


def _with_leader(
    ctx: ResolveContext, framework: Framework, workers: Workers, backend: str, rank: int | None
) -> NodeIdentity:
    """The first node serves: who has node rank 0 or, where none is said to have it, the named host."""
    settings = ctx.settings
    leader = _leader(ctx, framework, workers, backend)
    if settings.fixed_port:
        because = f"the nodes agree at port {leader.port} of {leader.host}, so the workers need another"
        raise settings.refuse(Settings.fixed_port, because, "--rdzv-backend=etcd, with an etcd of your own")
    own = _address_here(leader.host)
    if rank is None and _loopback(leader.host):
        because = (
            f"{leader.host} is every machine's own name, and nothing says which of several nodes this is"
        )
        raise settings.refuse(Settings.node_rank, because, "--node_rank=0 on one of them, 1 on the next")
    serves = own != "" if rank is None else rank == 0
    conf = _conf(ctx)
    if "is_host" in conf:
        serves = settings.read(Settings.rdzv_conf, lambda _: switch(conf["is_host"])) or False
    addr = own if serves and own else _own_address(ctx, [leader.host])
    return NodeIdentity(
        name=_name(ctx, rank, on_one_machine=_loopback(leader.host) or (own != "" and bool(rank))),
        addr=addr,
        agreement=_spec(
            ctx,
            EtcdAccess(endpoints=(leader.at,)),
            rank,
            serve_at=Endpoint("", own or this_machine.every_address(), leader.port).at if serves else "",
        ),
        meeting=leader.at,
    )


def _spec(ctx: ResolveContext, etcd: EtcdAccess, rank: int | None, serve_at: str = "") -> AgreementSpec:
    settings = ctx.settings
    return AgreementSpec(
        etcd=etcd,
        serve_at=serve_at,
        node_rank=rank,
        lease_ttl_s=settings.lease_ttl,
        node_wait_s=settings.node_wait,
        on_loss=settings.on_agreement_loss,
    )


def _leader(ctx: ResolveContext, framework: Framework, workers: Workers, backend: str) -> Endpoint:
    """``--master_addr``, torchrun's endpoint, the platform's first node, MASTER_ADDR: who is named first."""
    settings = ctx.settings
    at = settings.read(Settings.rdzv_endpoint, endpoint)
    told = _told_leader(ctx, workers)
    if settings.gave(Settings.master_addr):
        ctx.no_effect("--master_addr says where the nodes agree", Settings.rdzv_endpoint)
        host, port = settings.master_addr, None
    elif at is not None:
        host, port = at
    elif told:
        host, port = endpoint(told)
    else:
        because = f"nothing says where the {workers.nodes} nodes find each other"
        hint = "--master_addr=HOST of the first node, or --rdzv-backend=etcd --rdzv-endpoint=HOST:2379"
        raise settings.refuse(Settings.nnodes, because, hint)
    port = port if settings.master_port is None else settings.master_port
    if port == 0:
        raise settings.refuse(Settings.master_port, "every node must know the port", "--master_port=29500")
    usual = _MINDSPORE_PORT if framework is Framework.MINDSPORE else _USUAL_PORT.get(backend, _STATIC_PORT)
    return Endpoint("", bare(host), port or usual)


def _told_leader(ctx: ResolveContext, workers: Workers) -> str:
    """By the platform, else by the variables that Kubeflow and Slurm scripts set for torch."""
    if workers.job is not None and workers.job.leader:
        return workers.job.leader
    if INSIDE_WORKER in ctx.environ or not ctx.environ.get("MASTER_ADDR"):
        return ""
    return ":".join(filter(None, (ctx.environ["MASTER_ADDR"], ctx.environ.get("MASTER_PORT", ""))))


def _node_rank(ctx: ResolveContext, workers: Workers) -> int | None:
    """The option, the platform, Slurm, RANK where it counts nodes; None: by arrival."""
    if ctx.settings.node_rank is not None:
        return ctx.settings.node_rank
    if workers.job is not None and workers.job.node_rank is not None:
        return workers.job.node_rank
    if INSIDE_WORKER in ctx.environ:
        return None
    environ, nodes = ctx.environ, str(workers.nodes)
    slurm = environ.get("SLURM_JOB_NUM_NODES", ""), environ.get("SLURM_NODEID", "")
    if all(text.isdigit() for text in slurm) and int(slurm[0]) >= workers.nodes:
        return int(slurm[1])
    counts_nodes = environ.get("WORLD_SIZE") == nodes and "LOCAL_RANK" not in environ
    rank = environ.get("RANK", "")
    return int(rank) if counts_nodes and rank.isdigit() else None


def _name(ctx: ResolveContext, rank: int | None, *, on_one_machine: bool) -> NodeId:
    """The machine's or pod's name: it is the same when the supervisor is started again.

    Nodes that meet at a loopback address are all on this machine, and so is one of another rank that has the
    address or the log_dir of the first: the machine's name does not tell them apart.
    """
    if ctx.settings.node_name:
        return NodeId(ctx.settings.node_name)
    host = this_machine.hostname()
    from faultrun.journal.logdir import read_record, recorded  # of several nodes only

    record = read_record(Path(ctx.settings.log_dir) / node_folder(NodeId(host)))
    had = recorded(record, "spec", "agreement", "node_rank")
    beside = on_one_machine or (had is not None and had != rank)
    return NodeId(f"{host}-{rank}" if beside and rank is not None else host)


def _own_address(ctx: ResolveContext, towards: list[str]) -> str:
    """Where the others reach this node: ``--local-addr``, else where packets to them begin."""
    settings = ctx.settings
    if given := bare(settings.local_addr):
        if not (address := _address_here(given)):
            raise settings.refuse(Settings.local_addr, f"{given} is not an address of this machine")
        return address
    known = next(filter(None, map(_address_of, towards)), _ANYWHERE)
    return this_machine.address_towards(known)


def _address_here(host: str) -> str:
    """The address of ``host`` if that is this machine, else empty."""
    address = _address_of(host)
    return address if address and this_machine.owns_address(address) else ""


def _address_of(host: str) -> str:
    """Empty where it is unknown: the name of a pod may be known only once that is ready."""
    try:
        return host if this_machine.is_address(host) else this_machine.address_of(host)
    except OSError:
        return ""


def etcd_access(ctx: ResolveContext, named: tuple[Endpoint, ...]) -> EtcdAccess:
    """How etcd is reached at ``named``, as ``--rdzv-conf`` says. UsageError (ConfigError): it contradicts."""
    settings, conf = ctx.settings, _conf(ctx)
    for word in _PASSWORDS:
        if word in conf:
            because = "every user of this machine can read a command line"
            raise settings.refuse(Settings.rdzv_conf, because, "--rdzv-conf=username=NAME,password_file=FILE")
    files = {field: _file(settings, conf[key]) for key, field in _FILES.items() if key in conf}
    user = conf.get("username", "")
    for lacks, needed in (
        (bool(files.get("key_file")) != bool(files.get("cert_file")), "cert and key"),
        (bool(user) != bool(files.get("password_file")), "username and password_file"),
    ):
        if lacks:
            raise settings.refuse(Settings.rdzv_conf, f"{needed} are of use only together")
    schemes = {conf.get("protocol", ""), *(one.scheme for one in named)} - {""}
    if len(schemes) > 1:
        because = "some of it says http and some https"
        raise settings.refuse(Settings.rdzv_conf, because, "one protocol for all")
    certified = [field for field in ("ca_file", "cert_file") if files.get(field)]
    if schemes == {"http"} and certified:
        raise settings.refuse(Settings.rdzv_conf, "http has no certificates", "protocol=https")
    if unused := ", ".join(sorted(conf.keys() - _FILES.keys() - {"username", "protocol"})):
        ctx.note(f"{settings.where(Settings.rdzv_conf)}: {unused} has no effect here")
    return EtcdAccess(
        endpoints=tuple(one.at for one in named),
        tls=bool(certified) or schemes == {"https"},
        username=user,
        **files,
    )


def _conf(ctx: ResolveContext) -> dict[str, str]:
    pairs = (part.partition("=") for part in ctx.settings.rdzv_conf)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _file(settings: Settings, name: str) -> str:
    path = Path(name).absolute()
    try:
        path.open("rb").close()
    except OSError as error:
        raise settings.refuse(Settings.rdzv_conf, f"{name}: {os.strerror(error.errno or 0)}") from None
    return str(path)


def _loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
