"""What the JSON of a rehearsal says."""

from typing import Any


def fault(found: dict[str, Any], name: str) -> dict[str, Any]:
    """The one fault of that name."""
    (one,) = [one for one in found["faults"] if one["fault"] == name]
    assert isinstance(one, dict)
    return one
