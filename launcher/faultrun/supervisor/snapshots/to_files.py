"""Memory snapshots of ranks that are gone are made files, by a program that ends (``sdk/snapshots``).

Not here: the states are large, their disk may hang, and PID 1 must not.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from faultrun.core.control_messages import said, whole
from faultrun.model.actions import Sweep
from faultrun.model.events import Event
from faultrun.model.spec.windows import Deadline
from faultrun.model.wire import parse

_PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "from faultrun.sdk.snapshots.to_files import main; main()"
)
"""Not ``-m``, which imports from the folder of the training first: a ``json.py`` there would be run."""
_GONE_S = 1.0
"""A disk that hangs holds a killed process, too, and is not waited for."""
_STEPS_ALONE = 1
_STEPS_BESIDE_OTHERS = 2
"""How many steps are written beside other nodes, of which it is not known which newest step they have."""
_STEPS_BESIDE_LOST = 3
"""What the next node has of a lost one may be older by a copy than what is here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMemory:
    """Ranks' memory snapshots, by rank in ``fds``. ``lost``: ranks of the node before, gone without a word.

    ``goes_over``: the next node has copies of ours.
    """

    fds: Mapping[int, int]
    lost: frozenset[int] = frozenset()
    goes_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStates:
    """States of dead ranks that are in ``memory``, and can be written. ``ranks`` are those of this node.

    ``alone``: there is no other node. ``only_lost``: what is of this node's own has been written.
    """

    run_id: str
    ranks: frozenset[int]
    alone: bool
    memory: HeldMemory
    only_lost: bool = False

    def write(self, order: Sweep, by: Deadline, now_s: float) -> Iterator[Event]:
        """Write what ``order.saves`` lack, until the sooner of ``by`` and the order's; a fact for each file.

        Helper thread.
        """
        patience_s = min(by, order.write_by).left_s(now_s)
        if not self.memory.fds or patience_s <= 0:
            return
        for line in self._lines(order, patience_s):
            content = parse(line)
            rank = None if content is None else whole(content.get("rank"))
            if content is not None and rank is not None and rank in self.ranks | self.memory.lost:
                event = said(content, rank, order.incarnation, now_s)
                if event is not None:
                    yield event

    def lost_since(self, before: "HeldStates") -> "HeldStates | None":
        """The states of ranks whose node was not known to be lost ``before``; None if there are none."""
        late = self.memory.lost - before.memory.lost
        if not late or not before.memory.fds:
            return None
        return replace(self, memory=replace(self.memory, lost=late), only_lost=True)

    @property
    def _most_steps(self) -> int:
        if self.alone:
            return _STEPS_ALONE
        return _STEPS_BESIDE_LOST if self.memory.goes_over or self.memory.lost else _STEPS_BESIDE_OTHERS

    def _lines(self, order: Sweep, patience_s: float) -> list[bytes]:
        told = {
            "run_id": self.run_id,
            "ranks": sorted(self.ranks),
            "most_steps": self._most_steps,
            "lost": sorted(self.memory.lost),
            "only_lost": self.only_lost,
            "copies": {str(rank): fd for rank, fd in self.memory.fds.items()},
            "saved": [
                {"rank": one.rank, "step": one.step, "group": one.group or sorted(self.ranks)}
                for one in order.saves
            ],
        }
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=tuple(self.memory.fds.values()),
            )
        except OSError:
            return []
        try:
            output, _ = process.communicate(json.dumps(told).encode(), timeout=patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                output, _ = process.communicate(timeout=_GONE_S)
            except subprocess.TimeoutExpired as error:
                output = error.output or b""
        return output.splitlines()
