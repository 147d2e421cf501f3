"""A platform that says anything at any time to a node of random fate: every run still ends, and safely."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.phases.platform_notices import hold
from faultrun.core.plan.next_plan import Rules
from faultrun.core.standby.policy import StandbyState
from faultrun.model.actions import Spawn
from faultrun.model.events import Event, FaultNotice, RunStarted
from faultrun.model.observed.platform_notice import Notice, ReportedRank, ResetNotice
from faultrun.model.run import RunState, Step
from faultrun.model.stop import STOP_EXIT_CODES, StopSource
from faultrun.model.topology import BootId
from faultrun.supervisor.loop import supervise
from support.stories.generated import values
from support.stories.memory_journal import MemoryJournal
from support.stories.random_node import ChancyWorld, SupervisorLost
from support.stories.story import NODE, POLICY, new_run

WORLD_SIZE = 3
LONGEST = 1500

_LIKELY: st.SearchStrategy[Notice] = st.builds(
    ResetNotice,
    ranks=st.lists(values(ReportedRank), max_size=2, unique_by=lambda one: one.rank).map(tuple),
    flushing=st.booleans(),
    retry_time=st.integers(0, 3),
    update_time=st.integers(0, 3),
)
_NOTICES = _LIKELY | values(FaultNotice).map(lambda event: event.notice)


class NoticedWorld(ChancyWorld):
    """Draws a notice now and then."""

    def wait(self) -> Iterable[Event]:
        if self.troubles and self.draw(st.integers(0, 9)) == 0:
            self.troubles -= 1
            notice = self.draw(_NOTICES)
            return [FaultNotice(at_s=self.now_s, incarnation=self.incarnation, notice=notice)]
        return super().wait()


@dataclass(slots=True)
class Witness:
    """Looks at every decision: nothing starts against the platform's word, nothing after a stop."""

    before: RunState
    told: int = 0
    starts: list[int] = field(default_factory=list)

    def tell(self, event: Event, step: Step) -> None:
        self.told += 1
        assert self.told < LONGEST, "no end in sight"
        assert step.why.strip()
        for action in step.actions:
            if isinstance(action, Spawn):
                assert not hold(self.before)
                assert event.at_s >= self.before.run.platform.not_before_s
                assert step.state.stop is None
                self.starts.append(action.plan.incarnation)
        self.before = step.state


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_the_platform_says_the_run_ends_and_the_journal_tells_why(data: st.DataObject) -> None:
    start, journal = new_run(WORLD_SIZE), MemoryJournal()
    rules = Rules(topology=start.topology, policy=POLICY, exit_code_on_stop=0)
    state, now_s, troubles = start, 0.0, data.draw(st.integers(0, 30), label="troubles")
    witness = Witness(state)
    while not state.done:
        world = NoticedWorld(data, rules, NODE, troubles=troubles, plan=state.plan, now_s=now_s)
        notices = tuple(data.draw(st.lists(_NOTICES, max_size=2), label="at the start"))
        world.post(
            RunStarted(
                at_s=now_s, incarnation=state.incarnation, node=NODE, boot=BootId("b"), pid=1, notices=notices
            )
        )
        try:
            state = supervise(state, world, journal, (witness,), StandbyState(ranks=(0, 1), asked=True))
        except SupervisorLost:
            del journal.lines[journal.synced :]
            state, now_s, troubles = journal.replayed(start), world.now_s, world.troubles
            witness.before = state

    assert journal.replayed(start) == state
    assert witness.starts == sorted(set(witness.starts))
    if state.stop is not None:
        assert state.exit_code == (
            STOP_EXIT_CODES[state.stop.source] if state.stop.source is StopSource.PLATFORM else 0
        )
