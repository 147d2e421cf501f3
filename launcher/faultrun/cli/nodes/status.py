"""``faultrun status --rdzv-endpoint``: the whole run as its nodes agree, once or until its end."""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from faultrun.cli.console import answer, say
from faultrun.cli.nodes.run_in_etcd import RunLook
from faultrun.nodes.view.status import NodesStatus, document
from faultrun.nodes.view.words import brief, lines
from faultrun.terminal import has_colours

_PATIENCE_S = 60.0
"""An etcd that is started again is back by then; one that ended with its node is not."""


def show_nodes(look: RunLook, typed: Mapping[str, Any]) -> int:
    """Print it, or with ``watch`` go on until the run has ended, Ctrl-C, or etcd is silent for a minute."""
    as_json: bool = typed["as_json"]
    if not typed["watch"]:
        for line in _whole(look(), as_json=as_json):
            answer(line)
        return 0
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty() or importlib.util.find_spec("rich") is None:
            _watch(look, typed["interval"], _Lines(as_json=as_json))
        else:
            _on_screen(look, typed["interval"])
    return 0


def _whole(status: NodesStatus, *, as_json: bool) -> list[str]:
    return [json.dumps(document(status))] if as_json else [*lines(status)]


class _Lines:
    """A line whenever something but the clock has changed: for pipes and logs."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._said = ""

    def __call__(self, status: NodesStatus) -> None:
        line = json.dumps(document(status)) if self._as_json else brief(status)
        if line != self._said:
            self._said = line
            answer(line)


def _on_screen(look: RunLook, interval_s: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(color_system="auto" if has_colours(os.environ, is_terminal=True) else None)
    with Live(console=console, screen=True, auto_refresh=False, transient=True) as live:

        def drawn(status: NodesStatus) -> None:
            shown = [*lines(status)][: max(1, console.size.height - 1)]
            live.update(
                Text("\n".join((*shown, "Ctrl-C leaves; the run goes on")), no_wrap=True), refresh=True
            )

        last = _watch(look, interval_s, drawn)
    for line in lines(last):
        answer(line)


def _watch(look: RunLook, interval_s: float, show: Callable[[NodesStatus], object]) -> NodesStatus:
    """Look, and look again, until the run has ended. EtcdError: etcd stayed silent for ``_PATIENCE_S``."""
    from faultrun.nodes.etcd.answers import EtcdSilent

    heard_s, silent = time.monotonic(), False
    while True:
        try:
            status = look()
        except EtcdSilent as error:
            if time.monotonic() - heard_s > _PATIENCE_S:
                raise
            if not silent:
                say(f"{error.what}; looking on for {_PATIENCE_S:g} s")
            silent = True
        else:
            heard_s, silent = time.monotonic(), False
            show(status)
            if status.ended is not None:
                return status
        time.sleep(interval_s)
