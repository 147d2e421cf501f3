"""Names out of files of unknown origin, made fit for a line that a person reads."""

_LONGEST = 80


def shown(name: str) -> str:
    """Return ``name`` if it is short and printable, else escaped and shortened: no terminal obeys it."""
    text = name if name.isprintable() else ascii(name)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
