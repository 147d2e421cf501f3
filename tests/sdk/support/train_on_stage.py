"""A supervisor of the test's own whose ranks train on: it fills an empty place when the test says so."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sdk.support.rejoin_stage import PATIENCE_S, Rank, RejoinStage


class TrainOnStage(RejoinStage):
    """As its base, but nobody takes the place of a dead rank before ``heal``."""

    def __init__(
        self, folder: Path, world: int, script: Path, *words: str, imports: Sequence[str] = ()
    ) -> None:
        super().__init__(folder, world, script, *words, imports=imports)
        self.missing: dict[int, Rank] = {}
        """The dead whose places are empty."""
        self._of_join: dict[str, Any] = {}
        self._parks = False

    @property
    def living(self) -> list[Rank]:
        """Who trains."""
        return [one for number, one in self.ranks.items() if number not in self.missing]

    def refusals(self) -> dict[int, str]:
        """The newest word of each rank on why it cannot train on; "" of one that can."""
        told = {rank.number: rank.said("can_rejoin") for rank in self.living}
        return {number: one[-1]["trains_on"] for number, one in told.items() if one}

    def wait_able(self) -> None:
        """Work until every rank that lives has said that it can train on."""

        def able() -> bool:
            said = [rank.said("can_rejoin") for rank in self.living]
            return all(one and one[-1]["incarnation"] == self.incarnation for one in said)

        self.wait_for(able, "all that live can rejoin")
        assert set(self.refusals().values()) == {""}, self.refusals()

    def goes_on_behind(self, step: int) -> None:
        """End the wait of all ranks behind this step."""
        (self.folder / f"go_on_{step}").touch()

    def wait_trained(self, incidents: int) -> None:
        """Work until all that live have made a step since so many incidents."""

        def have() -> bool:
            living = {one.number for one in self.living}
            return len(self.incidents) == incidents and self.incidents[-1].first_steps.keys() >= living

        self.wait_for(have, f"a step of all that live after {incidents} incidents")

    def heal(self, *ranks: int, behind: int = 0) -> None:
        """Have newcomers come to their first step, and then the places of these ranks filled.

        Those that wait ``behind`` a step go on once they are asked to let somebody in.
        """
        for number in ranks:
            self.park(number)
        for one in self.living:
            self._say(one, "peer_lost", incarnation=self.incarnation, at_boundary=True)
        if behind:
            self.goes_on_behind(behind)

        def agreed() -> bool:
            return all(any(told.get("waits") for told in one.said("can_rejoin")[-1:]) for one in self.living)

        self.wait_for(agreed, "a boundary at which all that live let a newcomer in")
        self.meet_again(*ranks)

    def park(self, rank: int) -> None:
        """As its base; a process that has no place in the page yet."""
        self._parks = True
        super().park(rank)
        self._parks = False

    def wait_together(self, *ranks: int) -> None:
        """Have all that live wait, in no group, until the places of these ranks are filled."""
        for one in self.living:
            self._say(one, "peer_lost", incarnation=self.incarnation, timeout_s=PATIENCE_S)
        for number in ranks:
            self.park(number)
        self.meet_again(*ranks)

    def meet_again(self, *ranks: int) -> None:
        """All that live leave their group, and form the next one with whoever waits for these places."""
        self._end_group(None, time.monotonic(), time.monotonic(), ranks[0])
        for number in ranks:
            del self.missing[number]
            self.ranks[number] = self._parked.pop(number)
        self._meet(ranks)

    def _environment(self, rank: int) -> dict[str, str]:
        place = {"FAULTRUN_PROGRESS": ""} if self._parks else {}
        return {**super()._environment(rank), "FAULTRUN_WHILE_MISSING": "train", **place}

    def _replace(self, rank: Rank, killed_at_s: float, seen_at_s: float) -> None:
        self._end_group(rank, killed_at_s, seen_at_s)
        self.dead.append(rank)
        self.missing[rank.number] = rank
        self._meet(())

    def _meet(self, newcomers: Sequence[int]) -> None:
        missing = {"missing": sorted(self.missing)} if self.missing else {}
        self._of_join = {"newcomers": list(newcomers), **missing}
        for one in self.living:
            self._join(one)

    def _of_others(self) -> dict[str, Any]:
        return self._of_join

    def wait_ended(self) -> list[int | None]:
        """Work until every rank that lives has ended; the exit codes."""
        self.wait_for(lambda: all(one.exit_code is not None for one in self.living), "the end of all")
        return [one.exit_code for one in self.living]


@contextlib.contextmanager
def training_on(
    folder: Path, script: Path, *words: str, world: int = 3, imports: Sequence[str] = ()
) -> Iterator[TrainOnStage]:
    """A stage that leaves no process behind."""
    stage = TrainOnStage(folder, world, script, *words, imports=imports)
    try:
        yield stage
    finally:
        stage.close()
