"""Log files and the console: ``--log_dir``, msrun's names and tails, torchrun's streams, as one ``Logs``."""

from collections.abc import Callable

from faultrun.cli.options.settings import Settings
from faultrun.cli.options.values import ranks, size, streams
from faultrun.cli.resolve.process_context import Notes
from faultrun.model.spec import Logs, Stream, Supervision
from faultrun.platforms import local

_CONSOLE = ("tail_worker_log", "tee", "redirects")


def resolve_logs(
    settings: Settings, notes: Notes, supervision: Supervision, *, workers: int, master_addr: str
) -> Logs:
    """Settle names and streams for ranks 0 to ``workers`` - 1; raises UsageError (ConfigError)."""
    plain = Logs()
    name = settings.read("worker_log_name", lambda text: _log_name(text, master_addr))
    folder = settings.read("log_dir", str)
    tail = settings.read("tail_worker_log", ranks)
    tee, redirects = (_per_rank(settings, notes, option, workers) for option in ("tee", "redirects"))
    if tail is not None:
        unknown = ", ".join(str(rank) for rank in tail if rank >= workers)
        if unknown:
            notes.no_effect("tail_worker_log", f"of the ranks 0 to {workers - 1} none is {unknown}")
    if not supervision.join:
        for option in _CONSOLE:
            notes.no_effect(option, "with --join=False nobody stays at the console; follow the log files")
        tail, tee, redirects = None, (), ()
    return Logs(
        # msrun's empty log_dir is the working directory
        log_dir=plain.log_dir if folder is None else folder or ".",
        worker_log_name=name or plain.worker_log_name,
        tail=None if tail is None else frozenset(tail or range(workers)),
        tee=tee,
        redirects=redirects,
        termination_log=settings.read("termination_log", str) or plain.termination_log,
        max_bytes=plain.max_bytes if (longest := settings.read("log_max_size", size)) is None else longest,
    )


def _log_name(text: str, master_addr: str) -> str:
    """Fill in msrun's template: ``{ip}`` is the address that this machine shows to the master's."""
    fields: dict[str, Callable[[], str]] = {
        "{ip}": lambda: local.address_towards(master_addr),
        "{hostname}": local.hostname,
    }
    for field, value in fields.items():
        if field in text:
            text = text.replace(field, value())
    if "/" in text or "\0" in text:
        raise ValueError(f"{text!r} is a path, and the files lie in --log_dir")
    return text


def _per_rank(settings: Settings, notes: Notes, option: str, workers: int) -> tuple[Stream, ...]:
    chosen = settings.read(option, streams)
    if chosen is None:
        return ()
    unknown = [rank for rank in chosen if rank is not None and rank >= workers]
    if unknown:
        notes.no_effect(option, f"of the local ranks 0 to {workers - 1} none is {unknown[0]}")
    others = chosen.get(None, Stream.NONE)
    return tuple(chosen.get(rank, others) for rank in range(workers))
