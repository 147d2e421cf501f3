"""Parts of a page that a program writes: what stands between two marks, and nothing else."""


def marks(name: str) -> tuple[str, str]:
    """The lines before and behind the part that is called ``name``."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def written_between(page: str, name: str, text: str) -> str:
    """``page`` with ``text`` as its part ``name``. ValueError when it has none."""
    begin, end = marks(name)
    before, is_there, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if not (is_there and ends):
        raise ValueError(f"the page has no {begin} ... {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"
