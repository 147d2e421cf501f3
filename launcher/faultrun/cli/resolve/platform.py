"""What the cluster's platform left for a run: rank table, server list, the operator's variables, fault files.

Defaults are the paths that MindX's manifests mount; they count only where they exist.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from faultrun.cli.options.choices import likely
from faultrun.cli.options.node_addresses import fewest_nodes
from faultrun.cli.options.settings import INSIDE_WORKER, Settings
from faultrun.cli.resolve.context import ProcessContext, ResolveContext
from faultrun.model.spec.run_spec import FaultFiles, Framework
from faultrun.platforms.ascend_operator import Allotment, allotment, parse_server_list
from faultrun.platforms.rank_table.rank_table import (
    MOST_TABLE_BYTES,
    RankTable,
    Server,
    node_names,
    parse_rank_table,
)
from faultrun.platforms.rank_table.wait import Awaited, not_finished
from faultrun.platforms.untrusted_files import Unfinished, read_bounded

_T = TypeVar("_T")

RANK_TABLE = Awaited(what="rank table", parse=parse_rank_table)
SERVER_LIST = Awaited(what="server list", parse=parse_server_list)

_RANK_TABLE = "user/serverid/devindex/config/hccl.json"
_SERVER_LIST = "user/serverid/devindex/config/serverList"
_FAULT_CONFIG = "user/restore/fault/config/fault-npus"
_RESET_CONFIG = "user/restore/reset/config/reset.json"
_IN_PLACE = "ENABLE_RESTART_FAULT_PROCESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTableFile:
    """A rank table's path, and the option, variable or custom that names it."""

    path: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTable:
    """What it says, and how a person knows it."""

    content: RankTable
    where: str


def rank_table_named(settings: Settings, process: ProcessContext) -> RankTableFile | None:
    """The option's file, else the variable's, else the one that the platform mounts."""
    if given := settings.rank_table_file:
        return RankTableFile(path=given, where=settings.where(Settings.rank_table_file))
    if inherited := process.environ.get("RANK_TABLE_FILE", ""):
        return RankTableFile(path=inherited, where="RANK_TABLE_FILE")
    mounted = process.root / _RANK_TABLE
    return RankTableFile(path=str(mounted), where=str(mounted)) if mounted.exists() else None


def read_rank_table(ctx: ResolveContext) -> FinishedTable | None:
    """The table that ``rank_table_named`` names, as it is now.

    NotFinished while the platform has not finished it. A wrong one is
    refused, or handed on unread if another source says how many workers there are.
    """
    settings, process = ctx.settings, ctx.process
    if (named := rank_table_named(settings, process)) is None:
        return None
    _check_spelling(settings, named)
    try:
        content = process.rank_table or _read(RANK_TABLE, named.path)
    except ValueError as error:
        if settings.gave(Settings.worker_num) or settings.gave(Settings.local_worker_num):
            ctx.note(f"{named.where}={named.path} is passed to the workers unread: {error}")
            return None
        because = str(error) if named.where == named.path else f"{named.where}={named.path}: {error}"
        hint = "a table without that mistake, or --worker_num=N"
        raise settings.refuse(Settings.rank_table_file, because, hint) from None
    return FinishedTable(content=content, where=named.where)


def awaited_table(settings: Settings, process: ProcessContext) -> Awaited[RankTable]:
    """When the rank table counts as finished.

    With ``--nnodes=MIN:MAX`` not before it names this node, where it names any: the platform may write who
    comes instead of another into it after that one has started.
    """
    names = node_names(process.environ)
    fewer = settings.nnodes > 1 and settings.read(Settings.nnodes, fewest_nodes) != settings.nnodes
    if not fewer or not names or settings.gave(Settings.node_rank):
        return RANK_TABLE

    def parse(content: bytes) -> RankTable:
        table = parse_rank_table(content)
        if len(table.servers) > 1 and any(server.names for server in table.servers):
            try:
                table.server_of(names)
            except ValueError as error:
                raise Unfinished(str(error)) from None
        return table

    return Awaited(what=RANK_TABLE.what, parse=parse)


def handed_on(ctx: ResolveContext, devices: tuple[int, ...]) -> str:
    """The RANK_TABLE_FILE of the workers; '' where the platform's own table has but one device.

    The platform's scripts unset it for one device, because a single rank does not form a group.
    """
    if (named := rank_table_named(ctx.settings, ctx.process)) is None:
        return ""
    # Workers may change their directory before they read it.
    return "" if len(devices) == 1 and named.where == named.path else str(Path(named.path).absolute())


def own_server(table: RankTable, process: ProcessContext) -> Server | None:
    """This node's server of the table; None if nothing says which it is."""
    try:
        return table.server_of(node_names(process.environ))
    except ValueError:
        return None


def server_list_path(process: ProcessContext) -> str:
    """The platform's list of nodes; '' where there is none."""
    path = process.root / _SERVER_LIST
    return str(path) if path.exists() else ""


def servers(ctx: ResolveContext) -> tuple[str, ...]:
    """The nodes of the job by address, in the order of their node ranks; empty where nothing says so."""
    if not (path := server_list_path(ctx.process)):
        return ()
    try:
        return ctx.process.servers or _read(SERVER_LIST, path)
    except ValueError as error:
        ctx.note(f"{path} is ignored: {error}")
        return ()


def allotted(ctx: ResolveContext, framework: Framework) -> Allotment | None:
    """What the Ascend Operator asks of this pod; nothing in a worker of ours, whose variables look alike."""
    if INSIDE_WORKER in ctx.environ:
        return None
    try:
        return allotment(ctx.environ, framework)
    except ValueError as error:
        raise ctx.settings.refuse(Settings.worker_num, str(error), "--worker_num=N") from None


def fault_files(settings: Settings, process: ProcessContext) -> FaultFiles:
    """The files that tell of faults. What an option names is watched even before it exists."""
    return FaultFiles(
        fault_config=_watched(settings.fault_config, process.root / _FAULT_CONFIG),
        reset_config=_watched(settings.reset_config, process.root / _RESET_CONFIG),
        restart_in_place=process.environ.get(_IN_PLACE, "").strip().lower() == "on",
    )


def _read(awaited: Awaited[_T], path: str) -> _T:
    try:
        return awaited.parse(read_bounded(Path(path), MOST_TABLE_BYTES))
    except OSError as error:
        raise not_finished(awaited.what, path, os.strerror(error.errno or 0), 0.0) from None
    except Unfinished as error:
        raise not_finished(awaited.what, path, str(error), 0.0) from None


def _check_spelling(settings: Settings, named: RankTableFile) -> None:
    """A file that is not there yet is waited for, unless its name is nearly that of one that is."""
    path = Path(named.path).absolute()
    told = f"{named.where}={named.path}: there is no such"
    if not path.parent.is_dir():
        raise settings.refuse(Settings.rank_table_file, f"{told} folder")
    names = [] if path.exists() else [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    if close := likely(path.name, names, cutoff=0.8):
        hint = f"did you mean {path.with_name(close)}?"
        raise settings.refuse(Settings.rank_table_file, f"{told} file", hint)


def _watched(given: str | None, mounted: Path) -> str:
    """A folder stands for the platform's file in it; the default counts where its volume is mounted."""
    if given is None:
        return str(mounted) if mounted.parent.is_dir() else ""
    path = Path(given).absolute()
    return str(path / mounted.name if path.is_dir() else path) if given else ""
