"""The first save of a run is seen, however soon it comes."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from faultrun.checkpoints.format import Stamp
from faultrun.core.recovery.need import Whose
from faultrun.model.checkpoint import Entry, Kind
from faultrun.model.events import Event, FirstStep, IncarnationStarted
from faultrun.model.observed.dying_gasp import SaveSeen
from faultrun.model.observed.saves import FirstSaveTold, SavesSeen, SeenSave
from faultrun.supervisor.checkpoints.checkpoint_words import first_save_words, tell_first_save
from faultrun.supervisor.checkpoints.first_save import FirstSaveWatch
from faultrun.supervisor.checkpoints.save_watch import SaveWatch
from faultrun.supervisor.hangs.log_watch import LogPlace
from support.checkpoints.catalogs import catalog_of
from support.checkpoints.ckpt_bytes import ckpt, save
from support.stories.specs import a_spec
from support.stories.story import POLICY, WINDOWS, Story


def started() -> Story:
    """One rank has begun, and done no step."""
    return Story(1, POLICY, WINDOWS).begins().now(IncarnationStarted, ranks=(0,), master_port=29500)


class AtOnce:
    """A reactor whose clock stands still, and errands that are done when they are sent."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.later: list[Callable[[], Iterable[Event]]] = []
        self.busy = False

    def now(self) -> float:
        return 0.0

    def post(self, event: Event) -> None:
        self.seen.append(event)

    def call_at(self, _at_s: float, call: Callable[[], Iterable[Event]]) -> None:
        self.later.append(call)

    def idle(self) -> bool:
        return not self.busy

    def send(self, task: Callable[[], Iterable[Event]]) -> None:
        self.seen += task()

    offer = call = send


def seen(
    before: set[str], at_once: set[str], *, later: set[str] | None = None, strangers: set[str] | None = None
) -> list[str]:
    """What is told of a script that begins with ``at_once`` beside what lay there ``before``.

    ``later``: what is left of that at the next look; all if it is not given.
    """
    everything: Any = AtOnce()
    stamps = {path: Stamp(1, 1, 1) for path in before}
    is_theirs = (strangers or set()).__contains__
    watch = FirstSaveWatch(everything, everything, lambda: dict(stamps), is_left_alone=is_theirs)
    for event, step in started().steps:
        if isinstance(event, IncarnationStarted):
            stamps |= {path: Stamp(2, 2, 2) for path in at_once}
        watch.tell(event, step)
    assert not everything.seen, "it may still be written"
    everything.busy = True
    everything.later.pop(0)()
    everything.busy = False
    for path in at_once - (at_once if later is None else later):
        del stamps[path]
    everything.later.pop()()
    return [event.path for event in everything.seen if isinstance(event, SaveSeen)]


def test_a_save_with_which_a_script_begins_is_seen_once_it_stands_still() -> None:
    assert (seen({"old"}, {"new"}), seen({"old"}, {"old"})) == (["new"], ["old"])


def test_what_lay_there_before_or_somebody_touches_is_no_save_of_this_run() -> None:
    assert seen({"old"}, set()) == []
    assert seen({"old"}, {"old"}, strangers={"old"}) == []
    assert seen({"old"}, {"old", "new"}, strangers={"old"}) == ["new"]


def test_what_is_written_over_or_taken_away_meanwhile_is_none_yet() -> None:
    """A writer that fails removes what it has begun, and one that is done gives it another name."""
    assert seen(set(), {"step_10"}, later=set()) == []


