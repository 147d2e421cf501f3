"""Writes docs/demo.svg: what `make demo` prints, as a picture of a terminal. Needs rich (faultrun[watch])."""

import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "demo.svg"
WIDTH = 118
_EVERY = 4  # of the lines that only say how far training is


def main() -> int:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")], capture_output=True, text=True, check=False
    )
    console = Console(record=True, width=WIDTH, file=sys.stderr, force_terminal=True)
    console.print(Text("$ make demo", style="bold green"))
    for line in shown(done.stdout.splitlines()):
        console.print(Text(line, style=style(line)))
    if done.returncode == 0:
        PICTURE.write_text(console.export_svg(title="make demo", theme=MONOKAI), encoding="utf-8")
    return done.returncode


def shown(lines: list[str]) -> list[str]:
    """Without the machine's own paths, and fewer of the lines that only tell of progress."""
    kept: list[str] = []
    progress = 0
    for line in lines:
        if "rank" in line and "loss" in line and "faultrun |" not in line and "last log" not in line:
            progress += 1
            if progress % _EVERY:
                continue
        kept.append(line.replace(str(ROOT), "."))
    return kept


def style(line: str) -> str:
    if "kill -9" in line:
        return "bold red"
    if "incident 1" in line or "training again" in line:
        return "bold yellow"
    return "cyan" if "faultrun |" in line else ""


if __name__ == "__main__":
    sys.exit(main())
