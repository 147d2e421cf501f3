"""The text of ``--assume`` as values, and the defaults as text."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from faultrun.cli.options.choices import meant, one_of_or_auto
from faultrun.cli.options.values import DAY_S, MOST_WORKERS, seconds, whole
from faultrun.model.spec.assumptions import Assumptions, UsualLauncher

_MINUTE_S = 60.0

_LONGEST_S = 30 * DAY_S
_NAMES: dict[str, tuple[str, Callable[[str], object]]] = {
    "notice": ("notice_s", seconds(_LONGEST_S)),
    "restart": ("restart_s", seconds(_LONGEST_S)),
    "launcher": ("launcher", one_of_or_auto(UsualLauncher)),
    "relaunch": ("relaunch_s", seconds(_LONGEST_S)),
    "hang": ("hang_s", seconds(_LONGEST_S)),
    "devices": ("devices", whole(1, MOST_WORKERS)),
}


def assumptions(text: str) -> Assumptions:
    """``notice=15min,restart=10min``; what is not named keeps its default."""
    return changed(Assumptions(), text)


def changed(base: Assumptions, text: str) -> Assumptions:
    """``base`` with what ``text`` names. ValueError with the reason as a phrase."""
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if name not in _NAMES or not equals:
            near = meant(name, list(_NAMES)) if equals and name not in _NAMES else ""
            raise ValueError(f"{part!r} is not one of {', '.join(_NAMES)}, '=' and a value{near}")
        field, reads = _NAMES[name]
        if field in found:
            raise ValueError(f"{name} is given twice")
        try:
            found[field] = reads(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return replace(base, **found)


def defaults_in_words() -> str:
    """The defaults as a person would write them."""
    usual = Assumptions()
    times = {name: getattr(usual, field) for name, (field, _) in _NAMES.items() if field.endswith("_s")}
    text = {one: f"{one / _MINUTE_S:g}min" if one >= _MINUTE_S else f"{one:g}s" for one in times.values()}
    written = ", ".join(f"{name}={text[value_s]}" for name, value_s in times.items())
    return f"{written}; launcher=torchrun for torch, else none; devices: one a worker"
