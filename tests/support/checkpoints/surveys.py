"""A CheckpointFinder over a folder of real MindSpore files, and its answers."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from faultrun.checkpoints.catalog import Catalog
from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import RecoveryPointChosen
from faultrun.model.spec.run_spec import Recovery, Replicas, Resume
from faultrun.supervisor.checkpoints.finder import CheckpointFinder, FindAnswer
from faultrun.supervisor.checkpoints.other_runs import OtherRuns
from faultrun.supervisor.reactor import RunClock
from support.checkpoints.ckpt_bytes import ckpt, save
from support.stories.specs import a_spec

A = TypeVar("A", bound=FindAnswer)

FIRST = FindRecoveryPoint(incarnation=-1, continuing=False)


AGAIN = FindRecoveryPoint(incarnation=2, continuing=True)


def finder(
    root: Path,
    resume: Resume = Resume.AUTO,
    *,
    roots: int = 1,
    workers: int = 2,
    replicas: Replicas = Replicas.AUTO,
) -> CheckpointFinder:
    """A supervisor's finder; what it learns it remembers beside the checkpoints, as a log_dir would."""
    dirs = (str(root / "ckpt"),) * roots
    spec = replace(
        a_spec(workers=workers), recovery=Recovery(checkpoint_dirs=dirs, resume=resume, replicas=replicas)
    )
    catalog = Catalog(dirs, memory_path=str(root / "memory.jsonl"), settle_s=0.0)
    return CheckpointFinder(spec, catalog, RunClock(), neighbours=OtherRuns(dirs, spec.run_id))


def put(root: Path, *steps: int, content: bytes | None = None) -> None:
    for step in steps:
        save(root / "ckpt" / f"net-1_{step}.ckpt", content if content is not None else ckpt(1, step))


def answers(kind: type[A], answer: FindAnswer) -> A:
    """``answer``, which is of ``kind``."""
    assert isinstance(answer, kind), answer
    return answer


def point_of(answer: FindAnswer) -> RecoveryPoint | None:
    return answers(RecoveryPointChosen, answer).point


def step_of(answer: FindAnswer) -> int | None:
    point = point_of(answer)
    return None if point is None else point.global_step
