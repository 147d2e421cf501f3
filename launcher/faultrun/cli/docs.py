"""``faultrun docs``: the documentation as it was installed, for machines that reach no web site."""

from pathlib import Path

import click

from faultrun.cli.console import answer
from faultrun.cli.options.choices import likely
from faultrun.cli.options.help.completion import names
from faultrun.cli.verbs import example
from faultrun.errors import UsageError


def docs_folder() -> Path:
    """The folder of the pages: inside the installed wheel, else in the checkout."""
    package = Path(__file__).resolve().parent.parent
    packaged = package / "_docs"
    return packaged if packaged.is_dir() else package.parent.parent / "docs"


def pages() -> dict[str, Path]:
    """Every page by the name that ``faultrun docs NAME`` takes, in alphabetical order."""
    folder = docs_folder()
    found = sorted(folder.rglob("*.md"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in found}


@click.command(epilog=example("faultrun docs", "faultrun docs getting-started | less"))
@click.argument("page", required=False, metavar="[PAGE]", shell_complete=names(pages))
def docs(page: str | None) -> int:
    """Print a page of the documentation, as Markdown; without PAGE, list the pages."""
    known = pages()
    if page is None:
        width = max(map(len, known), default=0)
        for name, path in known.items():
            answer(f"{name.ljust(width)}  {_title(path)}".rstrip())
        return 0
    if (asked := page.removeprefix("docs/").removesuffix(".md")) not in known:
        match = likely(asked, known, cutoff=0.5)
        hint = f"faultrun docs {match}" if match else "faultrun docs lists them with their titles"
        raise UsageError(f"there is no page {page!r}", because=f"the pages are {', '.join(known)}", hint=hint)
    answer(known[asked].read_text(encoding="utf-8").rstrip("\n"))
    return 0


def _title(path: Path) -> str:
    """The first heading."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), "")
