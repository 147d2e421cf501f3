"""The one line about standbys: on the console, and in the status."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from faultrun.model.events import Event, RunStarted
from faultrun.model.observed.recovery import RecoveryTimed
from faultrun.model.observed.standby import EVERY_RANK, StandbyChanged, StandbyPhase, StandbyWish
from faultrun.model.run import Phase, Step
from faultrun.model.topology import BootId
from faultrun.observe.console.reporters import ConsoleReporter
from faultrun.observe.standby_words import StandbyTally
from support.stories.specs import a_spec
from support.stories.story import NODE, in_phase

MIB = 1 << 20
TWO = StandbyTally(wanted=2)


def change(rank: int, state: StandbyPhase, **more: object) -> StandbyChanged:
    return replace(StandbyChanged(at_s=9.0, incarnation=0, rank=rank, state=state), **more)  # type: ignore[arg-type]


def ready(rank: int, mib: int = 250, *imported: str) -> StandbyChanged:
    names = imported or ("torch",)
    return change(rank, StandbyPhase.READY, memory_bytes=mib * MIB, imported=names)


def warm(standbys: int, total_s: float) -> RecoveryTimed:
    return RecoveryTimed(at_s=9.0, incarnation=1, total_s=total_s, standbys=standbys)


def words(*events: Event, tally: StandbyTally = TWO) -> str:
    for event in events:
        tally = tally.after(event)
    return tally.words()


def test_those_that_are_ready_are_told_with_their_weight() -> None:
    assert words() == ""
    assert words(ready(0)) == "1 of 2 standbys ready (torch imported, 250 MiB)"
    assert words(ready(0, 240), ready(1, 262)) == "2 standbys ready (torch imported, 251 MiB each)"
    assert words(ready(0), tally=StandbyTally(wanted=1)) == "1 standby ready (torch imported, 250 MiB)"


def test_what_they_have_imported_is_named_as_far_as_it_fits() -> None:
    def said(*imported: str) -> str:
        return words(ready(0, 250, *imported), tally=StandbyTally(wanted=1))

    assert "(torch, transformers imported," in said("torch", "transformers")
    assert "(torch, yaml, sklearn and 2 more imported," in said("torch", "yaml", "sklearn", "numpy", "rich")
    assert "(Python started," in said("python")
    assert "(rich imported," in said("python", "rich")


def test_how_long_a_restart_takes_is_said_only_where_one_with_standbys_was_timed() -> None:
    both = (ready(0), ready(1))
    assert words(warm(2, 0.63), *both).endswith(": a restart takes about 0.6 s")
    assert "restart" not in words(warm(0, 5.1), *both), "a cold one"
    assert "restart" not in words(warm(1, 4.9), *both), "it waited for the rank that was cold"
    assert "restart" not in words(warm(2, 0.63), ready(0)), "the other rank would be"


def test_those_that_leave_are_not_counted() -> None:
    for state in (StandbyPhase.TAKEN, StandbyPhase.LOST, StandbyPhase.DISMISSED, StandbyPhase.STARTING):
        assert words(ready(0), ready(1), change(1, state)).startswith("1 of 2")


def test_that_there_are_none_is_said_with_the_reason_and_a_new_supervisor_begins_anew() -> None:
    off = change(EVERY_RANK, StandbyPhase.OFF, why="no memory")
    assert words(ready(0), off) == "none: no memory"
    started = RunStarted(at_s=0.0, incarnation=-1, node=NODE, boot=BootId("b"), pid=1)
    assert words(ready(0), off, started) == ""


def console(events: Iterable[Event], wish: StandbyWish, log_dir: Path) -> list[str]:
    said: list[str] = []
    reporter = ConsoleReporter(replace(a_spec(workers=2), standby=wish), log_dir, said.append)
    for event in events:
        reporter.tell(event, Step(state=in_phase(Phase.RUNNING, 2), why=""))
    return said


def test_the_console_says_once_when_all_are_ready_and_again_when_they_were_replaced(tmp_path: Path) -> None:
    starting = [change(rank, StandbyPhase.STARTING) for rank in (0, 1)]
    first = [*starting, ready(0), ready(1)]
    taken = [change(rank, StandbyPhase.TAKEN) for rank in (0, 1)]
    said = console([*first, *taken, warm(2, 0.4), *first], StandbyWish(count=2), tmp_path)
    line = "2 standbys ready (torch imported, 250 MiB each)"
    assert [one for one in said if "standby" in one] == [line, f"{line}: a restart takes about 0.4 s"]


def test_the_console_says_once_that_memory_is_short_and_nothing_where_none_is_due(tmp_path: Path) -> None:
    off = change(EVERY_RANK, StandbyPhase.OFF, why="2 would need 900 MiB")
    (line,) = console([off, off], StandbyWish(count=2), tmp_path)
    assert line == "no standbys: 2 would need 900 MiB; a restart will import everything again"
    assert console([off], StandbyWish(doubts=("a plain program",)), tmp_path) == []
