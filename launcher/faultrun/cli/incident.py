"""``faultrun incident [N]``: print a first-failure card again."""

import re
from pathlib import Path

import click

from faultrun.cli.console import answer
from faultrun.cli.verbs import log_dir_option
from faultrun.errors import LogDirError

_NAME = re.compile(r"incident_(\d+)\.txt")


@click.command()
@click.argument("number", required=False, type=int)
@log_dir_option("The run's log_dir.")
def incident(number: int | None, log_dir: str) -> int:
    """Print the card of incident NUMBER, by default the newest."""
    folder = Path(log_dir)
    names = (_NAME.fullmatch(path.name) for path in (folder.iterdir() if folder.is_dir() else ()))
    known = sorted(int(found[1]) for found in names if found)
    if not known or (number is not None and number not in known):
        what = "no incident" if number is None else f"no incident {number}"
        raise LogDirError(
            f"{what} in {log_dir}",
            because=f"it has {', '.join(map(str, known))}" if known else "nothing failed there yet",
            hint="faultrun incident --log_dir=DIR of the run",
        )
    chosen = known[-1] if number is None else number
    answer((folder / f"incident_{chosen}.txt").read_text(encoding="utf-8", errors="replace").rstrip("\n"))
    return 0
