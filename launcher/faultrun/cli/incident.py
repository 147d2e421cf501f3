"""``faultrun incident [N]``: print a first-failure card again."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from faultrun.cli.console import answer
from faultrun.cli.nodes.run_in_etcd import RunLook, or_in_etcd, reachable
from faultrun.cli.verbs import example, log_dir_option
from faultrun.errors import LogDirError
from faultrun.journal.logdir import nodes_in, which_log_dir
from faultrun.observe.card.card import in_colours, render
from faultrun.observe.status.words import where_files_are

_NAME = re.compile(r"incident_(\d+)\.txt")


def _of_nodes(look: RunLook, typed: Mapping[str, Any]) -> int:
    """The newest is in the plan; an older one where a node's folder can be read from here."""
    status = look()
    known, number = status.spent.incidents, typed["number"]
    if known == 0 or (number is not None and not 0 < number <= known):
        places = "; ".join(where_files_are(status)) or "no node had ranks"
        raise LogDirError(
            f"no incident{'' if number is None else f' {number}'} in run {status.run_id}",
            because=f"its plan counts {known or 'none'}; what failed since is known to its nodes alone",
            hint=f"faultrun incident --log_dir=DIR: {places}",
        )
    chosen = known if number is None else number
    card = None if status.agreed is None else status.agreed.card
    if card is not None and card.incident.number == chosen:
        answer(in_colours(render(card)))
        return 0
    for folder in reachable(status):
        if chosen in _cards(folder):
            answer(in_colours(_card(folder, chosen)))
            return 0
    answer(f"incident {chosen} of run {status.run_id}: the card, incident_{chosen}.txt, lies with its nodes")
    for place in where_files_are(status):
        answer(f"  {place}")
    return 0


@click.command(
    epilog=example(
        "faultrun incident",
        "faultrun incident 2 --log_dir=faultrun_log",
        "faultrun incident --rdzv-endpoint=e0:2379 --rdzv-id=job42",
    )
)
@click.argument("number", required=False, type=int)
@log_dir_option("The run's log_dir.")
@or_in_etcd(_of_nodes, "number")
def incident(number: int | None, log_dir: str) -> int:
    """Print the card of incident NUMBER, by default the newest."""
    folder = Path(log_dir)
    if not (known := _cards(folder)) or (number is not None and number not in known):
        what = "no incident" if number is None else f"no incident {number}"
        because = f"it has {', '.join(map(str, known))}" if known else "nothing failed there yet"
        if not folder.is_dir():
            because = "there is no such folder"
        elif nodes_in(folder):
            because = "each node has a folder of its own there"
        hint = f"faultrun incident {which_log_dir(folder)}"
        raise LogDirError(f"{what} in {log_dir}", because=because, hint=hint)
    chosen = known[-1] if number is None else number
    answer(in_colours(_card(folder, chosen)))
    return 0


def _cards(folder: Path) -> list[int]:
    """The numbers of those that lie there, in their order."""
    names = (_NAME.fullmatch(path.name) for path in (folder.iterdir() if folder.is_dir() else ()))
    return sorted(int(found[1]) for found in names if found)


def _card(folder: Path, number: int) -> str:
    return (folder / f"incident_{number}.txt").read_text(encoding="utf-8", errors="replace").rstrip("\n")
