"""A run of several nodes as etcd knows it, for verbs that otherwise read a log_dir: options, and one look."""

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from faultrun.cli.console import say
from faultrun.cli.options.node_addresses import endpoints
from faultrun.cli.options.option import Option
from faultrun.cli.options.settings import Asked, Settings, collect
from faultrun.errors import FaultrunError, UsageError
from faultrun.journal.append import FILE_NAME
from faultrun.journal.logdir import read_record
from faultrun.model.topology import NodeId, RunId, node_folder
from faultrun.nodes.view import nodes_status
from faultrun.observe.status.status import RunStatus

if TYPE_CHECKING:
    from faultrun.nodes.etcd.gateway import Gateway

F = TypeVar("F", bound=Callable[..., int])
RunLook = Callable[[], RunStatus]
"""The run as it is now. EtcdError: no member answers; UnknownRun."""

Show = Callable[[RunLook, Mapping[str, Any]], int]
"""Gets a way to look at the run, and what else was typed; its answer is the exit code."""

_MOST_NAMED = 8
_PATIENCE_S = 60.0
"""An etcd that is started again is back by then; one that ended with its node is not."""

_MEETING: Mapping[Option[Any], str] = {
    Settings.rdzv_endpoint: "Show a run of several nodes: from its etcd here, not from a log_dir.",
    Settings.rdzv_id: "The run there; needed if etcd knows several.",
    Settings.rdzv_conf: "How etcd is reached, as in the run: cacert, cert, key, username, password_file.",
}


class UnknownRun(FaultrunError):
    """etcd knows no such run (EX_UNAVAILABLE)."""

    exit_code = 69


def or_in_etcd(show: Show, *beside: str) -> Callable[[F], F]:
    """Give a verb ``--rdzv-endpoint`` and its like: with it ``show`` answers, else the verb itself.

    ``beside`` are the verb's other parameters that mean the same to ``show``. Stands below the others.
    """

    def decorated(verb: F) -> F:
        @functools.wraps(verb)
        def either(**typed: Any) -> int:
            texts = {option.name: typed.pop(option.name) for option in _MEETING}
            given = {name: (text,) for name, text in texts.items() if text is not None}
            if Settings.rdzv_endpoint.name not in given:
                _refuse_without_endpoint(given)
                return verb(**typed)
            _refuse_others(typed, beside)
            with looking(Asked(options=given, words=())) as look:
                return show(look, {name: typed[name] for name in beside})

        found: Any = either
        for option, text in reversed([*_MEETING.items()]):
            found = click.option(
                option.spelled, option.name, metavar=option.metavar, default=None, help=text
            )(found)
        answered: F = found
        return answered

    return decorated


@contextmanager
def looking(asked: Asked) -> Iterator[RunLook]:
    """Look at the run that ``asked`` names, as often as wanted, over one connection.

    UsageError, ConfigError, EtcdError, UnknownRun.
    """
    from faultrun.cli.resolve.context import ProcessContext, ResolveContext
    from faultrun.cli.resolve.nodes_etcd import etcd_access
    from faultrun.cli.resolve.spec import named_run
    from faultrun.nodes.etcd.gateway import Gateway

    settings = collect(asked, os.environ)
    if not (named := settings.read(Settings.rdzv_endpoint, endpoints)):
        because = "it names no member of etcd"
        raise settings.refuse(Settings.rdzv_endpoint, because, "--rdzv-endpoint=HOST:2379")
    process = ProcessContext(environ=os.environ, python=sys.executable, import_path=(), pid=os.getpid())
    context = ResolveContext(settings, process)
    access = etcd_access(context, named)
    for note in context.notes:
        say(note)
    with closing(Gateway(access)) as gateway:
        run_id = named_run(settings.rdzv_id or settings.run_id or _only_run(gateway))
        yield functools.partial(_look, gateway, run_id)


