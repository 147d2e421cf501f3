"""What of an option must not be shown to others: in run.json, which every user of a machine may read.

By where it stands and what it is called; a secret under an innocent name is not known for one.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Any

HIDDEN = "(hidden)"

_NAMED = re.compile(
    r"(?is)(?P<name>[-\w.+]*(?:token|secret|passw(?:or)?d|passphrase|credentials?|apikey|accesskey|auth"
    r"|(?<![^\W_])(?:key|pwd)))"
    r"(?P<value>=.+)?"
)
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_BARE_LOGIN = re.compile(r"[^\s/@,=]+:[^\s/@,]+(?=@)")
_PASSWORD = re.compile(r"(\bpass(?:w(?:or)?d)?\s*=\s*)[^,\s]+", re.IGNORECASE)


def without_secret_values(args: Sequence[str]) -> tuple[str, ...]:
    """A script's arguments, with the values of options that are called like secrets left out."""
    shown: list[str] = []
    value_follows = False
    for word in args:
        named = _NAMED.fullmatch(word)
        if value_follows and not word.startswith("-"):
            shown.append(HIDDEN)
        elif named is not None and named["value"] is not None:
            shown.append(f"{named['name']}={HIDDEN}")
        else:
            shown.append(word)
        value_follows = named is not None and named["value"] is None and word.startswith("-")
    return tuple(shown)


def without_secret_words(command: str) -> str:
    """Hide secrets in a whole command as it is shown to people, and the logins in its addresses."""
    return _LOGIN.sub(HIDDEN, shlex.join(without_secret_values(shlex.split(command))))


def without_passwords(text: str) -> str:
    """What was written for an option, without the logins and the ``password=...`` in it."""
    return _PASSWORD.sub(rf"\g<1>{HIDDEN}", _BARE_LOGIN.sub(HIDDEN, _LOGIN.sub(HIDDEN, text)))


def without_logins(value: Any) -> Any:
    """JSON-ready data, with the user and password of every address in it left out."""
    match value:
        case str():
            return _LOGIN.sub(HIDDEN, value)
        case list():
            return [without_logins(item) for item in value]
        case dict():
            return {name: without_logins(item) for name, item in value.items()}
        case _:
            return value
