"""Comparing runs of ``scripts/train_ddp.py``, or of one that writes such sums, bit for bit."""

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sdk.support.checksums import checksums
from sdk.support.fake_supervisor import FakeSupervisor, supervised
from sdk.support.torch_imports import IMPORTS
from support.places import TESTS

UNHURRIED_S = 0.05
"""A step of a training that is told something at a certain step: the test may see that one late."""

TRAIN = TESTS / "sdk" / "scripts" / "train_ddp.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training: ``epochs`` of 64 / world_size steps each. ``words`` change what the ``script`` does."""

    world_size: int = 2
    epochs: int = 2
    pace_s: float = 0.002
    words: tuple[str, ...] = ()
    script: Path = TRAIN

    def start(
        self, supervisor: FakeSupervisor, checkpoints: Path, env: Mapping[str, str] | None = None
    ) -> None:
        """Start every rank."""
        paths = {"CKPT": str(checkpoints), "OUT": str(supervisor.directory)}
        supervisor.start_all(
            self.script, str(self.epochs), str(self.pace_s), *self.words, env={**paths, **(env or {})}
        )

    @property
    def last_step(self) -> int:
        """The step after which the training is done."""
        return self.epochs * (64 // self.world_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a disturbed incarnation left: the newest step that any rank had finished, and the newest saved."""

    high_step: int
    saved: tuple[Mapping[str, Any], ...]
    codes: tuple[int, ...]

    @property
    def best(self) -> Mapping[str, Any]:
        """The newest save."""
        return max(self.saved, key=lambda one: int(one["step"]))

    @property
    def lost(self) -> int:
        """Steps that were finished somewhere and are not in the newest save."""
        return self.high_step - int(self.best["step"])


def sums(directory: Path, rank: int, word: str = "step") -> dict[int, tuple[str, str]]:
    """Step -> checksums that a rank wrote."""
    lines = (directory / f"sums_{rank}").read_text().splitlines()
    parts = [line.split() for line in lines]
    return {int(step): (shared, whole) for what, step, shared, whole in parts if what == word}


def undisturbed(directory: Path, job: Job) -> dict[int, dict[int, tuple[str, str]]]:
    """Rank -> step -> checksums of a run that nothing happens to."""
    plain = replace(job, pace_s=0.0, words=tuple(word for word in job.words if "-" not in word))
    with supervised(directory / "undisturbed", job.world_size, imports=IMPORTS) as supervisor:
        plain.start(supervisor, directory / "unused")
        assert set(supervisor.wait_ended()) == {0}, supervisor.logs()
    return {rank: sums(directory / "undisturbed", rank) for rank in range(job.world_size)}


def outcome(supervisor: FakeSupervisor) -> Outcome:
    """Wait for the end of every rank and look at what is left."""
    codes = supervisor.wait_ended()
    ranks = range(supervisor.world_size)
    return Outcome(
        high_step=max(supervisor.step_of(rank) for rank in ranks),
        saved=tuple(one for rank in ranks for one in supervisor.heard(rank, "saved")),
        codes=tuple(codes),
    )


def kill_at_random(supervisor: FakeSupervisor, chance: random.Random, job: Job) -> int:
    """SIGKILL one rank at a moment of the first half of the run, which may be seen late; the rank.

    ``job`` is unhurried: it must not be over by then.
    """
    rank = chance.randrange(job.world_size)
    step = chance.randrange(1, job.last_step // 2)
    supervisor.wait_for(lambda: supervisor.step_of(rank) >= step, f"step {step}")
    threading.Event().wait(chance.random() * (job.pace_s + 0.004))  # anywhere within a step
    supervisor.kill(rank)
    return rank


def file_sums(path: str) -> tuple[int, int, tuple[str, str]]:
    """Step, rank and checksums of a saved file."""
    state = torch.load(path, weights_only=True)
    return state["global_step"], state["rank"], checksums(state["model"], state["optimizer"])


def resume_env(saved: Mapping[str, Any]) -> dict[str, str]:
    """What faultrun tells the next incarnation."""
    return {
        "FAULTRUN_RESUME_FROM": str(saved["path"]),
        "FAULTRUN_RESUME_STEP": str(saved["step"]),
        "FAULTRUN_RESTART_REASON": "fault",
        "FAULTRUN_INCARNATION": "1",
    }
