"""The journal in memory and the one on the disk keep the same."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import pytest

from faultrun.journal.append import JournalWriter
from faultrun.journal.read import event_of, lines
from faultrun.model.events import Event
from faultrun.model.run import Step
from faultrun.model.topology import BootId
from faultrun.supervisor.interfaces import Journal
from support.stories.memory_journal import MemoryJournal
from support.stories.story import NODE, SIGTERM, Story, checkpoint


class Readable(Journal, Protocol):
    def events(self) -> Iterable[Event | None]:
        """What was written, read back."""
        ...


class OnDisk:
    """``JournalWriter`` and what can be read of its file by anybody else."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.jsonl"
        self._writer = JournalWriter(self._path, next_seq=0, node=NODE, boot=BootId("b"))

    def append(self, event: Event, step: Step) -> None:
        self._writer.append(event, step)

    def sync(self) -> None:
        self._writer.sync()

    def sync_soon(self) -> None:
        self._writer.sync_soon()

    def events(self) -> Iterable[Event | None]:
        return [event_of(line) for line in lines(self._path)]


class InMemory(MemoryJournal):
    def __init__(self, folder: Path) -> None:
        super().__init__()


@pytest.mark.parametrize("make", [InMemory, OnDisk])
def test_what_was_appended_is_read_at_once_and_alike(make: type[InMemory | OnDisk], tmp_path: Path) -> None:
    journal: Readable = make(tmp_path)
    story = Story(2)
    story.now_s = 1 / 3
    story.begins(checkpoint(5, "\udc80")).killed(1).could_not_save(0, "训练").killed(0, SIGTERM).recovers()
    for count, (event, step) in enumerate(story.steps, start=1):
        journal.append(event, step)
        assert len(list(journal.events())) == count
    journal.sync()
    assert list(journal.events()) == [event for event, _ in story.steps]
