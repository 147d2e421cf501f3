"""What holds for every history of a checkpoint's file: written anew, renamed, copied, with any clock."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.plan.restart_budget import furthest, progressed
from faultrun.core.recovery.quarantine import LIMIT, attempts_after, quarantined
from faultrun.model.checkpoint import Identity, RecoveryPoint
from faultrun.model.plan import Attempt, Ledger, Plan
from support.stories.story import checkpoint, first_plan

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
