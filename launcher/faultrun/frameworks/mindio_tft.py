"""``MS_ENABLE_TFT``: the switches of MindSpore's fault tolerance (MindIO TFT), in the spelling that works.

MindSpore reads the variable in two ways that disagree: most features look for the text ``TTP:1`` in it, and
what reaches the C++ side is split at commas and colons (``utils/utils.py`` and
``train/callback/_train_fault_tolerance.py`` of 2.10). So ``{UCE:1 TTP:1}``, as the UCE document prints it,
turns UCE on for the first and gives it the value "1 TTP" in the second, and ``{TTP: 1}`` is on for the second
alone. Both agree on ``{UCE:1,TTP:1}``: commas, no spaces.
"""

import re
from collections.abc import Mapping

from faultrun.errors import ConfigError

TFT_VARIABLE = "MS_ENABLE_TFT"

_SWITCHES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("TTP", "UCE", "ARF"), ("0", "1")),
    "TRE": ("0", "1", "2"),
    **dict.fromkeys(("TSP", "HCCE", "RSC", "ATO"), ("0", "1")),
}
_ATO_SETTINGS = ("ATO_THRESHOLD", "ATO_PATH")
_NOT_WITH_ATO = frozenset({"TTP:1", "UCE:1", "ARF:1", "TRE:1", "TSP:1"})
_LEAST_ATO_THRESHOLD = 10
_ITEM = re.compile(r"\s*(?P<key>[^\s:,{}]+)\s*(?::\s*(?P<value>[^\s:,{}]+))?\s*,?")
_EXAMPLE = f"{TFT_VARIABLE}='{{UCE:1,TTP:1}}'"


def normalised(text: str) -> str:
    """Return the switches as ``{KEY:VALUE,...}``, in their order; empty text stays empty.

    ConfigError for an unknown switch or value, one that is set twice to
    different values, and for combinations that MindSpore refuses.
    """
    if not (inner := text.strip()):
        return ""
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    switches: dict[str, str] = {}
    position = 0
    inner = inner.strip()
    while position < len(inner):
        if (item := _ITEM.match(inner, position)) is None:
            raise _unreadable(text, f"{inner[position:]!r} is not KEY:VALUE")
        _check(text, item["key"], item["value"])
        if switches.setdefault(item["key"], item["value"]) != item["value"]:
            raise _unreadable(text, f"{item['key']} is {switches[item['key']]} and {item['value']}")
        position = item.end()
    spelled = [f"{key}:{value}" for key, value in switches.items()]
    if switches.get("ATO") == "1" and (others := sorted(_NOT_WITH_ATO.intersection(spelled))):
        raise _unreadable(text, f"MindSpore refuses ATO:1 together with {others[0]}")
    return "{" + ",".join(spelled) + "}"


def _check(text: str, key: str, value: str | None) -> None:
    if key not in _SWITCHES and key not in _ATO_SETTINGS:
        raise _unreadable(text, f"there is no {key}; known are {', '.join((*_SWITCHES, *_ATO_SETTINGS))}")
    if value is None:
        raise _unreadable(text, f"{key} has no value")
    if key in _SWITCHES and value not in _SWITCHES[key]:
        raise _unreadable(text, f"{key} is {' or '.join(_SWITCHES[key])}, not {value}")
    if key == "ATO_THRESHOLD" and not (value.isdecimal() and int(value) >= _LEAST_ATO_THRESHOLD):
        raise _unreadable(text, f"{key} is a number from {_LEAST_ATO_THRESHOLD} on, not {value}")
    if key == "ATO_PATH" and not value.endswith(".json"):
        raise _unreadable(text, f"{key} names a .json file, not {value}")


def _unreadable(text: str, because: str) -> ConfigError:
    return ConfigError(f"{TFT_VARIABLE}={text} cannot be used", because=because, hint=_EXAMPLE)
