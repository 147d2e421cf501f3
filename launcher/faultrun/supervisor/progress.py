"""The progress page: how far each rank of this node has come, readable even after it was killed."""

import mmap
from pathlib import Path

from faultrun.model.progress import RankStep, WorkPhase
from faultrun.model.wire import SLOT_BYTES, Progress, attached, unpack_progress, unpack_word

_PHASES = tuple(WorkPhase)


class ProgressPage:
    """One file of slots (``model.wire``), made anew for each incarnation and mapped shared."""

    def __init__(self, path: Path, ranks: tuple[int, ...]) -> None:
        self.path = path
        self.ranks = ranks
        with path.open("wb+") as file:
            file.write(bytes(SLOT_BYTES * len(ranks)))  # a hole on a full disk would kill its writer (SIGBUS)
            file.flush()
            self._page = mmap.mmap(file.fileno(), SLOT_BYTES * len(ranks))

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
        found = []
        for slot, rank in enumerate(self.ranks):
            progress = unpack_progress(self._page[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
            if progress is not None:
                found.append((rank, progress))
        return tuple(found)

    def reporting(self) -> frozenset[int]:
        """The ranks that use the page, whether they have finished a step or not."""
        return frozenset(
            rank
            for slot, rank in enumerate(self.ranks)
            if attached(self._page[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
        )

    def words(self) -> tuple[tuple[int, Progress | None], ...]:
        """Rank and raw slot of every rank, from its first word on; None for one that is mute."""
        data = bytes(self._page)
        return tuple(
            (rank, unpack_word(data[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]))
            for slot, rank in enumerate(self.ranks)
        )

    def done(self, rank: int) -> bool:
        """Whether ``rank`` has said that nothing is left to do, and nothing since."""
        word = dict(self.words()).get(rank)
        return word is not None and phase_of(word.phase) is WorkPhase.DONE

    @property
    def complete(self) -> bool:
        """Whether every rank has reported a step."""
        return len(self.slots()) == len(self.ranks)

    def close(self) -> None:
        """Unmap the page; the file stays for whoever wants to read it."""
        self._page.close()


def phase_of(number: int) -> WorkPhase:
    """The phase by its position; UNKNOWN for a number from a newer SDK."""
    return _PHASES[number] if 0 <= number < len(_PHASES) else WorkPhase.UNKNOWN
