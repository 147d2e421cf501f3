"""The parameters of a network as arrays on the host: copies made between steps, and views where possible.

On the CPU ``Parameter.asnumpy()`` is a view of the very memory that the graph
works on, at the same address for the whole training (MindSpore 2.10, graph
and PyNative mode); another thread can read it without calling MindSpore. On
other devices only copies made by the main thread can be used.
"""

import threading
from dataclasses import dataclass
from typing import Any

import mindspore
import numpy as np

from faultrun.sdk.mindspore.optimizer import COUNTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far training was. ``step`` is global; ``epoch`` and ``batch`` (the step in it) count from 1.

    ``step_num`` is ``cur_step_num``: steps since this script's counting began.
    """

    step: int
    epoch: int
    batch: int
    step_num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """Arrays by parameter name, with the place they belong to."""

    place: Place
    arrays: dict[str, Any]


class HostMemory:
    """The parameters of ``network``. The main thread copies them; the helper thread reads under ``lock``.

    ``marked`` are those that change in marked updates only (``optimizer``);
    of the others ``early`` holds a copy, made at every boundary.
    """

    def __init__(self, network: Any, marked: frozenset[str] = frozenset()) -> None:
        network.init_parameters_data()
        self._parameters = {one.name: one for _, one in network.parameters_and_names() if one.name != COUNTER}
        self.dtypes = {name: one.dtype for name, one in self._parameters.items()}
        self.lock = threading.Lock()
        self.newest: HostState | None = None
        self._copies: dict[str, Any] | None = None
        self.views = self._views()
        unmarked = self._parameters.keys() - marked if marked else ()
        self.early = {name: np.copy(self._parameters[name].asnumpy()) for name in unmarked}

    def copy(self, place: Place) -> None:
        """Copy every parameter; main thread only, between steps."""
        with self.lock:
            if self._copies is None:
                self._copies = {name: np.copy(one.asnumpy()) for name, one in self._parameters.items()}
            else:
                for name, one in self._parameters.items():
                    np.copyto(self._copies[name], one.asnumpy())
            self.newest = HostState(place=place, arrays=self._copies)

    def copy_early(self) -> None:
        """Copy what may change before the next update; main thread only, between steps, under ``lock``."""
        for name, copy in self.early.items():
            np.copyto(copy, self._parameters[name].asnumpy())

    def _views(self) -> dict[str, Any] | None:
        """Views that stay what the graph works on; None where there are none."""
        if mindspore.get_context("device_target") != "CPU":
            return None
        views = {name: one.asnumpy() for name, one in self._parameters.items()}
        again = {name: one.asnumpy() for name, one in self._parameters.items()}
        same = all(_address(one) == _address(again[name]) for name, one in views.items())
        return views if same and all(_is_plain(one) for one in views.values()) else None

    def views_are_live(self) -> bool:
        """Whether the parameters still lie where they did; main thread only, between steps."""
        return self.views is not None and all(
            _address(one) == _address(self._parameters[name].asnumpy()) for name, one in self.views.items()
        )


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _is_plain(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype != object
