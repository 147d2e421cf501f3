"""The trainings that the campaign disturbs: how each is started, left alone, and read back from its files."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.campaigns.gasps_evidence import Bits, Reference, State, states
from benchmarks.campaigns.gasps_plan import SAVE_EVERY, STEPS, Place
from benchmarks.harness.benchmark import NotMeasured
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import BARE, FAULTRUN, Job, Launcher
from benchmarks.harness.procfs import tagged
from benchmarks.jobs.gasp_sums import digests, parameter_digests

RUN_S = 300.0
_HELPERS_GONE_S = 5.0
_CHECKPOINTS = "ck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One framework's job. ``options`` protect it, ``unprotected`` leave it alone; ``bare`` starts it then.

    ``bits`` reads a gasp.
    """

    name: str
    script: str
    workers: int
    places: tuple[Place, ...]
    bare: Launcher
    bits: Callable[[Path], Bits]
    options: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()

    def command(self, seed: int, *options: str) -> Sequence[str]:
        """Under faultrun, with the checkpoints in ``ck``."""
        return FAULTRUN.command(self._job(seed, (f"--save_every={SAVE_EVERY}", *self.options, *options)))

    def undisturbed(self, folder: Path, seed: int) -> Reference:
        """The bits of a training without faults and without saves. NotMeasured when it fails."""
        job = self._job(seed, ("--save_every=0", *self.unprotected))
        with Launched(self.bare.command(job), folder, {}) as run:
            code = run.wait_for_the_end(within_s=RUN_S)
            last = states(run.notes, "final")
            if code != 0 or len(last) != self.workers or len({one.bits[0] for one in last}) != 1:
                raise NotMeasured(f"the undisturbed training ended with {code} and {len(last)} results")
            return Reference.of(run.notes)

    def read_back(self, folder: Path, lines: Sequence[dict[str, object]]) -> tuple[State, ...]:
        """The state in each file that a rank reported as its gasp."""
        saved = [line for line in lines if line["event"] == "GaspSaved"]
        return tuple(
            State(int(str(line["rank"])), int(str(line["step"])), self.bits(folder / str(line["path"])))
            for line in saved
        )

    def _job(self, seed: int, options: Sequence[str]) -> Job:
        return Job(
            workers=self.workers,
            program=(str(ROOT / self.script), f"--steps={STEPS}", f"--seed={seed}", *options),
            recovery=(f"--checkpoint_dir={_CHECKPOINTS}",),
        )


def _torch_bits(path: Path) -> Bits:
    import torch

    state = torch.load(path, weights_only=True)
    return digests(state["model"], state["optimizer"])


def _mindspore_bits(path: Path) -> Bits:
    import mindspore

    saved = mindspore.load_checkpoint(str(path))
    return parameter_digests({name: one.asnumpy() for name, one in saved.items()})


TORCH = Training(
    name="torch",
    script="benchmarks/jobs/gasp_torch.py",
    workers=4,
    places=(Place.START, Place.FORWARD, Place.ALL_REDUCE, Place.UPDATE, Place.SAVE, Place.ANYTIME),
    bare=BARE,
    bits=_torch_bits,
)
_MINDSPORE = Training(
    name="mindspore",
    script="benchmarks/jobs/gasp_mindspore.py",
    workers=2,
    places=(Place.STEP, Place.ANYTIME, Place.SAVE, Place.STEP, Place.START),
    bare=FAULTRUN,  # MindSpore needs a scheduler beside its workers
    bits=_mindspore_bits,
    options=("--guard=default",),
    unprotected=("--guard=none",),
)
_COPIES = replace(_MINDSPORE, name="mindspore-copies", options=("--guard=copies",))

TRAININGS = {training.name: training for training in (TORCH, _MINDSPORE, _COPIES)}
"""By name. ``mindspore`` has ``DyingGasp()`` as it comes, ``mindspore-copies`` one that copies every step."""


def left_over(launched: Launched, lines: Sequence[dict[str, object]]) -> int:
    """Processes of workers that live although the supervisor has ended; its own helper may take a moment."""
    boots = {str(line.get("boot", "")) for line in lines if line["event"] == "RunStarted"}
    workers = {pid for boot in boots for pid in tagged("FAULTRUN_BOOT_ID", boot)} - {os.getpid()}
    return len(workers | launched.wait_until_gone(within_s=_HELPERS_GONE_S))
