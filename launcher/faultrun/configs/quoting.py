"""A value as one word of the shell, which ``.env`` readers understand too."""

import re

from faultrun.configs.typed import as_spelled, plain
from faultrun.model.edit import Scalar

_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def word(value: Scalar, old: str) -> str:
    """``value`` quoted for ``sh``: bare where that is safe, else in single quotes, in double ones last.

    The quotes of ``old``, the text it replaces, are kept where they can hold it.
    """
    mark = old[:1] if old[:1] in {"'", '"'} and old[-1:] == old[:1] and len(old) > 1 else ""
    text = as_spelled(value, old.strip("\"'")) if isinstance(value, bool) else plain(value)
    if _SAFE.fullmatch(text):
        return mark + text + mark
    if "'" not in text:
        return f"'{text}'"
    return '"' + re.sub(r'(["\\$`])', r"\\\1", text) + '"'