class Loop(AtOnce):
    """What is sent, offered or called waits until the test says so, and is done in that order."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], Iterable[Event]]] = []
        self.as_a_log_is_read: list[Callable[[], object]] = []
        self.noted: list[SavesSeen] = []
        self.beside, self.had_begun = (), lambda _place: False
        self.note, self.last_seen, self.first_save = self.noted.append, lambda known: known, lambda *_: None

    def send(self, task: Callable[[], Iterable[Event]]) -> None:
        self.waiting.append(task)

    offer = call = send

    def settle(self, _patience_s: float) -> None:
        self.goes_on()

    def watch(self, _fd: int, ready: Callable[[], Iterable[Event]]) -> None:
        self.hears = ready

    def forget(self, fd: int) -> None:
        assert fd >= 0

    def goes_on(self, *, later: bool = False) -> None:
        self.waiting += self.later if later else []
        while self.waiting:
            self.seen += self.waiting.pop(0)()

    def place(self) -> LogPlace:
        return LogPlace(2)

    def step_at(self, place: LogPlace) -> int | None:
        if self.as_a_log_is_read:
            self.as_a_log_is_read.pop()()
        return place.step


def a_watch_of(folder: Path, *, told: bool = True) -> tuple[SaveWatch, Any]:
    """One whose first rank has done a step, which is ``told``, and the loop and the errands that it has."""
    everything: Any = Loop()
    story = started().now(FirstStep, step=1) if told else started()
    watch = SaveWatch(everything, [str(folder)], [], everything, story.state.run)
    watch.attach(everything, everything)
    for event, step in story.steps:
        watch.tell(event, step)
    return watch, everything


def test_a_save_is_seen_that_was_written_before_its_folder_could_be_watched(tmp_path: Path) -> None:
    """On a busy machine a script has done its first steps by then, and may write nothing any more."""
    watch, everything = a_watch_of(tmp_path)
    (tmp_path / "model_2.pt").write_bytes(b"weights")
    everything.goes_on()
    assert [save.files for save in watch.seen().saves] == [(str(tmp_path / "model_2.pt"),)]
    watch.close()


def test_a_save_is_told_though_another_thread_sorts_it_as_the_watch_looks(tmp_path: Path) -> None:
    """Whoever looks for checkpoints reads the log meanwhile; the watch's own look knows nothing yet."""
    watch, everything = a_watch_of(tmp_path)
    everything.goes_on()
    (tmp_path / "model_2.pt").write_bytes(b"weights")
    everything.seen += everything.hears()
    everything.as_a_log_is_read.append(lambda: everything.goes_on(later=True))
    watch.seen()
    everything.goes_on()
    assert [save.files for save in everything.noted[-1].saves] == [(str(tmp_path / "model_2.pt"),)]
    watch.close()


def test_a_save_is_noted_though_its_rank_ends_before_its_log_is_read(tmp_path: Path) -> None:
    watch, everything = a_watch_of(tmp_path, told=False)
    everything.goes_on()
    (tmp_path / "model_2.pt").write_bytes(b"weights")
    everything.seen += everything.hears()
    everything.later.pop()()
    everything.goes_on()
    assert everything.noted[-1].prepared == (str(tmp_path / "model_2.pt"),)
    watch.close()
    assert [save.files for save in everything.noted[-1].saves] == [(str(tmp_path / "model_2.pt"),)]


def test_a_dying_gasp_is_none_of_the_scripts_and_says_nothing_of_its_format(tmp_path: Path) -> None:
    gasp = save(tmp_path / "net-2_15_breakpoint.ckpt", ckpt(2, 15, global_step=55))
    told = FirstSaveTold(at_s=0.0, incarnation=1, path="")
    seen_saves = SavesSeen(saves=(SeenSave(files=(str(gasp),)),))
    assert (
        tell_first_save(told, a_spec(), catalog_of(tmp_path), (), Whose(), whole=True, seen=seen_saves)
        is None
    )


@pytest.mark.parametrize(
    ("number", "step", "said"),
    [(10, 10, r"'m(?P<step>\d+)_last\.pt'"), (0, 10, "REGEX"), (17, 10, "REGEX")],
)
def test_a_number_is_advised_as_the_step_where_it_is_seen_to_be_one(
    number: int, step: int, said: str
) -> None:
    name = f"m{number}_last.pt"
    entry = Entry(path=name, format="torch", kind=Kind.PERIODIC, size_bytes=1, mtime_ns=0, inode=0)
    told = FirstSaveTold(at_s=0.0, incarnation=1, path=name, instead=("other.pt",))
    saves = SavesSeen(saves=(SeenSave(files=(name,), step=step, number=number),))
    words = first_save_words(told, a_spec(), entry, saves)
    assert f"--checkpoint_pattern={said} says which" in words
