"""Writes docs/demo.svg: a run as a picture of a terminal. Needs rich (faultrun[watch]).

Without arguments it is `make demo`, and the README gets its card; else the command that is given:
`examples/record.py faultrun train.py`.
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
README = ROOT / "README.md"
CARD = re.compile(r"^incident 1 .*?(?=\n\n)", re.MULTILINE | re.DOTALL)
IN_README = re.compile(r"(?<=<!-- demo: begin -->\n```\n).*?(?=\n```\n<!-- demo: end -->)", re.DOTALL)
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
        # Its fonts would come from the network: every browser has one that will do.
        picture = re.sub(
            r"@font-face \{.*?\}", "", console.export_svg(title=typed, theme=MONOKAI), flags=re.DOTALL
        )
        PICTURE.write_text(picture, encoding="utf-8")
        if not words:
            show_in_readme(done.stdout)
    return done.returncode


def show_in_readme(told: str) -> None:
    """The first card of the demo in the place of the one before."""
    card, text = CARD.search(told), README.read_text(encoding="utf-8")
    if card is None or len(IN_README.findall(text)) != 1:
        raise SystemExit("record: no card was told, or README.md has no place for it")
    README.write_text(IN_README.sub(lambda _: card[0], text), encoding="utf-8")


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
    _, ours, said = line.partition("faultrun | ")
    if said.startswith(("incident ", "rank ")):
        return "red"
    if said.startswith(("  resume", "  restart", "training", "every rank", "all standbys", "standbys ready")):
        return "green"
    return "cyan" if ours else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
