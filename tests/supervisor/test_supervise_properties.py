"""The loop in a node whose fate is drawn at random: it never hangs, and nothing unsafe is ever performed.

In half of the runs the platform says anything at any time as well.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.phases.platform_notices import hold
from faultrun.core.plan.next_plan import Rules
from faultrun.core.standby.state import StandbyState
from faultrun.model.actions import Action, Spawn
from faultrun.model.events import Event, FaultNotice, PlanAdopted, RunStarted
from faultrun.model.observed.platform_notice import Notice, ReportedRank, ResetNotice
from faultrun.model.plan import Ledger, Reason
from faultrun.model.run import RunState, Step
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.stop import STOP_EXIT_CODES, StopSource
from faultrun.model.topology import BootId
from faultrun.supervisor.loop import supervise
from support.stories.generated import values
from support.stories.memory_journal import MemoryJournal
from support.stories.random_node import ChancyWorld, SupervisorLost
from support.stories.story import NODE, new_run

WORLD_SIZE = 3
LONGEST = 1500
POLICY = RestartPolicy(max_restarts=2, window_s=500, backoff_min_s=1, backoff_max_s=8)


_LIKELY: st.SearchStrategy[Notice] = st.builds(
    ResetNotice,
    ranks=st.lists(values(ReportedRank), max_size=2, unique_by=lambda one: one.rank).map(tuple),
    flushing=st.booleans(),
    retry_time=st.integers(0, 3),
    update_time=st.integers(0, 3),
)
NOTICES = _LIKELY | values(FaultNotice).map(lambda event: event.notice)


@dataclass(slots=True)
class Witness:
    """Remembers adopted plans and when restarts were charged; nothing starts against the platform's word."""

    before: RunState
    charged: list[tuple[float, Ledger]] = field(default_factory=list)
    incarnations: list[int] = field(default_factory=list)
    told: int = 0

    def tell(self, event: Event, step: Step) -> None:
        self.told += 1
        assert self.told < LONGEST, "no end in sight"
        assert step.why.strip()
        if any(isinstance(action, Spawn) for action in step.actions):
            assert not hold(self.before)
            assert event.at_s >= self.before.run.platform.not_before_s
        self.before = step.state
        if isinstance(event, PlanAdopted) and step.state.plan is event.plan:
            self.incarnations.append(event.plan.incarnation)
            if event.plan.reason is Reason.FAULT:
                self.charged.append((event.at_s, event.plan.ledger))


class CheckedWorld(ChancyWorld):
    noticed = False

    def wait(self) -> Iterable[Event]:
        begins = bool(self.coming) and isinstance(self.coming[0], RunStarted)  # which is always heard first
        if not begins and self.noticed and self.troubles and self.draw(st.integers(0, 9)) == 0:
            self.troubles -= 1
            notice = self.draw(NOTICES)
            return [FaultNotice(at_s=self.now_s, incarnation=self.incarnation, notice=notice)]
        return super().wait()

    def perform(self, action: Action) -> None:
        """Nothing is started after a stop; that none lives when workers are started is checked below."""
        assert not (self.stopped and isinstance(action, Spawn)), "started after a stop"
        super().perform(action)


@pytest.mark.parametrize("noticed", [False, pytest.param(True, marks=pytest.mark.long)])
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_happens_the_run_ends_and_keeps_its_promises(noticed: bool, data: st.DataObject) -> None:
    start, journal = new_run(WORLD_SIZE), MemoryJournal()
    witness = Witness(start)
    end, stopped = _live(data, witness, journal, noticed=noticed)

    assert end.done
    assert end.exit_code is not None
    assert journal.replayed(start) == end
    assert witness.incarnations == sorted(set(witness.incarnations))
    if not noticed:
        _within_budget(witness.charged)
    if end.stop is not None:
        of_platform = end.stop.source is StopSource.PLATFORM
        assert stopped or of_platform
        assert end.exit_code == (0 if noticed and not of_platform else STOP_EXIT_CODES[end.stop.source])


def _live(
    data: st.DataObject, witness: Witness, journal: MemoryJournal, *, noticed: bool
) -> tuple[RunState, bool]:
    """Supervise until the end; a lost supervisor is followed by one that has only the journal."""
    start = witness.before
    state, now_s, troubles = start, 0.0, data.draw(st.integers(0, 40), label="troubles")
    rules = Rules(topology=start.topology, policy=POLICY, exit_code_on_stop=0 if noticed else None)
    while True:
        world = CheckedWorld(data, rules, NODE, troubles=troubles, plan=state.plan, now_s=now_s)
        world.noticed = noticed
        notices = tuple(data.draw(st.lists(NOTICES, max_size=2), label="at the start")) if noticed else ()
        begun, boot = state.incarnation, BootId("b")
        world.post(RunStarted(at_s=now_s, incarnation=begun, node=NODE, boot=boot, pid=1, notices=notices))
        try:
            end = supervise(state, world, journal, (witness,), StandbyState(ranks=(0, 1), asked=True))
            if end.stop is None or not world.troubles:
                return end, world.stopped
            state, now_s, troubles = end, world.now_s, world.troubles - 1  # the same command once more
        except SupervisorLost:
            kept = data.draw(st.integers(journal.synced, len(journal.lines)), label="lines kept")
            del journal.lines[kept:]
            state, now_s, troubles = journal.replayed(start), world.now_s, world.troubles
        witness.before = state


def _within_budget(charged: list[tuple[float, Ledger]]) -> None:
    """At most ``max_restarts`` in any window in which neither a step nor a save came further."""
    for index, (at_s, ledger) in enumerate(charged):
        fruitless = [
            before for before, reached in charged[: index + 1]
            if at_s - before < POLICY.window_s and _furthest(reached) == _furthest(ledger)
        ]  # fmt: skip
        assert len(fruitless) <= POLICY.max_restarts


def _furthest(ledger: Ledger) -> tuple[object, ...]:
    return ledger.high_step, ledger.saved_step, ledger.saved_epoch
