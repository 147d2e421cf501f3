"""``faultrun status --watch`` on a terminal: the whole screen, drawn by rich, anew every second."""

import time
from collections.abc import Callable, Sequence
from typing import Literal

from rich.console import Console, Group
from rich.layout import Layout
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from faultrun.model.printable import printable
from faultrun.observe.status.status import RunStatus, Supervised
from faultrun.observe.status.words import LEFT_ALIGNED, StatusTable, facts, table, title

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
_NAME_WIDTH, _SHORT, _WIDE = 13, 18, 100
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
    shown = table(status, max(1, height - head_lines - 4))
    body = Layout(_drawn(shown, width))
    foot = Text(f" {shown.left_out}", style="dim", no_wrap=True, overflow="ellipsis")
    keys = Text(" Ctrl-C leaves; the run goes on", style="dim", no_wrap=True)
    screen = Layout()
    screen.split_column(Layout(head, size=head_lines), body, Layout(foot, size=1), Layout(keys, size=1))
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


def _drawn(shown: StatusTable, width: int) -> Table:
    """How a rank ended has the room that is left, where there is some."""
    wide, told = width >= _WIDE, "" in shown.columns
    expand = wide and told
    drawn = Table(box=None, padding=(0, 1), collapse_padding=not wide, header_style="dim", expand=expand)
    for column in shown.columns if wide else filter(None, shown.columns):
        justify: Literal["left", "right"] = "left" if column in LEFT_ALIGNED else "right"
        ratio = None if column else 1
        drawn.add_column(column, justify=justify, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for cells, state in zip(shown.rows, shown.states, strict=True):
        row = [Text(cell) for cell in cells]
        row[[*shown.columns].index("state")].stylize(_COLOURS.get(state, ""))
        if told:
            row[-1].stylize("red")
        drawn.add_row(*row[: len(drawn.columns)])
    return drawn
