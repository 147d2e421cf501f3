"""Where ranks meet behind the last update of a step, what each step does there tells whether one is whole."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from faultrun.sdk.torch.provider import GaspFile, TorchProvider  # noqa: E402
from faultrun.sdk.worker.state_provider import SaveOrder  # noqa: E402
from sdk.support.protected import protected  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("group_of_one")]


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("bias", torch.zeros(2))
        self.register_buffer("put", torch.zeros(2))


class Job:
    """``behind`` is what each step does behind its last meeting."""

    def __init__(self, directory: Path, behind: Callable[["Job"], object]) -> None:
        self.net = Net()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        self.guard = protected(directory, self.optimizer, net=self.net)
        self.behind = behind
        self.guard.training.begin_here()

    def step(self, *, only_to_its_meeting: bool = False) -> None:
        self.net.layer(torch.ones(1, 3)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.meet()
        if not only_to_its_meeting:
            self.behind(self)
            self.guard.step()

    def meet(self) -> None:
        dist.all_reduce(torch.ones(1))

    @property
    def is_whole(self) -> bool:
        return self.guard.training.whole_now() is not None


def shrink(job: Job) -> None:
    with job.guard.updating(), torch.no_grad():
        job.net.layer.weight.mul_(0.9)


def put(job: Job) -> None:
    job.net.put = job.net.put + 1


WRITES: dict[str, Callable[[Job], object]] = {
    "a buffer in place": lambda job: job.net.bias.add_(1),
    "a buffer anew": put,
    "parameters": shrink,
    "random numbers": lambda _: torch.rand(1),
}


@pytest.mark.parametrize("writes", WRITES)
def test_a_step_lacks_what_every_step_before_wrote_behind_its_last_meeting(
    tmp_path: Path, writes: str
) -> None:
    job = Job(tmp_path, WRITES[writes])
    for _ in range(4):
        job.step()
    job.step(only_to_its_meeting=True)
    assert not job.is_whole
    job.behind(job)
    assert job.is_whole or writes == "random numbers"
    assert job.guard.training.under_way.keeps_copies  # a copy of each last step is kept


def test_an_evaluation_that_has_set_a_learning_rate_or_a_seed_is_no_end_of_a_step(tmp_path: Path) -> None:
    job = Job(tmp_path, lambda _: None)
    for _ in range(4):
        job.step()
    job.step(only_to_its_meeting=True)
    assert job.is_whole
    assert not job.guard.training.under_way.keeps_copies
    numbers = torch.get_rng_state()
    torch.manual_seed(7)
    assert [job.is_whole] == [False]
    torch.set_rng_state(numbers)
    job.optimizer.param_groups[0]["lr"] = 0.0
    assert [job.is_whole] == [False]
    job.optimizer.param_groups[0]["lr"] = 0.1
    assert job.is_whole


def test_a_step_is_no_guess_where_parameters_follow_that_nobody_counts(tmp_path: Path) -> None:
    def average(job: Job) -> None:
        for one in job.net.parameters():
            one.data = one.data / 2

    job = Job(tmp_path, average)
    for _ in range(3):
        job.step()
    job.step(only_to_its_meeting=True)
    assert not job.is_whole
    assert job.guard.training.under_way.keeps_copies


@pytest.mark.parametrize("follows", ["a learning rate", "nothing"])
def test_steps_that_meet_now_and_then_have_copies_until_it_is_known_that_nothing_follows(
    tmp_path: Path, follows: str
) -> None:
    job = Job(tmp_path, lambda _: None)
    under_way, keeps = job.guard.training.under_way, []

    def seldom() -> None:
        if (job.guard.global_step + 1) % 3 == 0:
            Job.meet(job)
            job.optimizer.param_groups[0]["lr"] *= 0.9 if follows != "nothing" else 1

    job.meet = seldom  # type: ignore[method-assign]
    for _ in range(6):
        job.step()
        keeps.append(under_way.keeps_copies)
    assert keeps == [False, False, True, True, True, follows != "nothing"]


def test_a_main_thread_that_computes_behind_an_update_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path, lambda _: None)
    job.step()
    job.meet = lambda: None  # type: ignore[method-assign]
    job.step(only_to_its_meeting=True)
    provider, saved = TorchProvider(job.guard.training, GaspFile(job.guard.training)), []
    until_s = time.monotonic() + 60
    helper = threading.Thread(
        target=lambda: saved.append(provider.save(SaveOrder(until_s=until_s))), daemon=True
    )
    helper.start()
    while not job.guard.training.lock.is_wanted:
        assert time.monotonic() < until_s
    assert not provider._updated_and_whole(SaveOrder(until_s=until_s))
    job.net.bias.add_(1)
    job.guard.step()
    helper.join()
    assert torch.load(saved[0].path, weights_only=True)["model"]["bias"].tolist() == [1, 1]
    job.step(only_to_its_meeting=True)
    late = provider.save(SaveOrder(until_s=time.monotonic() + 3))
    assert late.path != saved[0].path
    assert "took too long, and is lost" in capsys.readouterr().err
    job.guard.step()
    job.step(only_to_its_meeting=True)
    job.guard.training.lock.stop()
    provider.save(SaveOrder(until_s=until_s))
    assert "step 4 is saved before the script has ended it" in capsys.readouterr().err
