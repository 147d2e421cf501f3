"""Where the workers meet: msrun's and torchrun's options, for one node, as one ``Rendezvous``."""

from faultrun.cli.options.settings import Settings
from faultrun.cli.options.values import endpoint, patience_s, whole
from faultrun.cli.resolve.process_context import Notes
from faultrun.model.spec import Framework, Rendezvous
from faultrun.platforms import local

_LOCALHOST = "127.0.0.1"
_USUAL_PORT = {Framework.MINDSPORE: 8118}
_TORCH_PORT = 29_500


def resolve_meeting(settings: Settings, notes: Notes, framework: Framework) -> Rendezvous:
    """Address and first port; raises UsageError (ConfigError) for an address that is not this machine's."""
    host, port = _host_and_port(settings, notes)
    fixed = settings.flag("fixed_port")
    if fixed and port is None:
        port = _USUAL_PORT.get(framework, _TORCH_PORT)
    patience = settings.read("cluster_time_out", patience_s)
    if framework is not Framework.MINDSPORE:
        notes.no_effect("cluster_time_out", f"only MindSpore builds a cluster, and this is {framework.value}")
    return Rendezvous(
        master_addr=_address(settings, host, framework),
        port=port,
        fixed_port=fixed,
        cluster_time_out_s=600 if patience is None else patience,
    )


def _host_and_port(settings: Settings, notes: Notes) -> tuple[str, int | None]:
    """``master_*`` before the endpoint of torchrun's rendezvous; neither counts when ``--standalone``."""
    backend = settings.read("rdzv_backend", str) or ""
    at = settings.read("rdzv_endpoint", endpoint if not backend.startswith("etcd") else _untouched)
    host = settings.read("master_addr", str)
    port = settings.read("master_port", whole(0, 65_535))
    if settings.flag("standalone"):
        for name in ("master_addr", "master_port", "rdzv_backend", "rdzv_endpoint"):
            notes.no_effect(name, "--standalone chooses for itself")
        return _LOCALHOST, None
    notes.no_effect("rdzv_backend", "the workers of one node need no rendezvous server")
    if backend.startswith("etcd"):
        notes.no_effect("rdzv_endpoint", "it names etcd, which one node does not need")
    elif host is not None or port is not None:
        notes.no_effect("rdzv_endpoint", "--master_addr or --master_port says where to meet")
    elif at is not None:
        host, port = at
    return host or _LOCALHOST, port or None


def _untouched(text: str) -> tuple[str, int | None]:
    return text, None


def _address(settings: Settings, host: str, framework: Framework) -> str:
    """The meeting address, which must be ours: the only node's.

    MindSpore is given an address, as msrun does; torch resolves names itself,
    and a name may be known only once the workers run.
    """
    name = "master_addr" if "master_addr" in settings.given else "rdzv_endpoint"
    bare = host.strip().removeprefix("[").removesuffix("]")
    address = bare
    if not local.is_address(bare):
        if framework is not Framework.MINDSPORE:
            return bare
        try:
            address = local.address_of(bare)
        except OSError as error:
            raise settings.refuse(name, f"{bare} has no address: {error.strerror}", "") from None
    if not local.owns_address(address):
        because = f"{address} is not an address of this machine, the only node of the run"
        raise settings.refuse(name, because, "leave it out: the workers then meet at 127.0.0.1")
    return address
