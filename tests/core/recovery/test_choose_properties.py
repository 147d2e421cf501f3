"""What holds for every set of candidates, verdicts and needs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.recovery.candidate_order import moments
from faultrun.core.recovery.choose import Chosen, NeedVerdicts, NoneUsable, NothingFound, choose
from faultrun.core.recovery.need import Doubt, Need, Whose, World
from faultrun.core.recovery.replica_groups import Group
from faultrun.model.checkpoint import Depth, Entry, Kind, Verdict
from faultrun.model.plan import Attempt
from support.checkpoints.entries import candidate

WORLD = 4
GROUPS: list[tuple[Group, ...] | None] = [
    None,
    (frozenset({0, 1}), frozenset({2, 3})),
    (frozenset({0}), frozenset({1}), frozenset({2}), frozenset({3})),
]


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Entry], dict[str, bool], Need]:
    """Up to 12 files of ranks, steps and kinds that clash a lot; which of them are whole; and a need."""
    count = draw(st.integers(0, 12))
    entries, whole = [], {}
    for number in range(count):
        path = f"f{number}"
        entries.append(
            candidate(
                path,
                draw(st.none() | st.integers(0, 3)),
                kind=draw(st.sampled_from(Kind)),
                mtime_ns=draw(st.integers(0, 3)),
                inode=number,
                rank=draw(st.none() | st.integers(0, WORLD)),
                epoch=draw(st.none() | st.integers(0, 2)),
                run_id=draw(st.sampled_from([None, "ours", "theirs"])),
                world_size=draw(st.sampled_from([None, WORLD, WORLD * 2])),
                session=draw(st.integers(0, 1)),
            )
        )
        whole[path] = draw(st.booleans())
    need = Need(
        world=World(size=WORLD, groups=draw(st.sampled_from(GROUPS))),
        whose=Whose(run_id=draw(st.sampled_from([None, "ours"]))),
        doubt=Doubt(
            quarantine=tuple(
                Attempt(path=one.path, failures=2, identity=one.identity)
                for one in draw(st.lists(st.sampled_from(entries), max_size=2) if entries else st.just([]))
            ),
            lost_ranks=frozenset(draw(st.sets(st.integers(0, 3), max_size=2))),
        ),
    )
    return entries, whole, need


def verdict(is_whole: bool) -> Verdict:
    return Verdict(whole=is_whole, why="whole" if is_whole else "torn", depth=Depth.CHECKSUM)


def settle(
    entries: list[Entry], whole: dict[str, bool], need: Need
) -> tuple[Chosen | NoneUsable | NothingFound, list[str]]:
    verdicts: dict[str, Verdict] = {}
    asked: list[str] = []
    while isinstance(choice := choose(entries, verdicts, need), NeedVerdicts):
        assert choice.paths
        assert not set(choice.paths) & set(asked)
        asked += choice.paths
        verdicts |= {path: verdict(whole[path]) for path in choice.paths}
    return choice, asked


@settings(max_examples=60, deadline=None)
@given(situations())
def test_every_file_that_is_chosen_was_verified_is_whole_and_allowed(
    situation: tuple[list[Entry], dict[str, bool], Need],
) -> None:
    entries, whole, need = situation
    choice, asked = settle(entries, whole, need)
    if not isinstance(choice, Chosen):
        return
    by_path = {entry.path: entry for entry in entries}
    assert [file.rank for file in choice.point.files] == list(range(WORLD))
    for file in choice.point.files:
        entry = by_path[file.path]
        assert whole[file.path]
        assert file.path in asked
        assert not any(one.accuses(file.path, entry.identity) for one in need.doubt.quarantine)
        assert entry.rank not in need.doubt.lost_ranks
        assert entry.world_size in (None, WORLD)
        assert need.whose.run_id is None or entry.run_id in (None, need.whose.run_id)
    assert len({by_path[file.path].global_step for file in choice.point.files}) == 1
    for group in need.world.groups or ():
        assert len({file.path for file in choice.point.files if file.rank in group}) == 1


@settings(max_examples=60, deadline=None)
@given(situations())
def test_lazy_verification_chooses_the_same(
    situation: tuple[list[Entry], dict[str, bool], Need],
) -> None:
    entries, whole, need = situation
    lazy, _ = settle(entries, whole, need)
    everything = {path: verdict(is_whole) for path, is_whole in whole.items()}
    full = choose(entries, everything, need)
    assert type(full) is type(lazy)
    if isinstance(full, Chosen) and isinstance(lazy, Chosen):
        assert full.point == lazy.point


@settings(max_examples=60, deadline=None)
@given(situations(), st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_does_not_matter(
    situation: tuple[list[Entry], dict[str, bool], Need], random: object
) -> None:
    entries, whole, need = situation
    shuffled = list(entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = settle(entries, whole, need)[0], settle(shuffled, whole, need)[0]
    assert type(first) is type(second)
    if isinstance(first, Chosen) and isinstance(second, Chosen):
        assert first.point == second.point


@settings(max_examples=60, deadline=None)
@given(situations())
def test_in_pure_data_parallel_no_newer_usable_whole_file_is_passed_over(
    situation: tuple[list[Entry], dict[str, bool], Need],
) -> None:
    entries, whole, given_need = situation
    need = Need(world=World(size=WORLD), whose=Whose(run_id=given_need.whose.run_id))
    ours = [
        entry for entry in entries if need.whose.run_id is None or entry.run_id in (None, need.whose.run_id)
    ]
    usable = [
        [entry for entry in moment.entries if whole[entry.path] and entry.world_size in (None, WORLD)]
        for moment in moments(ours)
        if moment.last_rank.get("", 0) < WORLD
    ]
    choice, _ = settle(entries, whole, need)
    newest = next((entries for entries in usable if entries), [])
    assert isinstance(choice, Chosen) == bool(newest)
    if isinstance(choice, Chosen):
        assert choice.point.path in {entry.path for entry in newest}


@settings(max_examples=60, deadline=None)
@given(situations())
def test_every_candidate_newer_than_the_chosen_is_refused_with_a_reason(
    situation: tuple[list[Entry], dict[str, bool], Need],
) -> None:
    entries, whole, need = situation
    choice, _ = settle(entries, whole, need)
    refused = {refusal.path for refusal in choice.refused}
    assert all(refusal.why for refusal in choice.refused)
    if isinstance(choice, Chosen):
        ours = [
            one for one in entries if need.whose.run_id is None or one.run_id in (None, need.whose.run_id)
        ]
        for moment in moments(ours):
            paths = {entry.path for entry in moment.entries}
            if choice.point.path in paths:
                break
            assert paths <= refused
    if isinstance(choice, NoneUsable):
        assert refused == {entry.path for entry in entries}
