"""Real ranks on gloo with bad memory: their processes stay, and the end is that of an undisturbed run."""

import os
import signal
from pathlib import Path

import pytest

from sdk.torch.stay.test_rejoin import DDP, FSDP, assert_all_did_every_step_once, ends, stage_of, undisturbed

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PHASES = ("begin", "forward", "backward", "reduced", "update", "updated", "end")


def poisons_memory() -> bool:
    """Whether this kernel can be told that a page is broken; asking for it by doing it would cost a page."""
    return os.geteuid() == 0 and "HardwareCorrupted" in Path("/proc/meminfo").read_text()


def test_memory_of_a_rank_of_ddp_may_be_bad_in_any_phase_of_a_step(tmp_path: Path) -> None:
    faults = [f"bad-{number % 3}-{4 + 3 * number}-{phase}" for number, phase in enumerate(PHASES)]
    with stage_of(tmp_path / "hit", *DDP, *faults) as stage:
        stage.begin()
        first = stage.pids()
        assert ends(stage) == undisturbed(tmp_path, DDP)
        assert stage.pids() == first
        assert_all_did_every_step_once(stage, 24)
        assert len(stage.incidents) == len(PHASES)
        (told,) = [one["what"] for one in stage.heard("memory_fault") if one["incarnation"] == 0]
        assert told == "persistent memory fault in 16.weight"


def test_a_shard_in_bad_memory_comes_back_from_its_snapshot(tmp_path: Path) -> None:
    faults = ("bad-1-5-forward", "bad-0-9-reduced", "bad-2-13-update", "bad-1-17-end")
    with stage_of(tmp_path / "hit", *FSDP, "every-1", *faults) as stage:
        stage.begin()
        first = stage.pids()
        assert ends(stage) == undisturbed(tmp_path, FSDP)
        assert stage.pids() == first
        assert len(stage.incidents) == len(faults)


def test_a_rank_that_nobody_repairs_ends_and_is_replaced(tmp_path: Path) -> None:
    with stage_of(tmp_path / "hit", *DDP, "bad-1-9-reduced") as stage:
        stage.repairs = False
        stage.begin()
        first = stage.pids()
        assert ends(stage) == undisturbed(tmp_path, DDP)
        assert [pid == old for pid, old in zip(stage.pids(), first, strict=True)] == [True, False, True]
        assert "MemoryFault: persistent memory fault" in stage.logs()


def test_a_rank_that_touches_a_page_that_is_gone_is_replaced(tmp_path: Path) -> None:
    assert_replaced(tmp_path, "lost-1-9-reduced")


@pytest.mark.skipif(not poisons_memory(), reason="no MADV_HWPOISON: needs CONFIG_MEMORY_FAILURE and root")
def test_a_rank_whose_page_the_kernel_has_given_up_is_replaced(tmp_path: Path) -> None:
    assert_replaced(tmp_path, "poison-1-9-reduced")


def assert_replaced(folder: Path, fault: str) -> None:
    """The kernel ends rank 1 by SIGBUS before it can say anything."""
    with stage_of(folder / "hit", *DDP, fault) as stage:
        stage.begin()
        first = stage.pids()
        assert ends(stage) == undisturbed(folder, DDP)
        assert [pid == old for pid, old in zip(stage.pids(), first, strict=True)] == [True, False, True]
        assert [dead.exit_code for dead in stage.dead] == [-signal.SIGBUS]
        assert not stage.heard("memory_fault")
