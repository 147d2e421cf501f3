"""A real ``exception_save`` of a survivor whose peer was killed: whole bytes, wrong state."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from faultrun.core.recovery.choose import Chosen
from faultrun.core.recovery.need import Doubt, Need, World
from faultrun.model.checkpoint import Kind
from support.checkpoints.catalogs import catalog_of, reasons, survey_of
from support.lightly import lightly
from support.machine.free_port import free_port
from support.places import TESTS

WORKER = TESTS / "support" / "checkpoints" / "mindspore_peers.py"
_PATIENCE_S = 150


@contextmanager
def started(root: Path, role: str, port: int, rank: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the pair; its whole group is killed at the end."""
    environ = {
        **os.environ, **lightly(),
        "MS_WORKER_NUM": "2", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(port),
        "MS_TOPO_TIMEOUT": "120", "MS_ROLE": role, "MS_NODE_ID": str(rank), "RANK_ID": str(rank),
        "RANK_SIZE": "2", "DEVICE_ID": str(rank), "MS_CPU_COMM_OP_TIMEOUT": "10",
    }  # fmt: skip
    with (root / f"{role}_{rank}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(WORKER), str(root / "ckpt")],
            env=environ,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


@pytest.mark.mindspore
@pytest.mark.slow
def test_a_survivors_exception_save_is_not_resumed_from_although_every_byte_is_there(tmp_path: Path) -> None:
    port = free_port()
    with ExitStack() as stack:
        stack.enter_context(started(tmp_path, "MS_SCHED", port, 0))
        survivor = stack.enter_context(started(tmp_path, "MS_WORKER", port, 0))
        victim = stack.enter_context(started(tmp_path, "MS_WORKER", port, 1))
        assert victim.wait(_PATIENCE_S) == -signal.SIGKILL
        survivor.wait(_PATIENCE_S)

    root = tmp_path / "ckpt"
    (gasp,) = [one for one in catalog_of(root).scan().entries if one.kind is Kind.GASP]
    step = gasp.step_in_epoch
    assert step in (25, 26), "labelled with the step it did not finish: the victim's last, or the one after"
    assert (gasp.rank, gasp.epoch) == (0, 1)

    found = survey_of(root, Need(world=World(size=2)))
    assert isinstance(found.choice, Chosen)
    assert found.choice.point.global_step == 20
    why = f"labelled step {step}, its optimizer counts {step - 1}: saved in the middle of an update"
    assert reasons(found, root) == {f"rank_0/net-1_{step}_breakpoint.ckpt": why}

    warned = survey_of(root, Need(world=World(size=2), doubt=Doubt(after_fault=True)))
    assert isinstance(warned.choice, Chosen)
    assert warned.choice.point.global_step == 20
