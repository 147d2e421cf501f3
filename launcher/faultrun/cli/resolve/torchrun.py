"""What is torchrun's way of doing things: threads of a worker, who it is, options that mean nothing here."""

from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.context import ResolveContext
from faultrun.model.spec.run_spec import Framework
from faultrun.model.spec.worker_identity import WorkerIdentity

_THREADS = "OMP_NUM_THREADS"


def resolve_identity(ctx: ResolveContext, framework: Framework, workers: int, folder: str) -> WorkerIdentity:
    """Role, devices and ``folder``; what torchrun alone would make use of is said to have no effect."""
    settings = ctx.settings
    _say_without_effect(ctx)
    own_device = settings.virtual_local_rank
    if own_device and framework not in (Framework.TORCH, Framework.PLAIN):
        because = f"it chooses CUDA's devices, and this is {framework.value}"
        ctx.no_effect(because, Settings.virtual_local_rank)
        own_device = False
    seen = ctx.environ.get("CUDA_VISIBLE_DEVICES")
    if own_device and seen is not None and workers > len(seen.split(",")):
        because = f"each of {workers} workers needs a GPU of its own, and CUDA_VISIBLE_DEVICES={seen}"
        raise settings.refuse(Settings.virtual_local_rank, because, "fewer workers, or leave it out")
    return WorkerIdentity(role=settings.role, own_device=own_device, folder=folder)


def resolve_threads(ctx: ResolveContext, framework: Framework, workers: int) -> tuple[tuple[str, str], ...]:
    """OMP_NUM_THREADS=1 for torch's workers where torchrun sets it: there are several, and the user did not.

    Others are left alone: MindSpore's kernels have a pool of their own that is sized by it.
    """
    if framework is not Framework.TORCH or workers < 2 or _THREADS in ctx.environ:
        return ()
    ctx.note(f"{_THREADS}=1 for each of {workers} workers, as torchrun sets it; set it for more threads")
    return ((_THREADS, "1"),)


def _say_without_effect(ctx: ResolveContext) -> None:
    settings = ctx.settings
    for read in (settings.rdzv_conf, settings.start_method, settings.numa_binding):
        _ = read  # it means nothing here, and must still be right
    ctx.no_effect("workers are programs, not functions of the launcher", Settings.start_method)
    ctx.no_effect("events are in journal.jsonl of the log_dir", Settings.event_log_handler)
    ctx.no_effect("torchrun's plugins are not loaded", Settings.logs_specs)
    ctx.no_effect("--bind_numa and --bind_core tie workers to processors", Settings.numa_binding)
    ctx.no_effect(
        "TERM, INT, HUP, USR1 and USR2 are always handled; --signals says how", Settings.signals_to_handle
    )
