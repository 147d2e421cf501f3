"""The values that templates take: the table is ``values.yaml``, what each may be stands here."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources

import yaml

from faultrun.manifests.lint_input import GRACE_OVER_TIME_RANGE_S

_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_PATTERNS = {
    "dns": (r"[a-z]([-a-z0-9]*[a-z0-9])?", "a name of a-z, 0-9 and '-' that begins with a letter"),
    "endpoints": (
        r"(https?://)?[A-Za-z0-9.-]+:[0-9]{1,5}(,(https?://)?[A-Za-z0-9.-]+:[0-9]{1,5})*",
        "HOST:PORT, several between commas",
    ),
    "folder": (r"/[A-Za-z0-9._/@%+=-]*", "an absolute path of letters, digits and ._/@%+=-"),
    "image": (r"[a-z0-9][A-Za-z0-9._/:@-]*", "an image such as registry.example/train:1.2"),
    "label": (r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", "the value of a label"),
    "number": (r"[0-9]{1,5}", "a whole number"),
    "package": (r"[A-Za-z0-9._/:@%+=\[\]-]+", "what pip installs"),
    "path": (r"[A-Za-z0-9._/%@+=-]+", "a path"),
    "place": (
        r"/[A-Za-z0-9._/@%+=-]*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
        "the name of a claim, or an absolute path",
    ),
    "quantity": (r"[0-9]+(\.[0-9]+)?(m|[KMGTPE]i?|k)?", "a quantity such as 16Gi or 500m"),
    "resource": (r"[a-z0-9.-]+/[A-Za-z0-9._-]+", "a resource such as huawei.com/Ascend910"),
    "slurm-size": (r"[0-9]+[KMGT]?", "a size such as 64G"),
    "time": (r"([0-9]{1,3}-)?[0-9]{1,3}:[0-9]{2}(:[0-9]{2})?", "a time such as 1-12:00:00"),
    "user-id": (r"[0-9]{1,9}", "a user id"),
    "word": (r"[A-Za-z0-9][A-Za-z0-9._:/=+-]*", "one word"),
}
_LONGEST = {"dns": 40, "label": 63}


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateValue:
    """One value. ``default`` None: it must be given. ``many``: it may be given again, and is a list.

    ``read`` takes a text to the value it means; ValueError says why not, after "because:".
    """

    name: str
    help: str
    read: Callable[[str], str | int | bool]
    default: str | None = None
    many: bool = False
    may_be_empty: bool = False

    @property
    def phrase(self) -> str:
        """What it is, as words that follow "because:"."""
        return self.help[0].lower() + self.help[1:]


@cache
def template_values() -> dict[str, TemplateValue]:
    """Every value that some template takes, by its name."""
    text = resources.files("faultrun.manifests").joinpath("values.yaml").read_text(encoding="utf-8")
    return {
        name: TemplateValue(name=name, read=_reader(row.pop("is")), **row)
        for name, row in yaml.safe_load(text).items()
    }


def _reader(said: str) -> Callable[[str], str | int | bool]:
    match said.split():
        case ["switch"]:
            return _switch
        case ["line"]:
            return _line
        case ["choice", *words]:
            return partial(_choice, words)
        case ["whole", low, high]:
            return partial(_whole, int(low), int(high))
        case ["grace-over-time"]:
            return partial(_whole, *GRACE_OVER_TIME_RANGE_S)
        case [kind]:
            return partial(_text, *_PATTERNS[kind], _LONGEST.get(kind, 1024))
    raise AssertionError(said)


def _text(pattern: str, what: str, longest: int, given: str) -> str:
    """A text of one line that matches ``pattern`` as a whole, or is empty."""
    if len(given) > longest:
        raise ValueError(f"it has {len(given)} characters, {longest} at most")
    if given and not re.fullmatch(pattern, given, re.ASCII):
        raise ValueError(f"{given!r} is not {what}")
    return given


def _whole(low: int, high: int, given: str) -> int:
    """A whole number from ``low`` to ``high``."""
    if not re.fullmatch(r"[0-9]{1,9}", given):
        raise ValueError(f"{given!r} is not a whole number")
    if not low <= int(given) <= high:
        raise ValueError(f"{given} is not between {low} and {high}")
    return int(given)


def _choice(words: list[str], given: str) -> str:
    if given not in words:
        raise ValueError(f"{given!r} is none of {', '.join(words)}")
    return given


def _switch(given: str) -> bool:
    if given.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{given!r} is neither true nor false")
    return given.lower() in _TRUE


def _line(given: str) -> str:
    """Any text of one line."""
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in given):
        raise ValueError("it has a line break or another control character")
    return given
