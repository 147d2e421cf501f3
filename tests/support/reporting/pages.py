"""The pages of the documentation, and every command in them."""

import re
import shlex
from pathlib import Path

from support.places import ROOT

PAGES = sorted(
    [*ROOT.glob("docs/*.md"), ROOT / "README.md", *(ROOT / "templates").glob("**/README.md")],
    key=lambda path: (path.name != "README.md" or path.parent != ROOT, path),
)
"""The README first: it is what people read first."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)\)")
_FIRST_WORDS = ("faultrun ", "kubectl ", "pip ", "make ")
_INLINE = re.compile(r"`((?:faultrun|kubectl|pip|make) [^`]+)`")


def blocks(path: Path, *kinds: str) -> list[str]:
    """The fenced blocks of these languages; "" are those without one."""
    return [text for kind, text in _BLOCK.findall(path.read_text()) if kind in kinds]


def links(path: Path) -> list[str]:
    """Where the page's links lead on this disk."""
    return _LINK.findall(path.read_text())


def commands(path: Path) -> list[str]:
    """Every command as it stands on the page, in blocks and in the text, without its comment."""
    found: list[str] = []
    for text in blocks(path, "", "sh", "bash"):
        lines = text.replace("\\\n", " ").splitlines()
        found += [re.split(r" {2,}", line)[0] for line in lines if line.startswith(_FIRST_WORDS)]
    return found + _INLINE.findall(_BLOCK.sub("", path.read_text()))


def behind_faultrun(command: str) -> list[str]:
    """The words behind ``faultrun``, up to a pipe or a redirection; empty where it is no command of ours."""
    words = shlex.split(command, comments=True)
    after = words[words.index("faultrun") + 1 :] if "faultrun" in words else []
    ends = [place for place, word in enumerate(after) if word in ("|", ">", ">>", "&&")]
    return after[: ends[0]] if ends else after
