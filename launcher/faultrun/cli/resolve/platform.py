"""What the cluster's platform left for a run: rank table, server list, the operator's variables, fault files.

Defaults are the paths that MindX's manifests mount; they count only where they exist.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from faultrun.cli.options.settings import INSIDE_WORKER, Settings
from faultrun.cli.options.values import seconds
from faultrun.cli.resolve.process_context import Notes, Surroundings
from faultrun.model.spec import FaultFiles, Framework
from faultrun.platforms.ascend_operator import Allotment, allotment, parse_server_list
from faultrun.platforms.documents import Unfinished, read_bounded
from faultrun.platforms.rank_table import (
    MOST_BYTES,
    RankTable,
    Server,
    node_names,
    parse_rank_table,
    read_rank_table,
)
from faultrun.platforms.rank_table_wait import Awaited, not_finished

RANK_TABLE = Awaited(what="rank table", parse=parse_rank_table)
RANK_TABLE_WAIT_S = 300.0

_RANK_TABLE = "user/serverid/devindex/config/hccl.json"
_SERVER_LIST = "user/serverid/devindex/config/serverList"
_FAULT_CONFIG = "user/restore/fault/config/fault-npus"
_RESET_CONFIG = "user/restore/reset/config/reset.json"
_IN_PLACE = "ENABLE_RESTART_FAULT_PROCESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A rank table's path, and the option, variable or custom that names it."""

    path: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A finished rank table and how a person knows it."""

    content: RankTable
    where: str

    @property
    def world_size(self) -> int:
        """Ranks of all servers."""
        return self.content.world_size


def rank_table_named(settings: Settings, around: Surroundings) -> Named | None:
    """The option's file, else the variable's, else the one that the platform mounts."""
    given = settings.read("rank_table_file", str)
    if given:
        return Named(path=given, where=settings.where("rank_table_file"))
    inherited = around.environ.get("RANK_TABLE_FILE", "")
    if inherited:
        return Named(path=inherited, where="RANK_TABLE_FILE")
    mounted = around.root / _RANK_TABLE
    return Named(path=str(mounted), where=str(mounted)) if mounted.exists() else None


def rank_table_wait_s(settings: Settings) -> float:
    """How long an unfinished table is waited for."""
    wait_s = settings.read("rank_table_wait", seconds())
    return RANK_TABLE_WAIT_S if wait_s is None else wait_s


def rank_table(settings: Settings, around: Surroundings, notes: Notes) -> Table | None:
    """The table that ``rank_table_named`` names, as it is now.

    NotFinished while the platform has not finished it. A wrong one is
    refused, or handed on unread if somebody else says how many workers there are.
    """
    named = rank_table_named(settings, around)
    if named is None:
        return None
    _check_spelling(settings, named)
    try:
        return Table(content=around.rank_table or read_rank_table(named.path), where=named.where)
    except OSError as error:
        raise not_finished(RANK_TABLE.what, named.path, os.strerror(error.errno or 0), 0.0) from None
    except Unfinished as error:
        raise not_finished(RANK_TABLE.what, named.path, str(error), 0.0) from None
    except ValueError as error:
        counted = "worker_num" in settings.given or "local_worker_num" in settings.given
        if not counted:
            because = f"{named.where}={named.path}: {error}" if named.path != named.where else str(error)
            raise settings.refuse(
                "rank_table_file", because, "a table without that mistake, or --worker_num=N"
            ) from None
        notes.add(f"{named.where}={named.path} is handed on unread: {error}")
        return None


def _check_spelling(settings: Settings, named: Named) -> None:
    """A file that is not there yet is waited for, unless its name is nearly that of one that is."""
    path = Path(named.path).absolute()
    if not path.parent.is_dir():
        raise settings.refuse("rank_table_file", f"{named.where}={named.path}: there is no such folder")
    if path.exists():
        return
    from difflib import get_close_matches

    names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    close = get_close_matches(path.name, names, n=1, cutoff=0.8)
    if close:
        because = f"{named.where}={named.path}: there is no such file"
        raise settings.refuse("rank_table_file", because, f"did you mean {path.with_name(close[0])}?")


def handed_on(settings: Settings, around: Surroundings, devices: tuple[int, ...]) -> str:
    """The RANK_TABLE_FILE of the workers; '' where the platform's own table has but one device.

    The platform's scripts unset it for one device, because a single rank
    does not form a group.
    """
    named = rank_table_named(settings, around)
    if named is None:
        return ""
    # Workers may change their directory before they read it.
    return "" if len(devices) == 1 and named.where == named.path else str(Path(named.path).absolute())


def own_server(table: RankTable, around: Surroundings) -> Server | None:
    """This node's server of the table; None if nothing says which it is."""
    try:
        return table.server_of(node_names(around.environ))
    except ValueError:
        return None


def server_list_path(around: Surroundings) -> str:
    """The platform's list of nodes; '' where there is none."""
    path = around.root / _SERVER_LIST
    return str(path) if path.exists() else ""


def servers(around: Surroundings, notes: Notes) -> tuple[str, ...]:
    """The nodes of the job by address, in the order of their node ranks; empty where nothing says so."""
    path = server_list_path(around)
    if not path:
        return ()
    try:
        return around.servers or parse_server_list(read_bounded(Path(path), MOST_BYTES))
    except OSError as error:
        raise not_finished("server list", path, os.strerror(error.errno or 0), 0.0) from None
    except Unfinished as error:
        raise not_finished("server list", path, str(error), 0.0) from None
    except ValueError as error:
        notes.add(f"{path} is ignored: {error}")
        return ()


def allotted(settings: Settings, around: Surroundings, framework: Framework) -> Allotment | None:
    """What the Ascend Operator asks of this pod; nothing in a worker of ours, whose variables look alike."""
    if INSIDE_WORKER in around.environ:
        return None
    try:
        return allotment(around.environ, framework)
    except ValueError as error:
        raise settings.refuse("worker_num", str(error), "--worker_num=N") from None


def fault_files(settings: Settings, around: Surroundings) -> FaultFiles:
    """The files that tell of faults. What an option names is watched even before it exists."""
    return FaultFiles(
        fault_config=_watched(settings.read("fault_config", str), around.root / _FAULT_CONFIG),
        reset_config=_watched(settings.read("reset_config", str), around.root / _RESET_CONFIG),
        restart_in_place=around.environ.get(_IN_PLACE, "").strip().lower() == "on",
    )


def _watched(given: str | None, mounted: Path) -> str:
    """A folder stands for the platform's file in it; the default counts where its volume is mounted."""
    if given is None:
        return str(mounted) if mounted.parent.is_dir() else ""
    if given in ("", "none"):
        return ""
    path = Path(given).absolute()
    return str(path / mounted.name if path.is_dir() else path)
