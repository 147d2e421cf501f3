"""Copies of shards every k steps: whoever is killed when, all find a step that they have, and not long ago.

A model of ranks with two copies each and a second thread that makes them; intervals are the product's own.
Hypothesis draws who moves, who is killed at which moment, twice in a row, and what a copy would cost whom.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.diagnosis.tracebacks import is_chatter
from faultrun.core.logged_steps import last_step
from faultrun.errors import FaultrunError
from faultrun.sdk.snapshots.interval import AUTO, UNKNOWN, SnapshotEvery, SnapshotInterval, checked, chosen
from faultrun.sdk.stay.common_step import NOTHING, Standing, of_shards

ENTERED, MET, UPDATING, UPDATED, DONE, AGREEING = range(6)
"""Where the main thread of a rank is in a step. Two moves of the others lie between any two of its own."""

BEGIN = 18
"""A few steps before the end of a trial."""


@dataclass
class Rank:
    interval: SnapshotInterval
    wish: int
    step: int = BEGIN  # the last one that it has finished
    at: int = ENTERED
    live: int = BEGIN
    kept: frozenset[int] = frozenset()
    copying: int = NOTHING
    begun: int = BEGIN + 1
    dead: bool = False
    wishes: list[int] = field(default_factory=list)

    def moves(self, peers: "list[Rank]") -> None:
        """The main thread, up to where it may be overtaken."""
        match self.at:
            case 0:
                self.begun = self.step + 1
            case 1 if not all(self._is_met_by(peer, peer.at >= MET) for peer in peers):
                return  # a collective ends when all have come to it
            case 2 if self.copying != NOTHING:
                return  # an update waits for the copy
            case 2:
                self.live = NOTHING
            case 3:
                self.live = self.step + 1
            case 4:
                self.step += 1
                if self.interval.ends_trial(self.step):
                    self.wishes = [self.wish]
                    self.at = AGREEING
                else:
                    self.wishes = []
                    self._copy()
                return
            case 5:
                if not all(self._is_met_by(peer, bool(peer.wishes)) for peer in peers):
                    return
                self.interval.settle([peer.wish for peer in peers])
                self._copy()
                return
        self.at += 1

    def _copy(self) -> None:
        if self.interval.is_due(self.step):
            self.copied()
            self.kept = frozenset({max(self.kept)} if len(self.kept) > 1 else self.kept)
            self.copying = self.step
            if not self.interval.is_beside(self.step):
                self.copied()
        self.at = ENTERED

    def _is_met_by(self, peer: "Rank", has_come: bool) -> bool:
        return peer.step > self.step or (peer.step == self.step and has_come)

    def copied(self) -> None:
        """The thread that copies is done."""
        if self.copying != NOTHING:
            self.kept |= {self.copying}
            self.copying = NOTHING


@dataclass
class RankElsewhere(Rank):
    """The next node has two copies of it, too, and one may be on its way."""

    there: frozenset[int] = frozenset()
    leaving: int = NOTHING

    def moves(self, peers: "list[Rank]") -> None:
        waits = self.at == ENTERED and self.interval.is_due(self.step + 1)
        if not (waits and max(self.kept) not in self.there):
            super().moves(peers)

    def sends(self) -> None:
        """What has left arrives, unless it was written over meanwhile; else the newest sets out."""
        if self.leaving != NOTHING:
            self.there |= {self.leaving} & self.kept
            self.leaving = NOTHING
        elif self.kept and max(self.kept) not in self.there:
            self.there = frozenset(sorted(self.there)[-1:])
            self.leaving = max(self.kept)


def interrupted(ranks: list[Rank]) -> list[Standing]:
    """Survivors notice at their next collective; what they tell then. A newcomer tells what the dead had."""
    for rank in ranks:
        if rank.dead:
            rank.copying, rank.live = NOTHING, NOTHING
            continue
        rank.copied()
        while rank.at in (UPDATING, UPDATED, DONE):
            rank.moves(ranks)
        if rank.at == AGREEING:
            rank.wishes = []
            rank._copy()
        rank.copied()
    return [Standing(rank.live, rank.kept) for rank in ranks]


moves = st.binary(min_size=100, max_size=300)
wishes = st.lists(st.sampled_from((UNKNOWN, 1, 2, 3, 8)), min_size=4, max_size=4)


@given(st.sampled_from((AUTO, 1, 2, 3, 5)), st.integers(2, 3), wishes, st.data())
def test_all_find_a_step_that_each_of_them_has_and_do_no_more_than_an_interval_again(
    asked: SnapshotEvery, size: int, wished: list[int], data: st.DataObject
) -> None:
    ranks = [Rank(SnapshotInterval(asked), wish) for wish in wished[:size]]
    for rank in ranks:
        rank.interval.goes_on_after(0)
        rank.kept = frozenset([step for step in range(BEGIN + 1) if rank.interval.is_due(step)][-2:])
    for _ in range(2):
        killed = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
        for move in data.draw(moves):
            one = ranks[move // 4 % size]
            if move % 4:
                one.moves(ranks)
            else:
                one.copied()
        for number in killed:
            ranks[number].dead = True
        finished = min(rank.step for rank in ranks)
        standings = interrupted(ranks)
        common = of_shards(standings)
        assert common is not None, standings
        widest = max(rank.interval.every for rank in ranks)
        assert finished - common.step <= (widest if widest > 1 else 0)
        for rank in ranks:
            if not rank.dead:
                assert rank.begun - common.step <= rank.interval.redone
        told = [UNKNOWN if rank.dead and asked == AUTO else rank.interval.told for rank in ranks]
        ranks = [Rank(SnapshotInterval(asked), one.wish, kept=one.kept) if one.dead else one for one in ranks]
        for rank in ranks:
            rank.interval.goes_on_after(common.step, told)
            rank.step = rank.live = common.step
            rank.at, rank.begun, rank.wishes = ENTERED, common.step + 1, []
            rank.kept = frozenset(step for step in rank.kept if step <= common.step)
        assert len({(rank.interval.every, rank.interval.is_settled) for rank in ranks}) == 1


@given(st.sampled_from((AUTO, 1, 2, 3, 5)), st.integers(2, 3), wishes, st.data())
def test_where_the_next_node_has_copies_a_lost_host_costs_an_interval(
    asked: SnapshotEvery, size: int, wished: list[int], data: st.DataObject
) -> None:
    ranks = [RankElsewhere(SnapshotInterval(asked), wish) for wish in wished[:size]]
    for rank in ranks:
        rank.interval.goes_on_after(0)
        rank.kept = frozenset([step for step in range(BEGIN + 1) if rank.interval.is_due(step)][-2:])
        rank.there = frozenset({max(rank.kept)})
    for move in data.draw(moves):
        one = ranks[move // 5 % size]
        if move % 5 == 0:
            one.sends()
        elif move % 5 == 1:
            one.copied()
        else:
            one.moves([*ranks])
    killed = data.draw(st.integers(0, size - 1))
    ranks[killed].dead = True
    finished = min(rank.step for rank in ranks)
    standings = interrupted([*ranks])
    standings[killed] = Standing(NOTHING, ranks[killed].there)
    common = of_shards(standings)
    assert common is not None, standings
    assert finished - common.step <= 2 * max(rank.interval.every for rank in ranks) - 1


@given(st.floats(1e-4, 10), st.floats(0, 10), st.floats(0, 10), st.floats(-1, 20))
def test_the_interval_is_the_smallest_that_keeps_the_speed(
    step_s: float, copy_s: float, sum_s: float, lost_s: float
) -> None:
    every = chosen(step_s=step_s, copy_s=copy_s, sum_s=sum_s, lost_s=lost_s)
    costs_s = copy_s if every == 1 else max(0.0, min(lost_s, copy_s + sum_s))
    assert every == 256 or costs_s <= 0.0051 * every * step_s
    assert every in (1, 2, 256) or costs_s > 0.0049 * (every - 1) * step_s


@given(st.floats(1e-4, 10), st.floats(0, 10), st.floats(-1, 10), st.floats(0, 10))
def test_where_copies_go_on_to_another_node_there_is_time_for_that_between_two(
    step_s: float, copy_s: float, lost_s: float, arrival_s: float
) -> None:
    every = chosen(step_s=step_s, copy_s=copy_s, lost_s=lost_s, arrival_s=arrival_s)
    assert every >= 2
    assert every == 256 or min(lost_s, copy_s + arrival_s) <= 0.0051 * every * step_s


def test_a_trial_compares_steps_with_a_copy_beside_and_steps_without() -> None:
    interval = SnapshotInterval(AUTO)
    interval.goes_on_after(0)
    for step in range(1, 21):
        interval.step_took(0.1062 if step % 2 else 0.1, beside=bool(step % 2))
        assert interval.wish == UNKNOWN or step > 10, "the first copies touch new memory"
        if interval.is_due(step) and not interval.ends_trial(step):
            interval.copy_took(0.004, 0.030, 0.005)
    assert interval.ends_trial(20)
    assert interval.wish == 13, "6.2 ms of steps of 100 ms, more than the copy without its checksum"
    interval.settle([interval.wish, 7])
    assert interval.told == interval.every == 13
    assert is_chatter(interval.words()), "nobody has died of it"
    assert last_step([interval.words()]) is None
    assert interval.is_due(20), "the step in which all have agreed is kept by all"
    assert not interval.is_beside(20)
    assert [step for step in range(21, 50) if interval.is_due(step)] == [26, 39]


@pytest.mark.parametrize("asked", [-1, 1.5, "often", True, None])
def test_what_nobody_can_mean_is_refused(asked: object) -> None:
    with pytest.raises(FaultrunError, match="cannot be meant"):
        checked(asked)  # type: ignore[arg-type]
