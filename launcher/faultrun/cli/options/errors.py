"""What click says of a wrong command line, told as what · because · try."""

import click

from faultrun.cli.options.settings import OPTIONS
from faultrun.cli.options.values import likely
from faultrun.errors import UsageError

_HELP = "faultrun --help lists every option; options of the script come after SCRIPT"
_RUN_OR_PROGRAM = ("run", "faultrun", None)
_UNFILTERED = ("log lines are not filtered", "leave it out and grep worker_<rank>.log")

TORCHRUN_ONLY = {
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
    "duplicate_stdout_filters": _UNFILTERED,
    "duplicate_stderr_filters": _UNFILTERED,
    "local_addr": ("one node needs no address of its own", "leave it out, or --master_addr"),
    "logs_specs": ("torchrun's log plugins are not loaded", "--log_dir, --tee and --tail_worker_log"),
    "numa_binding": ("it needs CUDA's view of the machine", "--bind_numa=True or --bind_core=True"),
    "signals_to_handle": ("SIGTERM, SIGINT and SIGHUP all let the workers save", "leave it out"),
    "virtual_local_rank": ("LOCAL_RANK is always the worker's own", "leave it out"),
}
"""torchrun's other options by name: why they are refused, and what to write instead."""


def as_usage_error(error: click.UsageError) -> UsageError:
    """The same complaint in our three lines."""
    said = error.format_message().rstrip(".")
    because = said[:1].lower() + said[1:]
    about_run = error.ctx is None or error.ctx.command.name in _RUN_OR_PROGRAM
    command = error.ctx.command_path if error.ctx is not None else ""
    if isinstance(error, click.NoSuchOption):
        return _unknown_option(error.option_name) if about_run else _unknown_of_verb(error, command)
    if not about_run:
        return UsageError(f"`{command}` is written wrongly", because=because, hint=f"{command} --help")
    if isinstance(error, click.BadOptionUsage):
        key = _key(error.option_name)
        hint = OPTIONS[key].use if key in OPTIONS else _HELP
        return UsageError(f"--{key} is written wrongly", because=because, hint=hint)
    return UsageError("the command line is wrong", because=because, hint=_HELP)


def _unknown_option(typed: str) -> UsageError:
    key = _key(typed)
    if key in TORCHRUN_ONLY:
        because, hint = TORCHRUN_ONLY[key]
        spelled = f"--{key.replace('_', '-')}"
        return UsageError(f"{spelled} is torchrun's and not supported", because=because, hint=hint)
    match = likely(key, list(OPTIONS))
    hint = f"did you mean {OPTIONS[match].spelled}?  (e.g. {OPTIONS[match].use})" if match else _HELP
    because = "neither faultrun nor msrun nor torchrun has it"
    return UsageError(f"unknown option {typed}", because=because, hint=hint)


def _unknown_of_verb(error: click.NoSuchOption, command: str) -> UsageError:
    match = likely(error.option_name, error.possibilities or [])
    return UsageError(
        f"unknown option {error.option_name}",
        because=f"`{command}` does not have it",
        hint=f"did you mean {match}?" if match else f"{command} --help",
    )


def _key(typed: str) -> str:
    return typed.lstrip("-").replace("-", "_")
