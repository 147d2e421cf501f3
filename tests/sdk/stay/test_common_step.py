"""Every interleaving of who had finished the update, who had copied it, and who was killed where.

A model of one step of N ranks: each enters it, notes what is its own, meets the others in a collective,
updates, copies, ends. Hypothesis draws the order in which they move and when some of them are killed.
"""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from faultrun.sdk.stay.common_step import NOTHING, From, Standing, nothing_common, of_replicas, of_shards

ENTER, NOTE, MEET, UPDATE, UPDATED, COPYING, COPIED, END = range(8)
"""What a rank does next in a step. In COPYING the older copy is not whole."""


@dataclass
class Rank:
    step: int = 5  # the last one that it has finished
    at: int = ENTER
    live: int = 5
    kept: frozenset[int] = frozenset({4, 5})
    noted: frozenset[int] = frozenset({4, 5})
    dead: bool = False

    def moves(self, peers: "list[Rank]") -> None:
        under_way = self.step + 1
        match self.at:
            case 1:  # NOTE: over the older of two
                self.noted = frozenset({max(self.noted), under_way})
            case 2 if any(not self._has_come(peer) for peer in peers):
                return  # a collective ends when all have come to it
            case 3:  # UPDATE begins
                self.live = NOTHING
            case 4:
                self.live = under_way
            case 5:
                self.kept = frozenset({max(self.kept)})
            case 6:
                self.kept |= {under_way}
            case 7:
                self.step, self.at = under_way, -1
        self.at += 1

    def _has_come(self, peer: "Rank") -> bool:
        return peer.step > self.step or (peer.step == self.step and peer.at >= MEET)


def interrupted(ranks: list[Rank]) -> None:
    """The survivors notice at their next collective: none of them stops inside of an update or a copy."""
    for rank in ranks:
        for _ in range(END + 1):
            if rank.dead or rank.at <= MEET:
                break
            rank.moves(ranks)


def standings(ranks: list[Rank]) -> list[Standing]:
    """As they are told after the deaths; a newcomer has no live state, and what the dead rank had copied."""
    return [Standing(NOTHING if rank.dead else rank.live, rank.kept) for rank in ranks]


moments = st.lists(st.integers(0, 3), max_size=120)


@st.composite
def accidents(draw: st.DrawFn) -> list[Rank]:
    ranks = [Rank() for _ in range(draw(st.integers(2, 4)))]
    killed = draw(st.dictionaries(st.integers(0, len(ranks) - 1), st.integers(0, 60), min_size=1))
    for moment, number in enumerate(draw(moments)):
        for rank, at in killed.items():
            ranks[rank].dead |= at == moment
        if not ranks[number % len(ranks)].dead:
            ranks[number % len(ranks)].moves(ranks)
    for rank in killed:
        ranks[rank].dead = True
    interrupted(ranks)
    return ranks


@given(accidents())
def test_replicas_go_on_after_the_last_step_that_any_survivor_has_finished(ranks: list[Rank]) -> None:
    common = of_replicas(standings(ranks))
    alive = [rank for rank in ranks if not rank.dead]
    if not alive:
        assert common is None
        return
    assert common is not None
    assert common.step == max(rank.live for rank in alive)
    assert common.step >= max(rank.step for rank in alive), "a finished step is lost"
    assert ranks[common.giver].live == common.step
    assert not ranks[common.giver].dead
    for rank, source in zip(ranks, common.sources, strict=True):
        assert (source is From.ITSELF) == (not rank.dead and rank.live == common.step)
    assert len(common.takers) == sum(source is From.PEER for source in common.sources)


@given(accidents())
def test_what_is_a_dead_replicas_own_was_noted_before_others_could_finish_the_step(ranks: list[Rank]) -> None:
    common = of_replicas(standings(ranks))
    if common is not None:
        assert all(common.step in rank.noted for rank in ranks)


@given(accidents())
def test_shards_go_back_to_a_step_that_every_rank_has_and_lose_one_at_most(ranks: list[Rank]) -> None:
    common = of_shards(standings(ranks))
    assert common is not None
    finished = max(rank.step for rank in ranks)
    assert common.step >= finished - 1, "two copies are enough"
    assert common.step >= min(rank.step for rank in ranks), "what all ranks have finished is not lost"
    for rank, source in zip(ranks, common.sources, strict=True):
        has = rank.live if source is From.ITSELF else common.step
        assert has == common.step
        assert source is not From.SNAPSHOT or common.step in rank.kept
    assert not common.takers


def test_it_is_said_whose_shards_are_gone_or_that_copies_do_not_fit() -> None:
    has = Standing(live=11, kept=frozenset({10, 11}))
    none = Standing(live=NOTHING)
    assert nothing_common([has, none, has, none], of_shards=True) == (
        "the shards of ranks 1 3 are gone: no copy of them is in memory"
    )
    assert nothing_common([has, Standing(live=NOTHING, kept=frozenset({8}))], of_shards=True) == (
        "the ranks have no step in common, live or in memory: rank 0 has 10 11; rank 1 has 8"
    )
    assert nothing_common([none, none], of_shards=False) == "no rank has a state, live or in memory"


@given(st.lists(st.builds(Standing, st.integers(-1, 9), st.frozensets(st.integers(0, 9), max_size=2))))
def test_every_standing_has_an_answer_and_nobody_is_given_what_is_not_there(told: list[Standing]) -> None:
    replicas, shards = of_replicas(told), of_shards(told)
    assert (replicas is None) == all(one.live == NOTHING for one in told)
    if replicas is not None:
        assert told[replicas.giver].live == replicas.step
    if shards is not None:
        for one, source in zip(told, shards.sources, strict=True):
            assert shards.step == one.live if source is From.ITSELF else shards.step in one.kept


def test_who_is_missing_neither_gives_nor_takes() -> None:
    behind, ahead, nobody = Standing(live=4), Standing(live=5), Standing(live=9)
    common = of_replicas([nobody, behind, ahead], missing=(0,))
    assert common is not None
    assert (common.step, common.giver, common.takers) == (5, 2, (1,))
    assert common.sources[0] is From.NOWHERE
