"""Where the workers meet, and who brings them together: msrun's and torchrun's options, for one node."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path

from faultrun.cli.options.node_addresses import bare, endpoint
from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.context import ResolveContext
from faultrun.cli.resolve.nodes_etcd import NodeIdentity
from faultrun.cli.resolve.program import Program
from faultrun.cli.resolve.workers import Workers
from faultrun.model.spec.run_spec import Command, Framework, MsScheduler, Rendezvous
from faultrun.platforms import this_machine

_LOCALHOST = "127.0.0.1"
_USUAL_PORT = {Framework.MINDSPORE: 8118}
_TORCH_PORT = 29_500
_WITH_THE_LOGS = "log_dir"


def resolve_meeting(ctx: ResolveContext, framework: Framework, node: NodeIdentity | None) -> Rendezvous:
    """Address and first port; raises UsageError (ConfigError) for an address that is not this machine's.

    ``node`` is this one of several: where they serve etcd themselves, the port that was named is etcd's.
    """
    settings = ctx.settings
    if node is None:
        host, port = _host_and_port(ctx)
    else:
        host, port = node.addr, None if node.meeting else settings.master_port or None
    if settings.fixed_port and port is None:
        port = _USUAL_PORT.get(framework, _TORCH_PORT)
    patience_s = settings.cluster_time_out
    if framework is not Framework.MINDSPORE:
        because = f"only MindSpore builds a cluster, and this is {framework.value}"
        ctx.no_effect(because, Settings.cluster_time_out)
    return Rendezvous(
        master_addr=_address(settings, host, framework) if node is None else host,
        port=port,
        fixed_port=settings.fixed_port,
        ports=settings.master_port_range,
        cluster_time_out_s=patience_s,
        rank_table_wait_s=settings.rank_table_wait,
    )


def resolve_scheduler(
    ctx: ResolveContext, framework: Framework, command: Command, address: str, workers: Workers
) -> MsScheduler:
    """What serves the first incarnation; UsageError (ConfigError) for a builtin that could never listen.

    Of several nodes each says what it could do, and the plan what is done.
    """
    asked = ctx.settings.ms_scheduler
    if framework is not Framework.MINDSPORE or workers.simulation is not None:
        because = "only MindSpore's workers look for a scheduler, and no dry run does"
        ctx.no_effect(because, Settings.ms_scheduler)
        return MsScheduler.NATIVE
    alone = workers.nodes == 1
    within_reach = _ipv4(address, loopback=alone)
    if asked is MsScheduler.NATIVE or (asked is None and not (within_reach and _simple(ctx.environ))):
        return MsScheduler.NATIVE
    if not within_reach:
        where = "loopback" if alone else "IPv4"
        because = f"the built-in scheduler listens on {where} only, and they meet at {address}"
        meets = "--master_addr=127.0.0.1" if alone else "--local-addr with an address of IPv4"
        raise ctx.settings.refuse(Settings.ms_scheduler, because, f"{meets}, or --ms_scheduler=native")
    from faultrun.frameworks.mindspore import PROVED, installed_version

    version = installed_version(command, ctx.process.python, ctx.process.import_path)
    if asked is None:
        return MsScheduler.BUILTIN if version in PROVED else MsScheduler.NATIVE
    if version not in PROVED:
        known = " ".join(PROVED)
        ctx.note(
            f"the built-in scheduler is proved for MindSpore {known}, and this is {version or 'unknown'}"
        )
    return MsScheduler.BUILTIN


def resolve_compile_cache(
    ctx: ResolveContext, framework: Framework, program: Program, world_size: int, log_dir: str
) -> str:
    """The folder of this job's graphs, absolute; empty when none are kept."""
    if not (asked := ctx.settings.compile_cache):
        return ""
    if framework is not Framework.MINDSPORE:
        because = f"only MindSpore keeps compiled graphs, and this is {framework.value}"
        ctx.no_effect(because, Settings.compile_cache)
        return ""
    if "MS_COMPILER_CACHE_PATH" in ctx.environ:
        ctx.no_effect("MS_COMPILER_CACHE_PATH is set", Settings.compile_cache)
        return ""
    from faultrun.frameworks.mindspore import compile_cache_key, installed_version

    version = installed_version(program.command, ctx.process.python, ctx.process.import_path)
    home = Path(log_dir) / "compile_cache" if asked == _WITH_THE_LOGS else Path(asked)
    return str(home.absolute() / compile_cache_key(program.source, program.command, world_size, version))


def _host_and_port(ctx: ResolveContext) -> tuple[str, int | None]:
    """``master_*`` before the endpoint of torchrun's rendezvous; neither counts when ``--standalone``."""
    settings = ctx.settings
    etcd = settings.rdzv_backend.startswith("etcd")
    at = None if etcd else settings.read(Settings.rdzv_endpoint, endpoint)
    host, port = settings.master_addr, settings.master_port
    if settings.standalone:
        ctx.no_effect(
            "--standalone chooses address and port itself",
            Settings.master_addr,
            Settings.master_port,
            Settings.rdzv_backend,
            Settings.rdzv_endpoint,
        )
        return _LOCALHOST, None
    ctx.no_effect("the workers of one node need no rendezvous server", Settings.rdzv_backend)
    if etcd:
        ctx.no_effect("it names etcd, which one node does not need", Settings.rdzv_endpoint)
    elif settings.gave(Settings.master_addr) or settings.gave(Settings.master_port):
        ctx.no_effect("--master_addr or --master_port says where to meet", Settings.rdzv_endpoint)
    elif at is not None:
        host, port = at
    return host or _LOCALHOST, port or None


def _address(settings: Settings, host: str, framework: Framework) -> str:
    """The meeting address, which must be ours: the only node's.

    MindSpore is given an address, as msrun does; torch resolves names itself,
    and a name may be known only once the workers run.
    """
    named = Settings.master_addr if settings.gave(Settings.master_addr) else Settings.rdzv_endpoint
    address = name = bare(host)
    if not this_machine.is_address(name):
        if framework is not Framework.MINDSPORE:
            return name
        try:
            address = this_machine.address_of(name)
        except OSError as error:
            raise settings.refuse(named, f"{name} has no address: {error.strerror}") from None
    if not this_machine.owns_address(address):
        because = f"{address} is not an address of this machine, the only node of the run"
        raise settings.refuse(named, because, "leave it out: the workers then meet at 127.0.0.1")
    return address


def _ipv4(address: str, *, loopback: bool) -> bool:
    """IPv4 only: it was never seen how MindSpore writes the other kind into its frames."""
    try:
        return ipaddress.IPv4Address(address).is_loopback or not loopback
    except ValueError:
        return False


def _simple(environ: Mapping[str, str]) -> bool:
    """Whether the workers train on CPU, without MindSpore's parameter servers and own recovery."""
    devices = any(this_machine.accelerators_of(kind, environ) is not None for kind in ("npu", "gpu"))
    servers = environ.get("MS_SERVER_NUM", "0") not in ("", "0")
    return not devices and not servers and environ.get("MS_ENABLE_RECOVERY", "0") != "1"
