"""A training of Lightning's goes on from wherever it was saved, and no number of it is another one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from faultrun.sdk.session import ResumePoint, Session
from faultrun.sdk.torch.state.trees import same
from faultrun.sdk.worker.worker import Worker
from sdk.support.lightning_plans import BATCHES, Job

if TYPE_CHECKING:
    from sdk.support.lightning_job import Trained

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Lightning uses what torch and Python will not have any more
]


def _by_steps(**options: Any) -> Job:
    return Job(options={"max_steps": 3 * BATCHES, **options})


JOBS = {
    "epochs": Job(),
    "validation twice an epoch": Job(options={"max_epochs": 3, "val_check_interval": 0.5}),
    "accumulated": Job(options={"max_epochs": 3, "accumulate_grad_batches": 2}),
    "two optimizers": Job(net="adversaries"),
    "no length": Job(loader="stream"),
    "own sampler": Job(loader="own"),
    "no validation, steps": _by_steps(limit_val_batches=0),
}
PLACES = [
    ("on_train_batch_start", 4),
    ("on_train_batch_start", 7),
    ("on_train_batch_end", 4),
    ("on_train_batch_end", 6),
    ("on_validation_start", 1),
    ("on_validation_start", 2),
    ("on_validation_end", 2),
    ("on_train_epoch_end", 1),
    ("on_train_epoch_start", 2),
]


def train(job: Job, directory: Path, **how: Any) -> "Trained":
    """Lightning is imported here: it takes seconds, in every process that collects this file."""
    from sdk.support import lightning_job

    return lightning_job.train(job, directory, **how)


class Undisturbed:
    """What each training is like from its beginning to its end; trained once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, Trained] = {}

    def __call__(self, name: str) -> "Trained":
        if name not in self._known:
            self._known[name] = train(JOBS[name], self._directory / name)
        return self._known[name]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
@pytest.mark.parametrize("name", JOBS)
def test_from_any_place_that_is_saved_training_ends_as_if_undisturbed(
    tmp_path: Path, undisturbed: Undisturbed, name: str, place: tuple[str, int]
) -> None:
    job, whole = JOBS[name], undisturbed(name)
    if place[0].startswith("on_validation") and "limit_val_batches" in job.options:
        return
    first = train(job, tmp_path / "a", ask=place)
    second = train(job, tmp_path / "b", resume=first.path)
    seen = first.seen[: len(whole.seen) - len(second.seen)] + second.seen
    assert seen == whole.seen
    assert same(second.end, whole.end)
    assert (second.logged, second.told) == (whole.logged, whole.told)


@pytest.mark.parametrize("kind", ["gasp", "checkpoint"])
def test_what_only_the_optimizer_has_comes_back(tmp_path: Path, kind: str) -> None:
    job = Job(net="outside")
    whole = train(job, tmp_path / "whole")
    if kind == "gasp":
        path = train(job, tmp_path / "a", ask=("on_train_batch_end", 4)).path
    else:
        train(job, tmp_path / "a", saves={"every_n_train_steps": 4})
        path = str(min((tmp_path / "a" / "periodic").glob("*.ckpt"), key=lambda one: one.stat().st_mtime))
    second = train(job, tmp_path / "b", resume=path)
    assert len(second.seen) == len(whole.seen) - 4
    assert same(second.end, whole.end)


@pytest.mark.parametrize("giver", [0, 1])
def test_a_rank_that_goes_on_with_the_averages_of_another_is_told_so(
    tmp_path: Path, giver: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(train(JOBS["epochs"], tmp_path / "a", ask=("on_train_batch_end", 4)).path)
    checkpoint = torch.load(path, weights_only=False)
    checkpoint["callbacks"]["DyingGasp"]["rank"] = giver
    torch.save(checkpoint, path)
    train(JOBS["epochs"], tmp_path / "b", resume=str(path))
    assert (f"those of rank {giver}, which saved" in capsys.readouterr().err) is bool(giver)


@pytest.mark.parametrize("turn", [2, BATCHES + 2])
def test_epochs_after_a_resume_are_those_of_loader_processes_that_were_kept(
    tmp_path: Path, turn: int
) -> None:
    """They were made in the first epoch, and the order of all others follows from fewer random numbers."""
    job = Job(loader="kept")
    whole = train(job, tmp_path / "whole")
    first = train(job, tmp_path / "a", ask=("on_train_batch_end", turn))
    second = train(job, tmp_path / "b", resume=first.path)
    assert first.seen[: len(whole.seen) - len(second.seen)] + second.seen == whole.seen
    assert same(second.end, whole.end)


@pytest.mark.parametrize(
    ("name", "saves"),
    [
        ("validation twice an epoch", {"every_n_train_steps": 3}),
        ("no validation, steps", {"every_n_train_steps": 2}),
        ("epochs", {}),
    ],
)
def test_from_what_model_checkpoint_saves_training_ends_as_if_undisturbed(
    tmp_path: Path, undisturbed: Undisturbed, name: str, saves: dict[str, Any]
) -> None:
    whole = undisturbed(name)
    train(JOBS[name], tmp_path / "a", saves=saves)
    files = sorted((tmp_path / "a" / "periodic").glob("*.ckpt"))
    assert len(files) >= 3
    for file in files:
        second = train(JOBS[name], tmp_path / file.stem, resume=str(file))
        assert second.seen == whole.seen[len(whole.seen) - len(second.seen) :]
        if not second.seen:  # there was nothing left to do, and nothing was drawn
            second.end["rng"] = whole.end["rng"]
        assert same(second.end, whole.end), file


def test_a_fit_that_has_nothing_left_to_train_uses_the_point_up(tmp_path: Path) -> None:
    job, saves = Job(options={"max_steps": 4}), {"every_n_train_steps": 4}
    train(job, tmp_path / "a", saves=saves)
    last = max((tmp_path / "a" / "periodic").glob("*.ckpt"), key=lambda one: one.stat().st_mtime)
    point = ResumePoint(path=str(last), step=None, epoch=None, reason="fault", incarnation=1)
    worker = Worker(Session(point=point))
    again = train(job, tmp_path / "a", resume=str(last), saves=saves, worker=worker)
    assert not again.seen
    assert worker.stages.is_used_up()
