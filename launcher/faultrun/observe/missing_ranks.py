"""Ranks without whom the others train on, and who of them is back: in words, and since when."""

from collections.abc import Collection, Sequence

from faultrun.core.humanize import rank_names, span
from faultrun.model.plan import Plan


def missing_words(missing: Sequence[int], ranks: Sequence[int], barred: Collection[int] = ()) -> str:
    """Who of all ``ranks`` is missing, and that the others do its work; those ``barred`` do not heal."""
    living = rank_names([rank for rank in ranks if rank not in missing])
    gone, are = rank_names(missing), "is" if len(missing) == 1 else "are"
    train = "trains" if len(ranks) - len(missing) == 1 else "train"
    heals = [rank for rank in missing if rank not in barred]
    heal = f", {rank_names(heals)} {'heals' if len(heals) == 1 else 'heal'} beside them" if heals else ""
    return f"{gone} {are} missing; {living} {train} on with the same global batch{heal}"


class MissingRanks:
    """Since when each missing rank is missing, by the plans that are adopted."""

    def __init__(self) -> None:
        self.since_s: dict[int, float] = {}
        self._back: dict[int, float] = {}
        self._barred = frozenset[int]()

    def planned(self, plan: Plan, at_s: float, finished: Collection[int] = ()) -> None:
        """``plan`` follows from ``at_s`` on; once ranks have ``finished``, none comes to an empty place."""
        self._back = {rank: s for rank, s in self.since_s.items() if rank in plan.newcomers}
        empty = () if finished else sorted(plan.missing)
        self.since_s = {rank: self.since_s.get(rank, at_s) for rank in empty}
        self._barred = plan.barred()

    def one_group(self, world_size: int, at_s: float) -> tuple[str, tuple[int, ...]]:
        """Who has come back now that all are one group, in words and by number; "": none has."""
        back, self._back = self._back, {}
        if not back:
            return "", ()
        after_s, are = at_s - min(back.values()), "is" if len(back) == 1 else "are"
        number = world_size - len(self.since_s)
        all_of_them = f"all {number} train" if not self.since_s else f"{number} of {world_size} train"
        return f"{rank_names([*back])} {are} back after {span(after_s)}; {all_of_them}", (*back,)

    def words(self, world_size: int, now_s: float) -> str:
        """``3 of 4 train, rank 3 heals: 12 s``; empty where every place is taken.

        A rank whose slot is set aside is missing; that it is well again is told by the newcomer's coming.
        """
        if not self.since_s:
            return ""
        heal = ", ".join(
            f"rank {rank} {'is missing' if rank in self._barred else 'heals'}: {span(max(0.0, now_s - s))}"
            for rank, s in self.since_s.items()
        )
        return f"{world_size - len(self.since_s)} of {world_size} train, {heal}"
