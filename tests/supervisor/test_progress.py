"""The progress page, written as a worker writes it and read as the supervisor does."""

import os
import resource
import signal
from pathlib import Path

import pytest

from faultrun.model.progress import RankStep, WorkPhase
from faultrun.model.wire import SLOT_BYTES, Progress, pack_progress, pack_word, unpack_progress
from faultrun.sdk.session import ProgressSlot
from faultrun.supervisor.progress import ProgressPage, phase_of


def store(
    page: ProgressPage, slot: int, step: int, *, epoch: int = -1, phase: int = 0, count: int = 1
) -> None:
    with page.path.open("r+b") as file:
        file.seek(slot * SLOT_BYTES)
        file.write(pack_word(step, epoch, phase, 12.5, count))


def test_what_a_worker_stored_is_read_at_once(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (4, 5))
    assert (page.steps(), page.complete) == ((), False)
    store(page, 1, 1215, epoch=2, phase=2)
    assert page.steps() == (RankStep(rank=5, step=1215, epoch=2, phase=WorkPhase.COLLECTIVE),)
    store(page, 0, 0)
    assert page.steps()[0] == RankStep(rank=4, step=0)
    page.close()


def test_a_page_is_complete_once_every_rank_has_reported(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (0, 1))
    found = []
    for slot in (1, 0):
        store(page, slot, 1)
        found.append(page.complete)
    assert found == [False, True]
    page.close()


def test_a_page_is_made_anew_for_each_incarnation(tmp_path: Path) -> None:
    before = ProgressPage(tmp_path / "progress", (0,))
    store(before, 0, 99)
    after = ProgressPage(tmp_path / "progress", (0,))
    assert after.steps() == ()
    before.close()
    after.close()


def test_a_phase_from_a_newer_sdk_is_unknown() -> None:
    assert phase_of(len(WorkPhase)) is WorkPhase.UNKNOWN
    assert phase_of(-1) is WorkPhase.UNKNOWN
    assert [phase_of(number) for number in range(len(WorkPhase))] == list(WorkPhase)


def test_a_slot_is_as_long_as_it_says_and_survives_packing() -> None:
    progress = Progress(step=2**62, epoch=-1, phase=3, at_monotonic_s=1e9, count=7)
    packed = pack_progress(progress)
    assert len(packed) <= SLOT_BYTES
    assert unpack_progress(packed.ljust(SLOT_BYTES, b"\0")) == progress


@pytest.mark.parametrize("slot", [b"\0" * SLOT_BYTES, pack_progress(
    Progress(step=5, epoch=0, phase=0, at_monotonic_s=0, count=-1)
).ljust(SLOT_BYTES, b"\0")])  # fmt: skip
def test_a_slot_that_nobody_wrote_is_none(slot: bytes) -> None:
    assert unpack_progress(slot) is None


def test_a_page_that_is_cut_costs_its_words_and_no_process(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (0, 1))
    slot = ProgressSlot(f"{page.path}:1")
    slot.stepped(7, 0)
    for left_bytes in (SLOT_BYTES + 9, 0):
        os.truncate(page.path, left_bytes)
        assert page.steps() == ()
        assert page.words() == ((0, None), (1, None))
        assert page.reporting() == frozenset()
        assert slot.agreed_stop() == 0
        assert slot.agree_on_interval(4) == 4
        slot.stepped(8, 0)
        assert page.steps() == (RankStep(rank=1, step=8, epoch=0, phase=WorkPhase.COMPUTING),)
    page.close()


def test_a_step_goes_on_where_the_page_cannot_be_written(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (0,))
    slot = ProgressSlot(f"{page.path}:0")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        slot.stepped(7, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert page.steps() == ()
    page.close()
