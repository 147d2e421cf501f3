"""Writes docs/demo.svg: a run as a picture of a terminal. Needs rich (faultrun[watch]).

Without arguments it is `make demo`; else the command that is given: `examples/record.py faultrun train.py`.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "demo.svg"
WIDTH = 132
EVERY = 4  # of the lines that only say how far training is


def main(words: list[str]) -> int:
    command = words or [sys.executable, str(ROOT / "examples" / "demo.py")]
    typed = shlex.join(words) if words else "make demo"
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    console = Console(record=True, width=WIDTH, file=sys.stderr, force_terminal=True)
    console.print(Text(f"$ {typed}", style="bold green"))
    for line in shown(done.stdout.splitlines()):
        console.print(Text(line, style=style(line)))
    if done.returncode == 0:
        # Its fonts would come from the network: whoever looks at it has one that will do.
        picture = re.sub(
            r"@font-face \{.*?\}", "", console.export_svg(title=typed, theme=MONOKAI), flags=re.DOTALL
        )
        PICTURE.write_text(picture, encoding="utf-8")
    return done.returncode


def shown(lines: list[str]) -> list[str]:
    """Without the machine's own paths, and fewer of the lines that only tell of progress."""
    kept: list[str] = []
    progress = 0
    for line in lines:
        if "rank" in line and "loss" in line and "faultrun |" not in line and "last log" not in line:
            progress += 1
            if progress % EVERY:
                continue
        kept.append(line.replace(str(ROOT), ".").replace(str(Path.cwd()), "."))
    return kept


def style(line: str) -> str:
    if "kill -9" in line:
        return "bold red"
    if "faultrun: incident " in line or "training again" in line:
        return "bold yellow"
    return "cyan" if "faultrun |" in line else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
