"""What holds for every set of candidates, verdicts and needs."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.plan.restart_budget import furthest, progressed
from faultrun.core.recovery.candidate_order import moments
from faultrun.core.recovery.choose import Chosen, NeedVerdicts, NoneUsable, NothingFound, choose
from faultrun.core.recovery.need import Doubt, Need, Whose, World
from faultrun.core.recovery.quarantine import LIMIT, attempts_after, quarantined
from faultrun.core.recovery.replica_groups import Group
from faultrun.model.checkpoint import Depth, Entry, Identity, Kind, RecoveryPoint, Verdict
from faultrun.model.plan import Attempt, Ledger, Plan
from support.checkpoints.entries import candidate
from support.stories.story import checkpoint, first_plan

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
def test_lazy_verification_chooses_the_same(situation: tuple[list[Entry], dict[str, bool], Need]) -> None:
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


COUNTS = st.none() | st.integers(0, 3)
IDENTITIES = st.builds(
    Identity,
    inode=st.integers(1, 3),
    size_bytes=st.integers(1, 2),
    mtime_ns=st.integers(0, 3),
    global_step=COUNTS,
    epoch=COUNTS,
    step_in_epoch=COUNTS,
)
PATHS = st.sampled_from(["last", "prev", "best"])


def point(identity: Identity, path: str = "last") -> RecoveryPoint:
    return replace(
        checkpoint(0, path),
        identity=identity,
        global_step=identity.global_step,
        epoch=identity.epoch,
        step_in_epoch=identity.step_in_epoch,
    )


def plan(start: RecoveryPoint, attempts: tuple[Attempt, ...]) -> Plan:
    return first_plan(1, incarnation=1, point=start, ledger=Ledger(attempts=attempts))


@given(IDENTITIES, IDENTITIES)
def test_being_the_same_is_mutual_and_a_later_write_ends_it(one: Identity, other: Identity) -> None:
    assert one.same_as(one)
    assert one.same_as(other) == other.same_as(one)
    assert one.same_start_as(other) == other.same_start_as(one)
    assert not one.same_as(replace(one, mtime_ns=one.mtime_ns - 5)), "also where the clock was set back"
    assert not one.same_as(replace(one, size_bytes=one.size_bytes + 5))


@given(IDENTITIES, st.lists(PATHS, min_size=LIMIT, max_size=LIMIT))
def test_a_checkpoint_that_nobody_got_past_is_put_aside_under_whatever_names(
    identity: Identity, paths: list[str]
) -> None:
    attempts: tuple[Attempt, ...] = ()
    for path in paths:
        attempts = attempts_after(plan(point(identity, path), attempts), None)
    assert any(one.accuses("anywhere", identity) for one in quarantined(attempts))


@given(st.lists(st.tuples(IDENTITIES, PATHS), max_size=20))
def test_nothing_is_put_aside_for_what_another_file_did(starts: list[tuple[Identity, str]]) -> None:
    attempts: tuple[Attempt, ...] = ()
    for identity, path in starts:
        attempts = attempts_after(plan(point(identity, path), attempts), None)
    for one in quarantined(attempts):
        assert sum(one.accuses(path, identity) for identity, path in starts) >= LIMIT


@given(st.lists(IDENTITIES, max_size=40))
def test_progress_is_made_as_often_as_some_count_grows_and_so_never_for_ever(saves: list[Identity]) -> None:
    """Three counts up to 3, each from nothing: step, and epoch with the step in it."""
    ledger, refunds = Ledger(), 0
    for identity in saves:
        refunds += progressed(ledger, -1, point(identity))
        ledger = furthest(ledger, -1, point(identity))
        assert not progressed(ledger, -1, point(identity)), "no save is progress twice"
    assert refunds <= 4 + 4 * 5