def _look(gateway: "Gateway", run_id: RunId) -> RunStatus:
    from faultrun.nodes.agent.run_keys import RunKeys

    known = RunKeys(gateway, run_id).everything()
    if known.is_empty:
        raise _unknown(gateway, run_id)
    if known.is_unreadable:
        because = "its plan was written by another version of faultrun"
        hint = "faultrun status with the faultrun that its nodes have"
        raise UnknownRun(f"run {run_id} cannot be read", because=because, hint=hint)
    return nodes_status(run_id, gateway.endpoints, known)


def patient(look: RunLook, interval_s: float) -> RunLook:
    """Look again while etcd is silent, every ``interval_s``. EtcdError: it stayed so for a minute."""
    from faultrun.nodes.etcd.answers import EtcdSilent

    def looked() -> RunStatus:
        silent_s: float | None = None
        while True:
            try:
                return look()
            except EtcdSilent as error:
                if silent_s is None:
                    silent_s = time.monotonic()
                    say(f"{error.what}; looking on for {_PATIENCE_S:g} s")
                elif time.monotonic() - silent_s > _PATIENCE_S:
                    raise
            time.sleep(interval_s)

    return looked


def reachable(status: RunStatus) -> list[Path]:
    """Folders of the run's nodes that can be read from here: a shared log_dir, or this is one of the nodes.

    The journal of that which has been in the run for longest comes first.
    """
    if not status.log_dir:
        return []
    known = [Path(status.log_dir) / node_folder(NodeId(one.node)) for one in status.members]
    here = [folder for folder in known if read_record(folder).get("run_id") == status.run_id]
    return sorted(here, key=_journal_bytes, reverse=True)


def _journal_bytes(folder: Path) -> int:
    with suppress(OSError):
        return (folder / FILE_NAME).stat().st_size
    return 0


def _only_run(gateway: "Gateway") -> str:
    """The run that etcd knows, if it is one."""
    from faultrun.nodes.agent.run_keys import known_runs

    if not (runs := known_runs(gateway, _MOST_NAMED)):
        raise _unknown(gateway, "")
    if len(runs) > 1:
        because = f"etcd knows {', '.join(runs)}"
        raise UsageError("--rdzv-id does not say which run", because=because, hint=f"--rdzv-id={runs[-1]}")
    return runs[0]


def _unknown(gateway: "Gateway", run_id: str) -> UnknownRun:
    from faultrun.nodes.agent.run_keys import known_runs
    from faultrun.nodes.etcd.answers import EtcdError

    runs: list[str] = []
    with suppress(EtcdError):  # a user may be let to the keys of one run only
        runs = known_runs(gateway, _MOST_NAMED)
    where = ", ".join(gateway.endpoints)
    return UnknownRun(
        f"no run {run_id} is known to etcd at {where}" if run_id else f"no run is known to etcd at {where}",
        because=f"it knows {', '.join(runs)}" if runs else "no supervisor has written to it",
        hint=f"--rdzv-id={runs[-1]}" if runs else "the --rdzv-endpoint and --rdzv-id that its nodes have",
    )


def _refuse_without_endpoint(given: Mapping[str, object]) -> None:
    for option in _MEETING:
        if option.name in given:
            because = "it goes with --rdzv-endpoint, which is not given"
            hint = f"--rdzv-endpoint=HOST:2379 {option.spelled}={option.example}"
            raise UsageError(f"{option.spelled} says nothing here", because=because, hint=hint)


def _refuse_others(typed: Mapping[str, Any], beside: tuple[str, ...]) -> None:
    ctx = click.get_current_context()
    for name in typed:
        if name not in beside and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(param.opts[0] for param in ctx.command.params if param.name == name)
            because = "etcd holds what the nodes agreed on, and neither their files nor their steps"
            hint = f"leave out {option}, or --rdzv-endpoint where a node's log_dir is at hand"
            raise UsageError(f"{option} does not go with --rdzv-endpoint", because=because, hint=hint)
