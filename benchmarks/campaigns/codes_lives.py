"""What rank 0 of an example has printed, life by life: the steps, when each was seen, the last line."""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.journal import grown

_STEP = re.compile(r"(?<!final )\bstep (\d+) loss \S+\s*$")
_FINAL = re.compile(r"\b(final step \d+ loss \S+ digest [0-9a-f]{8})\s*$")


@dataclass(slots=True)
class Life:
    """One start of rank 0. ``seen_at_s`` is CLOCK_MONOTONIC, one a step."""

    path: Path
    steps: list[int] = field(default_factory=list)
    seen_at_s: list[float] = field(default_factory=list)
    final: str = ""
    _read_bytes: int = 0

    def look(self) -> None:
        """Read what is new; a line that is not ended yet is read the next time."""
        whole, self._read_bytes = grown(self.path, self._read_bytes)
        self.tell(whole.decode("utf-8", errors="replace"), time.monotonic())

    def tell(self, text: str, now_s: float) -> None:
        """Whole lines; progress bars and other talk between them do not matter."""
        for line in text.splitlines():
            if found := _STEP.search(line):
                self.steps.append(int(found[1]))
                self.seen_at_s.append(now_s)
            elif found := _FINAL.search(line):
                self.final = found[1]


class Lives:
    """All lives in a folder, oldest first; ``pattern`` says which file holds one."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder, self._pattern = folder, pattern
        self.all: list[Life] = []

    def look(self) -> None:
        """See what was printed since the last look."""
        known = {life.path for life in self.all}
        new = [path for path in self._folder.glob(self._pattern) if path not in known]
        self.all += [Life(path) for path in sorted(new, key=_natural)]
        for life in self.all:
            life.look()

    @property
    def step(self) -> int:
        """The last step that was printed in the newest life; 0 before the first."""
        return self.all[-1].steps[-1] if self.all and self.all[-1].steps else 0

    @property
    def begun(self) -> list[Life]:
        """The lives that made a step."""
        return [life for life in self.all if life.steps]


def twice(lives: list[Life]) -> int:
    """How many steps were made that had been made before."""
    made: set[int] = set()
    again = 0
    for life in lives:
        again += sum(step in made for step in life.steps)
        made.update(life.steps)
    return again


def began_anew(lives: list[Life]) -> bool:
    """Whether a later life made the very first step again."""
    begun = [life for life in lives if life.steps]
    return any(life.steps[0] == 1 for life in begun[1:])


def _natural(path: Path) -> list[tuple[str, int]]:
    """attempt_10 comes after attempt_9."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", str(path))]
