"""The loop in a node in memory: in which order signals, journal and actions go out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from faultrun.core.plan.next_plan import Rules
from faultrun.core.standby.state import StandbyState
from faultrun.model.actions import Action, Kill, RequestGasp, StartTimer
from faultrun.model.events import Drained, Event, IncarnationStarted, RunFinished, RunStarted
from faultrun.model.exits import Exited, Signaled
from faultrun.model.plan import Plan
from faultrun.model.run import Phase, RunState, Step
from faultrun.model.topology import BootId
from faultrun.supervisor.loop import supervise
from support.stories.fake_world import SIGKILL, Circumstances, FakeWorld, Habit
from support.stories.memory_journal import MemoryJournal
from support.stories.story import NODE, POLICY, new_run, topology


@dataclass(slots=True)
class Protocol:
    """Everything that left the loop, in order, by name."""

    lines: list[str] = field(default_factory=list)


class WatchedWorld(FakeWorld):
    """Writes down what it is told to do, and lets a test answer to an event."""

    def __init__(self, protocol: Protocol, around: Circumstances, workers: int, plan: Plan | None) -> None:
        super().__init__(Rules(topology=topology(workers), policy=POLICY), NODE, around, plan=plan)
        self.protocol = protocol
        self.upon: Callable[[WatchedWorld, Event], None] = lambda world, event: None

    def perform(self, action: Action) -> None:
        self.protocol.lines.append(f"perform {type(action).__name__}")
        super().perform(action)

    def wait(self) -> Iterable[Event]:
        events = [*super().wait(), *self.coming]
        self.coming.clear()
        for event in events:
            self.upon(self, event)
        return events


class WatchedJournal(MemoryJournal):
    def __init__(self, protocol: Protocol) -> None:
        super().__init__()
        self.protocol = protocol

    def append(self, event: Event, step: Step) -> None:
        self.protocol.lines.append(f"append {type(event).__name__}")
        super().append(event, step)

    def sync(self) -> None:
        self.protocol.lines.append("sync")
        super().sync()

    def sync_soon(self) -> None:
        self.protocol.lines.append("sync soon")
        super().sync_soon()


def run(
    upon: Callable[[WatchedWorld, Event], None],
    *,
    workers: int = 2,
    around: Circumstances | None = None,
    start: RunState | None = None,
) -> tuple[RunState, list[str], WatchedWorld]:
    protocol = Protocol()
    state = start or new_run(workers)
    world = WatchedWorld(protocol, around or Circumstances(), workers, state.plan)
    world.upon = upon
    world.post(RunStarted(at_s=0, incarnation=-1, node=NODE, boot=BootId("b"), pid=1))
    end = supervise(state, world, WatchedJournal(protocol), (), StandbyState())
    return end, protocol.lines, world


def all_finish(world: WatchedWorld, event: Event) -> None:
    if isinstance(event, IncarnationStarted):
        for rank in event.ranks:
            world.end(rank, Exited(code=0))


def one_is_killed(world: WatchedWorld, event: Event) -> None:
    """Rank 1 dies in the first incarnation; the second goes well."""
    if isinstance(event, IncarnationStarted) and event.incarnation == 0:
        world.end(1, Signaled(signum=SIGKILL))
    else:
        all_finish(world, event)


def test_a_run_that_goes_well_ends_with_zero() -> None:
    end, _, world = run(all_finish)
    assert (end.phase, end.exit_code, end.incarnation) == (Phase.FINISHED, 0, 0)
    assert world.living == {}


def test_a_killed_rank_costs_one_restart() -> None:
    end, _, _ = run(one_is_killed)
    assert (end.exit_code, end.incarnation) == (0, 1)


def test_survivors_are_signalled_and_other_nodes_told_before_the_disk_is_touched() -> None:
    _, lines, _ = run(one_is_killed)
    at = lines.index("perform RequestGasp")
    assert lines[at : at + 5] == [
        "perform RequestGasp",
        "perform RaiseAlarm",
        "append WorkerExit",
        "sync",
        "perform StartTimer",
    ]


def test_looks_and_sweeps_begin_while_the_disk_takes_the_written_line() -> None:
    _, lines, _ = run(one_is_killed)
    for what, why in (("Sweep", "WorkerExit"), ("FindRecoveryPoint", "Drained")):
        at = lines.index(f"perform {what}", lines.index("perform RequestGasp"))
        assert lines[at - 1 : at + 2] == [f"append {why}", f"perform {what}", "sync soon"]


def test_what_other_nodes_act_on_is_on_the_disk_before_it_leaves_this_one() -> None:
    _, lines, _ = run(one_is_killed)
    at = lines.index("perform Publish", lines.index("perform RequestGasp"))
    assert lines[at - 2 : at] == ["append RecoveryPointChosen", "sync"]


def test_ranks_start_while_the_disk_takes_the_word_to_start_but_not_the_plan() -> None:
    _, lines, _ = run(one_is_killed)
    at = lines.index("perform Spawn")
    assert lines[at - 1 : at + 3] == ["append GoGiven", "perform Spawn", "sync", "perform Publish"]
    planned = lines.index("append PlanAdopted")
    assert "sync" in lines[planned:at]


def test_that_a_node_is_ready_waits_for_no_disk() -> None:
    _, lines, _ = run(one_is_killed)
    at = lines.index("append Prepared", lines.index("perform RequestGasp"))
    assert lines[at + 1 : at + 3] == ["perform Publish", "append GoGiven"]


def test_everything_else_is_on_the_disk_before_it_is_done() -> None:
    _, lines, _ = run(one_is_killed, around=Circumstances(habits={0: Habit.IGNORES}))
    ahead = "RequestGasp", "Kill", "RaiseAlarm", "Sweep", "FindRecoveryPoint", "Spawn"
    written_ahead = [f"perform {name}" for name in ahead]
    for before, line in pairwise(lines):
        if line.startswith("perform") and line not in written_ahead and before != "append Prepared":
            assert before == "sync" or before.startswith("perform")


def test_an_event_that_leads_to_nothing_is_not_waited_for() -> None:
    _, lines, _ = run(all_finish)
    at = lines.index("append WorkerStarted")
    assert lines[at + 1] != "sync"


def test_the_last_line_is_on_the_disk_and_what_comes_after_it_is_not_heard() -> None:
    def finish_twice(world: WatchedWorld, event: Event) -> None:
        all_finish(world, event)
        if isinstance(event, Drained):
            over = RunFinished(at_s=0, incarnation=0, exit_code=9, why="over")
            world.coming.extend([over, replace(over, exit_code=8)])

    end, lines, _ = run(finish_twice)
    assert end.exit_code == 9
    assert lines[-2:] == ["append RunFinished", "sync"]
    assert lines.count("append RunFinished") == 1


def test_a_worker_that_ignores_the_request_is_killed_when_its_time_is_over() -> None:
    end, _, world = run(one_is_killed, around=Circumstances(habits={0: Habit.IGNORES}))
    assert [action for action in world.performed if isinstance(action, Kill)] == [Kill(ranks=frozenset({0}))]
    assert world.now_s == 30
    assert end.exit_code == 0


def test_every_window_has_one_request_and_one_timer() -> None:
    _, _, world = run(one_is_killed)
    kinds = [type(action) for action in world.performed if isinstance(action, RequestGasp | StartTimer)]
    assert kinds == [RequestGasp, StartTimer]
