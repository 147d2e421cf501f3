"""Where and how a worker of a gasp campaign dies: by its own SIGKILL, so that the moment is exact.

Knows no framework: the standard library only.
"""

import argparse
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jobs import options as jobs_options
from benchmarks.jobs.tell import Teller, life, rank

STEPS_AN_EPOCH = 10
_SAVE_EVENTS = frozenset({"open", "os.mkdir", "os.link", "os.rename", "os.remove"})
_EVENTS_A_SAVE = 8
_SAVE_TAKES_S = 0.012
_STEPS_TAKE_S = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """``place`` names the moment, in ``step``; ``fraction`` (0 to 1) says which of the many moments there.

    Only ``victim`` dies, and only in the first life.
    """

    victim: int
    step: int
    place: str
    fraction: float
    tell: Teller
    milestones: tuple[str, ...]
    """Places on the way to the first step."""

    @classmethod
    def parse(cls, text: str, tell: Teller, *milestones: str) -> "Death":
        """``RANK:STEP:PLACE:FRACTION``, as ``gasps_plan.Fault.option`` writes it."""
        victim, at_step, place, moment = text.split(":")
        who, step, fraction = int(victim), int(at_step), float(moment)
        return cls(victim=who, step=step, place=place, fraction=fraction, tell=tell, milestones=milestones)

    def reached(self, milestone: str) -> None:
        """Die there, if it is this one's turn."""
        self.strike("start", 1, self.milestones.index(milestone), len(self.milestones))

    def due(self, place: str, step: int) -> bool:
        """Whether this process dies at ``place`` in ``step``."""
        return (self.victim, self.place, self.step) == (rank(), place, step) and life() == 0

    def strike(self, place: str, step: int, part: int, parts: int) -> None:
        """Die here, in part ``part`` of ``parts``, if it is this one's turn."""
        if self.due(place, step) and part == int(self.fraction * parts):
            self.now(f"{place}:{part}/{parts}")

    def rest(self, parts: int) -> float:
        """What of the fraction does not go into choosing one of ``parts``: 0 to 1 again."""
        return self.fraction * parts % 1.0

    def later(self, place: str, step: int, within_s: float = _STEPS_TAKE_S) -> None:
        """Die in a while, in another thread, wherever the main thread is then."""
        if self.due(place, step):
            self._after(self.fraction * within_s, place)

    def freeze(self, step: int) -> None:
        """Stand still for ever instead of dying: whatever continues this process, it stops itself again."""
        if self.due("freeze", step):
            self.tell("frozen", step)
            while True:
                os.kill(os.getpid(), signal.SIGSTOP)

    def in_save(self, step: int) -> None:
        """Arm for the save that follows: a call of the file system in it, or any moment of its writing."""
        if not self.due("save", step):
            return
        half = self.rest(2)
        if self.fraction >= 0.5:
            self._after(half * _SAVE_TAKES_S, "save")
            return
        left = [int(half * _EVENTS_A_SAVE)]

        def count(event: str, _: tuple[object, ...]) -> None:
            if event in _SAVE_EVENTS:
                left[0] -= 1
                if left[0] < 0:
                    self.now(f"save:{event}")

        sys.addaudithook(count)

    def now(self, where: str) -> None:
        """The end, without a word of goodbye but a note for whoever counts."""
        self.tell("dying", where)
        os.kill(os.getpid(), signal.SIGKILL)

    def _after(self, delay_s: float, place: str) -> None:
        def wait() -> None:
            threading.Event().wait(delay_s)
            self.now(f"{place}:{delay_s * 1e3:.1f}ms")

        threading.Thread(target=wait, daemon=True).start()


def options() -> argparse.ArgumentParser:
    """What each of these trainings is told.

    ``steps`` is a multiple of STEPS_AN_EPOCH; ``step_s`` is how long one takes; ``save_every`` 0: never.
    """
    parser = jobs_options.options(steps=40, save_every=5, step_s=0.003, seed=1, checkpoint_dir=Path("ck"))
    parser.add_argument("--die", default="-1:0:never:0", help="RANK:STEP:PLACE:FRACTION")
    return parser
