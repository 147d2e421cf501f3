"""Random generators of the script's own: those that it can name where it calls ``protect``."""

import random
from collections.abc import Mapping
from types import FrameType
from typing import Any

from faultrun.sdk.torch.loader.held_objects import is_generator
from faultrun.sdk.torch.loader.loader_state import LoaderState
from faultrun.sdk.torch.state.boundary import NOT_GIVEN


class ScriptGenerators:
    """An object whose state is theirs, which each rank has of its own."""

    is_of_rank = True

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._all = LoaderState(dict(named))

    def state_dict(self) -> dict[str, Any]:
        """Where they are."""
        return {"generators": self._all.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._all.set_state(state["generators"])


def generators_near(frame: FrameType | None) -> dict[str, Any]:
    """An object for those among the globals there and the locals of its callers; none without any."""
    places = [] if frame is None else [frame.f_globals]
    while frame is not None:
        places.append(frame.f_locals)
        frame = frame.f_back
    found: dict[int, tuple[str, Any]] = {}
    for depth, place in enumerate(places):
        for name, one in list(place.items()):
            if is_generator(one) and not isinstance(one, random.SystemRandom):
                found.setdefault(id(one), (f"{depth} {name}", one))
    return {f"{NOT_GIVEN}generators": ScriptGenerators(dict(found.values()))} if found else {}
