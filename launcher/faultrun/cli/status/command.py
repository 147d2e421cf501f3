"""``faultrun status``: how a run stands, from its files; also when no supervisor lives."""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from faultrun.cli.console import answer
from faultrun.cli.nodes.run_in_etcd import RunLook, or_in_etcd, patient
from faultrun.cli.options.assume_option import assume_option
from faultrun.cli.status.gather import gather
from faultrun.cli.status.savings_so_far import SavedSoFar
from faultrun.cli.verbs import example, log_dir_option
from faultrun.errors import UsageError
from faultrun.journal.logdir import read_record
from faultrun.observe.status.ranks import Pace
from faultrun.observe.status.status import RunStatus, document
from faultrun.observe.status.words import brief, lines
from faultrun.terminal import has_colours

_INTERVAL_S = 1.0
_NO_RICH = "--watch on a terminal needs rich, which is not installed"


def _of_nodes(look: RunLook, typed: Mapping[str, Any]) -> int:
    """Show the whole run as its nodes agree."""
    return _show(patient(look, typed["interval"]) if typed["watch"] else look, **typed)


@click.command(
    epilog=example(
        "faultrun status --watch",
        "faultrun status --json --log_dir=faultrun_log",
        "faultrun status --rdzv-endpoint=e0:2379 --rdzv-id=job42 --watch",
    )
)
@log_dir_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch one a line.")
@click.option("--watch", is_flag=True, help="Go on showing until the run has ended or Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1, 3600), default=_INTERVAL_S, show_default=True, metavar="SECONDS",
    help="How often --watch looks.",
)  # fmt: skip
@assume_option()
@or_in_etcd(_of_nodes, "as_json", "watch", "interval")
def status(log_dir: str, as_json: bool, watch: bool, interval: float, assume: str | None) -> int:
    """Show phase, ranks, steps, restarts left, the last fault, the newest checkpoint, and what comes next.

    Reads the run's files only, so it also works when the supervisor is gone, and says so.
    """
    folder, pace = Path(log_dir), Pace()
    saved = SavedSoFar(folder, assume)

    def look() -> RunStatus:
        return replace(gather(folder, pace), savings=saved.look(read_record(folder)))

    return _show(look, as_json=as_json, watch=watch, interval=interval)


def _show(look: Callable[[], RunStatus], *, as_json: bool, watch: bool, interval: float) -> int:
    if not watch:
        _print(look(), as_json=as_json)
        return 0
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty():
            _follow(look, interval, as_json=as_json)
        else:
            _on_screen(look, interval)
    return 0


def _print(status: RunStatus, *, as_json: bool) -> None:
    if as_json:
        answer(json.dumps(document(status)))
        return
    for line in lines(status):
        answer(line)


def _follow(look: Callable[[], RunStatus], interval_s: float, *, as_json: bool) -> None:
    """A line whenever something but the clock has changed: for pipes and logs."""
    said = ""
    while True:
        status = look()
        line = json.dumps(document(status)) if as_json else brief(status)
        if line != said:
            said = line
            answer(line)
        if status.ended is not None:
            return
        time.sleep(interval_s)


def _on_screen(look: Callable[[], RunStatus], interval_s: float) -> None:
    if importlib.util.find_spec("rich") is None:
        hint = "pip install 'faultrun[watch]', or: watch -n1 faultrun status"
        raise UsageError(_NO_RICH, because="the full-screen view is an extra of faultrun", hint=hint)
    from rich.console import Console

    from faultrun.observe.status.screen import watch

    # Without a system of colours nothing is dim or bold either.
    console = Console(color_system="auto" if has_colours(os.environ, is_terminal=True) else None)
    for line in lines(watch(console, look, interval_s)):
        answer(line)
