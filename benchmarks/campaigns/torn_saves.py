"""Kill savers at random moments, choose each time, and compare with what the bytes really are.

    python -m benchmarks.campaigns.torn_saves --saves 1000 --seed 1

Each save is a process of its own that is SIGKILLed somewhere between its
first byte and a little after its last. Then faultrun chooses. A file is
really whole when its bytes equal those of the same save left alone. Two
things must never happen: a torn file is chosen; an older whole file is
chosen although a newer whole one exists. Ends with 1 if one of them did.
"""

import os
import random
import select
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.campaigns import engine, savers
from benchmarks.campaigns.savers import Saver
from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import scan_and_choose
from faultrun.checkpoints.registry import Registry, builtin_formats
from faultrun.core.recovery.choose import Chosen
from faultrun.core.recovery.need import Need, World

FORMATS = Registry(formats=builtin_formats())
_KEPT = 4
_CALIBRATIONS = 3
_LATE = 1.3


@dataclass(slots=True)
class Tally:
    """What happened to the saves of one saver."""

    saves: int = 0
    torn: int = 0
    whole: int = 0
    absent: int = 0
    chosen_torn: int = 0
    chosen_older: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """So many saves of one saver are killed."""

    number: int
    saver: Saver
    saves: int
    seed: int


def judge(_: Killed, tally: Tally) -> Iterator[str]:
    """The two things that must never happen."""
    if tally.chosen_torn:
        yield f"{tally.chosen_torn} torn saves were chosen"
    if tally.chosen_older:
        yield f"{tally.chosen_older} older saves were chosen although a newer one was whole"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 when a promise was broken."""
    parser = engine.options("torn_saves", __doc__)
    parser.add_argument("--saves", type=int, default=1000, help="how many in all [1000]")
    names = [one.name for one in savers.ALL]
    parser.add_argument("--saver", action="append", choices=names, help="only this one (repeatable)")
    asked = parser.parse_args(argv)
    present = [one for one in savers.ALL if one.name in (asked.saver or names) and not one.missing()]
    each = asked.saves // len(present)
    cases = [Killed(number=at, saver=one, saves=each, seed=asked.seed) for at, one in enumerate(present, 1)]
    return engine.exit_code(CAMPAIGN.carry_out(cases, asked))


def run(killed: Killed, folder: Path) -> Tally:
    """A few whole saves to begin with, then those that are killed."""
    saver, tally, chance = killed.saver, Tally(), random.Random(f"{killed.seed}:{killed.saver.name}")
    place = folder / "ckpt"
    place.mkdir()
    saver.warm_up()
    truth = Truth(saver, folder)
    durations_s = [_left_alone(saver, place, step) for step in range(1, _CALIBRATIONS + 1)]
    usual_s = sorted(durations_s)[len(durations_s) // 2]
    for step in range(1, _CALIBRATIONS + 1 + killed.saves):
        truth.learn(step)
        if step <= _CALIBRATIONS:
            continue
        _reap(_start(partial(saver.save, place, step)), wait_s=chance.uniform(0.0, usual_s * _LATE))
        _judge(saver, place, truth.whole(place), step, tally)
        truth.forget(place)
    return tally


class Truth:
    """The bytes of each save that nobody disturbed, made elsewhere; which files in ``place`` have them."""

    def __init__(self, saver: Saver, root: Path) -> None:
        self._saver = saver
        self._aside = root / "aside"
        self._expected: dict[int, list[bytes]] = {}

    def learn(self, step: int) -> None:
        """Save ``step`` in peace."""
        self._aside.mkdir()
        self._saver.save(self._aside, step)
        self._expected[step] = [(self._aside / name).read_bytes() for name in self._saver.files(step)]
        shutil.rmtree(self._aside)

    def whole(self, place: Path) -> list[int]:
        """Steps whose files are all there with all their bytes, oldest first."""
        return [step for step in self._expected if self._is_whole(place, step)]

    def forget(self, place: Path) -> None:
        """Keep the last few whole saves and nothing torn: the next save must be the only question."""
        kept = self.whole(place)[-_KEPT:]
        for step in [step for step in self._expected if step not in kept]:
            for name in self._saver.files(step):
                (place / name).unlink(missing_ok=True)
            del self._expected[step]
        for path in place.glob("*.tmp"):
            path.unlink()

    def _is_whole(self, place: Path, step: int) -> bool:
        paths = [place / name for name in self._saver.files(step)]
        there = [path.read_bytes() for path in paths if path.exists()]
        return there == self._expected[step]


def _left_alone(saver: Saver, place: Path, step: int) -> float:
    begin_s = time.monotonic()
    _reap(_start(partial(saver.save, place, step)), wait_s=None)
    return time.monotonic() - begin_s


def _start(save: Callable[[], None]) -> int:
    """Fork a saver; return its pidfd-backed pid once it is about to write."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(tell, b"x")
        try:
            save()
        finally:
            os._exit(0)
    os.close(tell)
    os.read(ready, 1)
    os.close(ready)
    return pid


def _reap(pid: int, *, wait_s: float | None) -> None:
    """Wait for the end of ``pid``; kill it after ``wait_s``."""
    handle = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([handle], [], [], wait_s)
        if not ended:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.waitpid(pid, 0)
    finally:
        os.close(handle)


def _judge(saver: Saver, place: Path, whole: Sequence[int], step: int, tally: Tally) -> None:
    """Let faultrun choose and compare the choice with the truth."""
    found = scan_and_choose(Catalog([str(place)], settle_s=0.0, registry=FORMATS), Need(world=World(size=1)))
    chosen = Path(found.choice.point.path).name if isinstance(found.choice, Chosen) else "nothing"
    there = (place / saver.files(step)[0]).exists()
    tally.saves += 1
    tally.whole += step in whole
    tally.torn += there and step not in whole
    tally.absent += not there
    names = [saver.files(one)[0] for one in whole]
    tally.chosen_torn += chosen not in [*names, "nothing"]
    tally.chosen_older += chosen in [*names[:-1], "nothing"]
    for refusal in found.refused:
        tally.reasons[_kind_of(refusal.why)] += 1


def _kind_of(why: str) -> str:
    """A reason without its numbers and names."""
    return " ".join(word for word in why.split()[:4] if not any(sign.isdigit() for sign in word))


CAMPAIGN: engine.Campaign[Killed, Tally] = engine.Campaign(
    name="torn-saves",
    cases="savers",
    run=run,
    judge=lambda killed, tally: list(judge(killed, tally)),
    columns={
        "saver": lambda killed, _: killed.saver.name,
        **engine.of_seen("saves", "whole", "torn", "absent", "chosen_torn", "chosen_older"),
        "refused_for": lambda _, tally: "; ".join(f"{why} ... {n}" for why, n in tally.reasons.items()),
    },
)


if __name__ == "__main__":
    sys.exit(main())
