"""``make docs``: the pages of this folder, and all that they link to, as a site in ``build/site``.

The files are copied to ``build/pages`` with their places kept, so that a link
which works in a checkout works on the site too. ``python docs/build_site.py DIR``
uses another folder than ``build``.
"""

import logging
import posixpath
import re
import shutil
import sys
from collections import deque
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[1]
FIRST = ("README.md", "CHANGELOG.md")
_LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")


def linked(page: str, text: str) -> list[tuple[str, str]]:
    """Each link of ``page`` to a file of the checkout: as it is written, and from the root."""
    found = []
    for _, link, _ in _LINK.findall(text):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
        if (ROOT / target).is_dir():
            target = posixpath.join(target, "README.md")
        if (ROOT / target).is_file():
            found.append((link, target))
    return found


def collect(into: Path) -> list[str]:
    """Copy the pages and what they link to, from link to link; returns what was copied, from the root."""
    shutil.rmtree(into, ignore_errors=True)
    waiting = deque([*FIRST, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))])
    seen: list[str] = []
    while waiting:
        name = waiting.popleft()
        if name in seen:
            continue
        seen.append(name)
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith(".md"):
            shutil.copyfile(ROOT / name, into / name)
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        for link, target in linked(name, text):
            waiting.append(target)
            if target.endswith("/README.md") and not link.endswith(
                ".md"
            ):  # the site has no page for a folder
                text = text.replace(f"]({link}", f"]({link.rstrip('/')}/README.md")
        (into / name).write_text(text, encoding="utf-8")
    return seen


def main() -> int:
    """Build the site; a link that leads nowhere ends it with 1, and is named."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    collect(folder / "pages")
    site = folder / "site"
    build(load_config(str(ROOT / "docs" / "mkdocs.yml"), docs_dir=str(folder / "pages"), site_dir=str(site)))
    sys.stdout.write(f"open {site / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
