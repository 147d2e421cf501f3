"""``faultrun status --watch`` on a terminal: the whole screen, drawn by rich, anew every second."""

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.layout import Layout
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from faultrun.model.printable import printable
from faultrun.observe.status.status import NodeRow, RankState, RunStatus, Supervised
from faultrun.observe.status.words import (
    COLUMNS,
    COLUMNS_OF_NODES,
    cells,
    cells_of_node,
    chosen,
    chosen_nodes,
    facts,
    title,
)

_COLOURS = {
    "training": "green",
    "running": "green",
    "ended": "dim",
    "failed": "bold red",
    "gone": "bold red",
    "alive": "green",
    "left": "dim",
    "lost": "bold red",
}
_PHASES = {"running": "bold green", "finished": "bold", "draining": "bold red", "killing": "bold red"}
_NAME_WIDTH = 13
_SHORT = 18
_WIDE = 100
_LESS_IMPORTANT = ("resumed", "checkpoint", "saved")


def watch(console: Console, look: Callable[[], RunStatus], interval_s: float) -> RunStatus:
    """Show until the run has ended or the user leaves; return the last status."""
    status = look()
    with Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
        while True:
            live.update(fitted(status, console), refresh=True)
            if status.ended is not None:
                return status
            time.sleep(interval_s)
            status = look()


def fitted(status: RunStatus, console: Console) -> Layout:
    """Exactly as many lines as the terminal has now."""
    width, height = console.size
    head = _head(status, width, leave_out=_LESS_IMPORTANT if height < _SHORT else ())
    head_lines = len(console.render_lines(head, console.options.update(width=width, height=None)))
    room = max(1, height - head_lines - 4)
    if status.nodes:
        nodes, left_out = chosen_nodes(status.nodes, room)
        table = _table_of_nodes(nodes)
    else:
        ranks, left_out = chosen(status.ranks, room)
        table = _table(ranks, width)
    foot = Text(f" {left_out}", style="dim", no_wrap=True, overflow="ellipsis")
    keys = Text(" Ctrl-C leaves; the run goes on", style="dim", no_wrap=True)
    screen = Layout()
    screen.split_column(
        Layout(head, size=head_lines), Layout(table), Layout(foot, size=1), Layout(keys, size=1)
    )
    return screen


def _head(status: RunStatus, width: int, leave_out: Sequence[str]) -> Group:
    name = Text(f" {printable(status.run_id)}  ", style="bold")
    name.append(title(status), style=_style_of(status))
    name.truncate(width, overflow="ellipsis")
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(width=_NAME_WIDTH - 2, style="dim")
    # What has a ratio gives way: a name is never cut.
    grid.add_column(ratio=1, no_wrap=width >= _WIDE, overflow="ellipsis" if width >= _WIDE else "fold")
    for label, text in facts(status):
        if label in leave_out:
            continue
        row = Text(text, style="red" if label == "supervisor" else "")
        if label == "saved":  # one line, however narrow
            row.truncate(width - _NAME_WIDTH - 1, overflow="ellipsis")
        grid.add_row(label, row)
    return Group(name, Padding(grid, (0, 0, 1, 1)))


def _style_of(status: RunStatus) -> str:
    if status.supervisor is Supervised.GONE or (status.ended is not None and status.ended.exit_code != 0):
        return "bold red"
    return _PHASES.get(status.phase, "bold yellow")


def _table(ranks: list[RankState], width: int) -> Table:
    wide = width >= _WIDE
    table = Table(box=None, padding=(0, 1), collapse_padding=not wide, header_style="dim", expand=wide)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "state" else "right", no_wrap=True)
    if wide:
        table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
    for rank in ranks:
        row = [Text(cell) for cell in cells(rank)]
        row[2].stylize(_COLOURS.get(rank.state, ""))
        table.add_row(*row, *([Text(rank.what, style="red")] if wide else []))
    return table


def _table_of_nodes(nodes: list[NodeRow]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in COLUMNS_OF_NODES:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for one in nodes:
        row = [Text(cell) for cell in cells_of_node(one)]
        row[1].stylize(_COLOURS.get(one.state, ""))
        table.add_row(*row)
    return table
