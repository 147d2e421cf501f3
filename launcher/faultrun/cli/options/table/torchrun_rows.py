"""The rest of torchrun's options, a row each: those that only users of torchrun need.

Source: torch/distributed/run.py of PyTorch 2.13; a test compares. What has no effect here says so once.
"""

from faultrun.cli.options.choices import word
from faultrun.cli.options.option import Flag, Option, Options
from faultrun.cli.options.values import ranks
from faultrun.model.spec.worker_identity import WorkerIdentity

_IDENTITY = WorkerIdentity()


def needles(text: str) -> tuple[str, ...]:
    """Texts between commas; two commas are one of its own (torchrun's comma_separated_list)."""
    parts = text.replace(",,", "\0").split(",")
    return tuple(part.replace("\0", ",") for part in parts if part)


def pairs(text: str) -> tuple[str, ...]:
    """``key=value,...`` as torchrun's rendezvous is tuned (elastic/rendezvous/utils.py)."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        key, equals, value = part.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise ValueError(f"{part!r} is not KEY=VALUE")
    return tuple(parts)


class TorchrunOptions(Options):
    """What torchrun has beside the everyday options."""

    role = Option("NAME", str, default=_IDENTITY.role, dashes=True, torch=True, example="trainer")
    """ROLE_NAME of every worker; a run has one role."""
    virtual_local_rank = Flag(dashes=True, torch=True)
    """Each worker sees its own GPU alone: LOCAL_RANK=0, and CUDA_VISIBLE_DEVICES names one."""
    run_path = Flag(dashes=True, torch=True)
    """SCRIPT is Python, whatever its name ends in."""
    local_ranks_filter = Option(
        "RANKS", ranks, default=None, shown="all", example="0", dashes=True, torch=True
    )
    """Show only these local ranks on the console; log files have all."""
    duplicate_stdout_filters = Option(
        "TEXT,...", needles, default=needles(""), example="loss", dashes=True, torch=True
    )
    """Lines of stdout with one of these texts also go to filtered_stdout.log of the incarnation (a comma of
    the text is written twice). Standard error then has a log of its own.
    """
    duplicate_stderr_filters = Option(
        "TEXT,...", needles, default=needles(""), example="Warning", dashes=True, torch=True
    )
    """The same for stderr and filtered_stderr.log."""
    rdzv_conf = Option(
        "KEY=VALUE,...", pairs, default=pairs(""), example="timeout=60", dashes=True, torch=True
    )
    """How etcd is reached: cacert, cert, key, protocol, username, password_file (a file, never a password);
    is_host for c10d. One node needs none.
    """
    local_addr = Option("HOST", str, default="", example="10.0.0.1", dashes=True, torch=True)
    """The address of this node that other nodes reach; one node needs none."""
    start_method = Option(
        "spawn|fork|forkserver",
        word("spawn", "fork", "forkserver"),
        default="",
        example="spawn",
        dashes=True,
        torch=True,
    )
    """How torchrun would start functions; no effect: workers are programs."""
    event_log_handler = Option("NAME", str, default="", example="console", dashes=True, torch=True)
    """Where torchrun's own events go; no effect: journal.jsonl has ours."""
    logs_specs = Option("NAME", str, default="", example="default", dashes=True)
    """A plugin for torchrun's log files; no effect."""
    numa_binding = Option(
        "node|socket|exclusive|core-complex",
        word("node", "socket", "exclusive", "core-complex"),
        default="",
        example="node",
        dashes=True,
    )
    """Processors near each worker's GPU; no effect: bind_numa and bind_core do that."""
    signals_to_handle = Option(
        "NAME,...", str, default="", example="SIGTERM,SIGUSR1", dashes=True, torch=True
    )
    """What torchrun would handle; no effect: signals says what each signal means."""
