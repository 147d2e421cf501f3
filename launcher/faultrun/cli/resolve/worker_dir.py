"""``--worker_dir``: a working directory for each worker, where words keep the meaning they had here.

As the launch scripts of MindSpore's ModelZoo do it by hand: they make a folder per rank, resolve the paths
that they were given, and start the script in there. Their copies of the code are not needed.
"""

import os
from dataclasses import replace
from pathlib import Path

from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.context import ResolveContext
from faultrun.cli.resolve.program import Program
from faultrun.model.spec.run_spec import Command, Recovery
from faultrun.model.spec.worker_identity import WorkerIdentity

_PATH = "PYTHONPATH"


def resolve_worker_dir(ctx: ResolveContext, program: Program, workers: int) -> tuple[str, Program]:
    """The folder's template, absolute, and the program as it must be written to be found from there.

    Empty, and the program as it is, without the option. UsageError (ConfigError): a file is in the way.
    """
    if not (given := ctx.settings.worker_dir):
        return "", program
    template = str(Path(given).absolute())
    for rank in range(workers):
        path = Path(template.replace("{rank}", str(rank)).replace("{local_rank}", str(rank)))
        blocking = next((one for one in (path, *path.parents) if one.is_file()), None)
        if blocking is not None:
            raise ctx.settings.refuse(Settings.worker_dir, f"{blocking} is a file")
    first, *rest = program.command.prefix
    prefix = (_seen_from_here(first) if "/" in first else first, *map(_seen_from_here, rest))
    args = tuple(map(_argument, program.command.script_args))
    moved = [old for old, new in zip(program.command.script_args, args, strict=True) if old != new]
    if moved:
        ctx.note(f"--worker_dir: {' '.join(moved)} as seen from {Path.cwd()}")
    command = Command(prefix=prefix, script_args=args, shown=program.command.shown)
    return template, replace(program, command=command)


def worker_path(ctx: ResolveContext, folder: str, program: Program) -> tuple[tuple[str, str], ...]:
    """PYTHONPATH, where ``-m`` would find the program's modules in the working directory no more."""
    if not folder or "-m" not in program.command.prefix:
        return ()
    return ((_PATH, os.pathsep.join(filter(None, (str(Path.cwd()), ctx.environ.get(_PATH, ""))))),)


def worker_places(folder: str, workers: int, local: int) -> tuple[str, ...]:
    """The working directory of every rank, ``local`` of them on each node; none where they work here."""
    identity = WorkerIdentity(folder=folder)
    each = (identity.folder_of(rank, rank % local, rank // local) for rank in range(workers))
    return tuple(one for one in each if one is not None)


def spread_folders(recovery: Recovery, folder: str, workers: int) -> Recovery:
    """Checkpoint folders with ``{rank}`` once for each; absolute where workers are elsewhere than we are."""
    found: list[str] = []
    for one in recovery.checkpoint_dirs:
        each = [one.replace("{rank}", str(rank)) for rank in range(workers)] if "{rank}" in one else [one]
        found += [str(Path(path).absolute()) if folder else path for path in each]
    return replace(recovery, checkpoint_dirs=tuple(dict.fromkeys(found)))


def _argument(word: str) -> str:
    """A path, or what stands behind the ``=`` of an option, if it is there; the word as it is otherwise."""
    name, equals, value = word.partition("=")
    if equals and word.startswith("-"):
        return f"{name}={_seen_from_here(value)}"
    return _seen_from_here(word)


def _seen_from_here(word: str) -> str:
    """The absolute path of a file, or of a folder that is written as a path: a bare word may mean a mode."""
    path = Path(word)
    if word.startswith("-") or path.is_absolute():
        return word
    is_path = os.path.isfile(word) or ("/" in word and os.path.isdir(word))  # noqa: PTH112, PTH113  never raise
    return str(path.absolute()) if is_path else word
