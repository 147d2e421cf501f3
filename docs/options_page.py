"""``docs/options.md``, made from the tables of the code.

Written anew by ``python docs/options_page.py > docs/options.md``.
"""

from collections.abc import Iterator, Mapping

import click

from faultrun.cli.options.option import Takes
from faultrun.cli.options.settings import SECTIONS
from faultrun.cli.verbs import VERBS, verb_command

_INTRODUCTION = """\
# Options and environment variables

This page is made from the code. Of each option of a run it has the name (`_` and `-` are the same), the
environment variable, the default and the meaning.

* An option that is not typed is taken from its variable (`FAULTRUN_MAX_RESTARTS=5`), then from torchrun's
  `PET_` variable, then from the file of `--config`, whose keys are names of options; else it has its default.
* An option that is repeatable has its values between `;` in a variable, and is a list in a file.
* `TIME` is `250ms`, `30s`, `5m` or `5min`, `1h`, `2d`, or a number of seconds.
"""

WORKER_VARIABLES: Mapping[str, str] = {
    "RANK": "its rank in the whole run, from 0; also RANK_ID",
    "RANK_ID": "the same, as Ascend's tools call it",
    "LOCAL_RANK": "its place on this node, from 0",
    "WORLD_SIZE": "workers of the whole run; also RANK_SIZE",
    "RANK_SIZE": "the same, as Ascend's tools call it",
    "LOCAL_WORLD_SIZE": "workers on this node",
    "NODE_RANK": "index of this node; also GROUP_RANK",
    "GROUP_RANK": "the same, as torchrun calls it",
    "GROUP_WORLD_SIZE": "torchrun: nodes of the run",
    "ROLE_NAME": "torchrun: role",
    "ROLE_RANK": "torchrun: RANK, as a run has one role",
    "ROLE_WORLD_SIZE": "torchrun: WORLD_SIZE",
    "MASTER_ADDR": "where the workers meet",
    "MASTER_PORT": "the port there; a fresh one in each incarnation",
    "DEVICE_ID": "number of its device: by the rank table, else LOCAL_RANK",
    "TORCHELASTIC_RESTART_COUNT": "the incarnation",
    "TORCHELASTIC_MAX_RESTARTS": "max_restarts",
    "TORCHELASTIC_RUN_ID": "the run's id",
    "TORCHELASTIC_USE_AGENT_STORE": "torchrun: False; rank 0 keeps the store",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1, unless it is set already",
    "OMP_NUM_THREADS": "torch with several workers on a node: 1, unless it is set already",
    "TORCHELASTIC_ERROR_FILE": "where torch's `record` writes an exception",
    "PYTHONUNBUFFERED": "1: what is printed is in the log at once",
    "FAULTRUN_RUN_ID": "the run's id",
    "FAULTRUN_BOOT_ID": "this life of the supervisor; by it descendants are found that escaped",
    "FAULTRUN_INCARNATION": "life of the worker group, from 0",
    "FAULTRUN_WORLD_SIZE_FULL": "where the run may go on with fewer: its workers when none is left out",
    "FAULTRUN_ACCUMULATE": "with it: in how many parts a rank does its share of a step, mostly 1",
    "FAULTRUN_GRACE_S": "seconds from SIGTERM to SIGKILL after a peer died",
    "FAULTRUN_SOCKET": "the supervisor's socket, for the SDK",
    "FAULTRUN_PROGRESS": "its slot in the page of steps, for the SDK",
    "FAULTRUN_WORKER_FOLDERS": "worker_dir, absolute, with its fields; only where it is given",
    "FAULTRUN_GROUP_INFO_FILE": "where MindSpore may write its replica groups",
    "FAULTRUN_RESTART_REASON": "fault or continued; only when this incarnation resumes, as the next five",
    "FAULTRUN_RESUME_FROM": "the checkpoint that was chosen for this rank; empty when there is none",
    "FAULTRUN_RESUME_EPOCH": "its epoch, where it is known",
    "FAULTRUN_RESUME_STEP": "its global step, where it is known",
    "RESTORE_RANKS": "ranks whose checkpoint is missing (MindSpore's restore strategy); -1 for none",
    "RESTORE_RANKS_MAP": "the rank whose file each of them loads instead",
    "GROUP_INFO_FILE": "the same as FAULTRUN_GROUP_INFO_FILE, on Ascend only",
    "RANK_TABLE_FILE": "Ascend's rank table, where there is one",
    "MS_WORKER_NUM": "MindSpore: workers of the run",
    "MS_NODE_ID": "MindSpore: the rank",
    "MS_TOPO_TIMEOUT": "MindSpore: cluster_time_out",
    "MS_SCHED_HOST": "MindSpore: where its scheduler listens",
    "MS_SCHED_PORT": "MindSpore: the port there",
    "MS_ROLE": "MindSpore: MS_WORKER",
    "MS_DISABLE_HEARTBEAT": "MindSpore: 1 where ranks meet in the supervisor, unless it is set already",
    "ASCEND_DEVICE_ID": "TensorFlow on Ascend: DEVICE_ID",
    "DEVICE_INDEX": "TensorFlow on Ascend: the rank",
    "JOB_ID": "TensorFlow on Ascend: HCCL's constant",
}
"""What each variable of a worker's environment means; a test compares the names with what workers get."""


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *_run(), *_verbs(), *_worker()]) + "\n"


def _run() -> Iterator[str]:
    for title, options in SECTIONS.items():
        yield from (f"## {title}", "", "| option | variable | default | |", "|---|---|---|---|")
        for option in options:
            again = " Repeatable." if option.takes is Takes.LIST else ""
            variable = "" if option.name in ("config", "dry_run") else f"`{option.variable}`"
            default = _cell(option.default_text)
            yield f"| `{_cell(option.term)}` | {variable} | {default} | {_cell(option.help)}{again} |"
        yield ""


def _verbs() -> Iterator[str]:
    yield from ("## The other verbs", "", "| verb | option | |", "|---|---|---|")
    for name in VERBS:
        yield from _verb(name, verb_command(name))
    yield ""


def _verb(name: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            yield from _verb(f"{name} {below}", one)
        return
    arguments = (one for one in command.params if isinstance(one, click.Argument))
    words = " ".join(one.make_metavar(click.Context(command)) for one in arguments)
    said = (command.help or VERBS[name].summary).strip().partition("\n\n")[0]
    yield f"| `{_cell(f'{name} {words}'.rstrip())}` | | {_cell(said)} |"
    options = [one for one in command.params if isinstance(one, click.Option)]
    own = [one for one in options if one.help]
    if len(own) < len(options):
        yield "| | every option of a run | as above |"
    for option in own:
        spelled = [one for one in option.opts if one.startswith("--")][:1] or option.opts
        yield f"| | `{spelled[0]}` | {_cell(option.help or '')} |"


def _worker() -> Iterator[str]:
    yield from ("## What a worker finds in its environment", "", "| variable | |", "|---|---|")
    yield from (f"| `{name}` | {_cell(text)} |" for name, text in WORKER_VARIABLES.items())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    click.echo(page(), nl=False)
