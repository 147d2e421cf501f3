"""What click says of a wrong command line, told as what · because · try."""

import click

from faultrun.cli.options.table import BY_NAME, every_option
from faultrun.errors import UsageError

_HELP = "faultrun --help lists every option; options of the script come after SCRIPT"

_RUN_OR_PROGRAM = ("run", "faultrun", None)

_TORCHRUN_ONLY: dict[str, tuple[str, str]] = {
    "rdzv_conf": ("it tunes torchrun's rendezvous, and one node needs none", "leave it out"),
    "start_method": ("workers are programs of their own, not forks of the launcher", "leave it out"),
    "event_log_handler": (
        "faultrun writes its own journal",
        "leave it out and read journal.jsonl in --log_dir",
    ),
    "role": ("all workers of a run have one role", "leave it out"),
    "run_path": ("every worker is a process with its own interpreter", "leave it out"),
    "local_ranks_filter": (
        "the console is chosen by stream and rank",
        "--tail_worker_log=0,1 or --tee=0:3,1:3",
    ),
    "duplicate_stdout_filters": ("log lines are not filtered", "leave it out and grep worker_<rank>.log"),
    "duplicate_stderr_filters": ("log lines are not filtered", "leave it out and grep worker_<rank>.log"),
    "local_addr": ("one node needs no address of its own", "leave it out, or --master_addr"),
    "logs_specs": ("torchrun's log plugins are not loaded", "--log_dir, --tee and --tail_worker_log"),
    "numa_binding": ("it needs CUDA's view of the machine", "--bind_numa=True or --bind_core=True"),
    "signals_to_handle": ("SIGTERM, SIGINT and SIGHUP all let the workers save", "leave it out"),
    "virtual_local_rank": ("LOCAL_RANK is always the worker's own", "leave it out"),
}
"""torchrun's other options by name: why they are refused, and what to write instead."""


def torchrun_only() -> frozenset[str]:
    """Names of torchrun's options that are refused with a reason of their own."""
    return frozenset(_TORCHRUN_ONLY)


def as_usage_error(error: click.UsageError) -> UsageError:
    """The same complaint in our three lines."""
    if error.ctx is not None and error.ctx.command.name not in _RUN_OR_PROGRAM:
        return _about_verb(error, error.ctx.command_path)
    if isinstance(error, click.NoSuchOption):
        return _unknown_option(error.option_name)
    said = error.format_message().rstrip(".")
    if isinstance(error, click.BadOptionUsage):
        option = BY_NAME.get(_key(error.option_name))
        what = f"--{_key(error.option_name)} is written wrongly"
        return UsageError(what, because=_lowered(said), hint=option.example if option else _HELP)
    return UsageError("the command line is wrong", because=_lowered(said), hint=_HELP)


def likely(name: str, names: list[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that ``name`` was probably meant to be; ``cutoff`` is difflib's, 1 for equal."""
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1, cutoff=cutoff)
    return close[0] if close else None


def _unknown_option(typed: str) -> UsageError:
    key = _key(typed)
    if key in _TORCHRUN_ONLY:
        because, hint = _TORCHRUN_ONLY[key]
        spelled = f"--{key.replace('_', '-')}"
        return UsageError(f"{spelled} is torchrun's and not supported", because=because, hint=hint)
    match = likely(key, [option.name for option in every_option()])
    hint = f"did you mean {BY_NAME[match].spelled}?  (e.g. {BY_NAME[match].example})" if match else _HELP
    return UsageError(
        f"unknown option {typed}", because="neither faultrun nor msrun nor torchrun has it", hint=hint
    )


def _about_verb(error: click.UsageError, command: str) -> UsageError:
    if isinstance(error, click.NoSuchOption):
        match = likely(error.option_name, error.possibilities or [])
        return UsageError(
            f"unknown option {error.option_name}",
            because=f"`{command}` does not have it",
            hint=f"did you mean {match}?" if match else f"{command} --help",
        )
    because = _lowered(error.format_message().rstrip("."))
    return UsageError(f"`{command}` is written wrongly", because=because, hint=f"{command} --help")


def _key(typed: str) -> str:
    return typed.lstrip("-").replace("-", "_")


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
