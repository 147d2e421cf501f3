"""The progress page: how far each rank of this node has come, readable even after it was killed."""

import os
from collections.abc import Iterator
from pathlib import Path

from faultrun.model.progress import RankStep, WorkPhase
from faultrun.model.wire import SLOT_BYTES, Progress, attached, unpack_progress, unpack_word

_PHASES = tuple(WorkPhase)


class ProgressPage:
    """One file of slots (``model.wire``), made anew for each incarnation; zeros where it was cut."""

    def __init__(self, path: Path, ranks: tuple[int, ...]) -> None:
        self.path = path
        self.ranks = ranks
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            os.write(self._fd, bytes(SLOT_BYTES * len(ranks)))  # where there is no room it is said now
        except OSError:
            os.close(self._fd)
            raise

    def steps(self) -> tuple[RankStep, ...]:
        """The newest step of every rank that has reported one."""
        return tuple(
            RankStep(
                rank=rank,
                step=progress.step,
                epoch=progress.epoch if progress.epoch >= 0 else None,
                phase=phase_of(progress.phase),
            )
            for rank, progress in self.slots()
        )

    def slots(self) -> tuple[tuple[int, Progress], ...]:
        """Rank and raw slot of every rank that has reported."""
        return tuple((rank, found) for rank, slot in self._slots() if (found := unpack_progress(slot)))

    def reporting(self) -> frozenset[int]:
        """The ranks that use the page, whether they have finished a step or not."""
        return frozenset(rank for rank, slot in self._slots() if attached(slot))

    def words(self) -> tuple[tuple[int, Progress | None], ...]:
        """Rank and raw slot of every rank, from its first word on; None for one that is mute."""
        return tuple((rank, unpack_word(slot)) for rank, slot in self._slots())

    def done(self, rank: int) -> bool:
        """Whether ``rank`` has said that nothing is left to do, and nothing since."""
        word = dict(self.words()).get(rank)
        return word is not None and phase_of(word.phase) is WorkPhase.DONE

    @property
    def complete(self) -> bool:
        """Whether every rank has reported a step."""
        return len(self.slots()) == len(self.ranks)

    def close(self) -> None:
        """Let go of the page; the file stays for whoever wants to read it."""
        os.close(self._fd)

    def _slots(self) -> Iterator[tuple[int, bytes]]:
        data = os.pread(self._fd, SLOT_BYTES * len(self.ranks), 0)
        for slot, rank in enumerate(self.ranks):
            yield rank, data[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]


def phase_of(number: int) -> WorkPhase:
    """The phase by its position; UNKNOWN for a number from a newer SDK."""
    return _PHASES[number] if 0 <= number < len(_PHASES) else WorkPhase.UNKNOWN
