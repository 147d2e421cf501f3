"""The loop in a node whose fate is drawn at random: it never hangs, and nothing unsafe is ever performed."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.plan.next_plan import Rules
from faultrun.core.standby.policy import StandbyState
from faultrun.model.actions import Action, Spawn
from faultrun.model.events import Event, PlanAdopted, RunStarted
from faultrun.model.plan import Ledger, Reason
from faultrun.model.run import RunState, Step
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.stop import STOP_EXIT_CODES
from faultrun.model.topology import BootId
from faultrun.supervisor.loop import supervise
from support.stories.memory_journal import MemoryJournal
from support.stories.random_node import ChancyWorld, SupervisorLost
from support.stories.story import NODE, new_run

WORLD_SIZE = 3
LONGEST = 600
POLICY = RestartPolicy(max_restarts=2, window_s=500, backoff_min_s=1, backoff_max_s=8)


@dataclass(slots=True)
class Witness:
    """A listener that remembers every adopted plan, and when restarts were charged."""

    charged: list[tuple[float, Ledger]] = field(default_factory=list)
    incarnations: list[int] = field(default_factory=list)
    told: int = 0

    def tell(self, event: Event, step: Step) -> None:
        self.told += 1
        assert self.told < LONGEST, "no end in sight"
        if isinstance(event, PlanAdopted) and step.state.plan is event.plan:
            self.incarnations.append(event.plan.incarnation)
            if event.plan.reason is Reason.FAULT:
                self.charged.append((event.at_s, event.plan.ledger))


class CheckedWorld(ChancyWorld):
    def perform(self, action: Action) -> None:
        """Nothing is started after a stop; that none lives when workers are started is checked below."""
        assert not (self.stopped and isinstance(action, Spawn)), "started after a stop"
        super().perform(action)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_happens_the_run_comes_to_an_end_and_keeps_its_promises(data: st.DataObject) -> None:
    witness, journal = Witness(), MemoryJournal()
    end, stopped = _live(data, witness, journal)

    assert end.done
    assert end.exit_code is not None
    assert journal.replayed(new_run(WORLD_SIZE)) == end
    assert witness.incarnations == sorted(set(witness.incarnations))
    _within_budget(witness.charged)
    if end.stop is not None:
        assert stopped
        assert end.exit_code == STOP_EXIT_CODES[end.stop.source]


def _live(data: st.DataObject, witness: Witness, journal: MemoryJournal) -> tuple[RunState, bool]:
    """Supervise until the end; a lost supervisor is followed by one that has only the journal."""
    start = new_run(WORLD_SIZE)
    state, now_s, troubles = start, 0.0, data.draw(st.integers(0, 40), label="troubles")
    rules = Rules(topology=start.topology, policy=POLICY)
    while True:
        world = CheckedWorld(data, rules, NODE, troubles=troubles, plan=state.plan, now_s=now_s)
        world.post(RunStarted(at_s=now_s, incarnation=state.incarnation, node=NODE, boot=BootId("b"), pid=1))
        try:
            end = supervise(state, world, journal, (witness,), StandbyState(ranks=(0, 1), asked=True))
            if end.stop is None or not world.troubles:
                return end, world.stopped
            state, now_s, troubles = end, world.now_s, world.troubles - 1  # the same command once more
        except SupervisorLost:
            kept = data.draw(st.integers(journal.synced, len(journal.lines)), label="lines kept")
            del journal.lines[kept:]
            state, now_s, troubles = journal.replayed(start), world.now_s, world.troubles


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
