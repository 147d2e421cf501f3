"""``sdk.transformers.DyingGasp`` in one process: every moment of Trainer's loop at which it may be asked."""

import importlib
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from torch import nn
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    MixtralConfig,
    MixtralForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from faultrun.errors import FaultrunError
from faultrun.sdk import transformers as ours
from faultrun.sdk.session import ResumePoint, Session
from faultrun.sdk.transformers.trainer_changes import refuse_sharded
from faultrun.sdk.worker.save_files import Saved
from faultrun.sdk.worker.state_provider import SaveOrder
from faultrun.sdk.worker.worker import Worker

pytestmark = [pytest.mark.torch, pytest.mark.slow]

STEPS = 17


@pytest.fixture(autouse=True)
def sigterm_is_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, before)


class Net(nn.Module):  # type: ignore[misc]
    """Random numbers, a buffer that the forward pass changes, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        out = self.layers(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


class Asks(TrainerCallback):  # type: ignore[misc]
    """Has the helper's work done in the middle of the main thread's, once."""

    def __init__(self, worker: Worker, event: str, step: int) -> None:
        self.saved: Saved | None = None

        def asked(_args: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step >= step and self.saved is None:
                thread = threading.Thread(target=self._save, args=(worker,))
                thread.start()
                thread.join()

        setattr(self, event, asked)

    def _save(self, worker: Worker) -> None:
        provider = worker._helper.provider
        assert provider is not None
        self.saved = provider.save(SaveOrder(until_s=time.monotonic() + 20))


def training(directory: Path, worker: Worker | None, *callbacks: Any, **options: Any) -> Any:
    torch.manual_seed(3)
    x = torch.arange(38, dtype=torch.float32).reshape(-1, 1) / 38
    data = [{"x": one, "labels": one * one} for one in x]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("faultrun.sdk.transformers.callback.worker", lambda: worker)
        gasp = ours.DyingGasp()
    args = TrainingArguments(
        output_dir=str(directory),
        max_steps=options.pop("max_steps", STEPS),
        per_device_train_batch_size=4,
        save_strategy=options.pop("save_strategy", "no"),
        logging_steps=options.pop("logging_steps", 3),
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        **options,
    )
    return Trainer(Net(), args, train_dataset=data, eval_dataset=data[:9], callbacks=[gasp, *callbacks])


def weights(trainer: Any) -> list[float]:
    return [value for one in trainer.model.state_dict().values() for value in one.reshape(-1).tolist()]


EVALUATING: dict[str, Any] = {
    "eval_strategy": "steps",
    "eval_steps": 3,
    "lr_scheduler_type": "reduce_lr_on_plateau",
    "lr_scheduler_kwargs": {"patience": 0, "threshold": 0.5},
    "metric_for_best_model": "loss",
    "save_strategy": "best",
}


@pytest.mark.parametrize(
    ("options", "event", "step"),
    [
        ({}, "on_step_end", 4),
        ({}, "on_step_begin", 6),
        ({}, "on_epoch_begin", 10),
        ({}, "on_step_end", 10),
        ({"gradient_accumulation_steps": 3}, "on_step_end", 2),
        ({"gradient_accumulation_steps": 3}, "on_substep_end", 4),
        ({"gradient_accumulation_steps": 3}, "on_step_end", 4),
        (EVALUATING, "on_step_begin", 6),
        (EVALUATING, "on_step_end", 5),
        ({"dataloader_drop_last": True, "lr_scheduler_type": "cosine", "logging_steps": 4}, "on_step_end", 9),
    ],
)
def test_whenever_it_is_asked_trainer_goes_on_from_the_folder_as_if_nothing_had_been(
    tmp_path: Path, options: dict[str, Any], event: str, step: int
) -> None:
    undisturbed = training(tmp_path / "a", None, **options)
    undisturbed.train()
    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, event, step)
    asked = training(tmp_path / "b", worker, asks, **options)
    asked.train()
    assert weights(asked) == weights(undisturbed), "saving changes nothing"
    assert asks.saved is not None
    assert asks.saved.path == f"{tmp_path}/b/_gasp/rank_0/checkpoint-{asks.saved.step}"
    resumed = training(tmp_path / "c", None, **options)
    resumed.train(resume_from_checkpoint=asks.saved.path)
    assert weights(resumed) == weights(undisturbed)
    assert resumed.state.best_metric == undisturbed.state.best_metric
    assert resumed.state.total_flos == undisturbed.state.total_flos
    # what is logged at the end are times, and the losses of this process alone
    steps = [one["step"] for one in resumed.state.log_history]
    assert steps == [one["step"] for one in undisturbed.state.log_history]


@pytest.mark.parametrize("giver", [0, 1])
def test_a_rank_that_goes_on_with_the_averages_of_another_is_told_so(
    tmp_path: Path, giver: int, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, "on_step_end", 15)
    training(tmp_path, worker, asks).train()
    assert asks.saved is not None
    folder = Path(asks.saved.path).parent.rename(tmp_path / "_gasp" / f"rank_{giver}")
    resumed = training(tmp_path, Worker(Session(run_id="r")))
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-15"))
    assert (f"those of rank {giver}, which saved" in capfd.readouterr().err) is bool(giver)


def sentences() -> list[dict[str, Any]]:
    """Of different lengths, which Trainer groups."""
    inputs = [torch.tensor([at / 38]) for at in range(38)]
    return [{"input_ids": [0] * (3 + at * 7 % 11), "x": x, "labels": x * x} for at, x in enumerate(inputs)]


def without_words(batch: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: torch.stack([one[name] for one in batch]) for name in ("x", "labels")}


@pytest.mark.parametrize("strategy", ["group_by_length", "random"])
@pytest.mark.parametrize("step", [4, 12, 14], ids=["first epoch", "second", "later in it"])
def test_an_order_that_was_drawn_from_global_numbers_goes_on(
    tmp_path: Path, strategy: str, step: int
) -> None:
    def job(name: str, worker: Worker, *callbacks: Any) -> Any:
        options: dict[str, Any] = {"train_sampling_strategy": strategy, "remove_unused_columns": False}
        made = training(tmp_path / name, worker, *callbacks, **options)
        made.train_dataset, made.data_collator = sentences(), without_words
        return made

    undisturbed = job("a", Worker(Session(run_id="r")))
    undisturbed.train()
    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, "on_step_end", step)
    job("b", worker, asks).train()
    assert asks.saved is not None
    resumed = job("b", Worker(Session(run_id="r")))
    resumed.train(resume_from_checkpoint=asks.saved.path)
    assert weights(resumed) == weights(undisturbed)


def test_the_files_are_those_that_trainer_itself_writes(tmp_path: Path) -> None:
    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, "on_save", 5)
    trainer = training(tmp_path, worker, asks, save_strategy="steps", save_steps=5, save_total_limit=2)
    trainer.train()
    assert asks.saved is not None
    own = tmp_path / "own"
    again = training(own, None, save_strategy="steps", save_steps=5)
    again.train()
    there = {path.name for path in Path(asks.saved.path).iterdir()}
    assert there == {"faultrun_state.pt"} | {
        name if name != "model.safetensors" else "pytorch_model.bin"
        for name in (path.name for path in (own / "checkpoint-5").iterdir())
    }
    theirs = json.loads((own / "checkpoint-5" / "trainer_state.json").read_text())
    written = json.loads(Path(asks.saved.path, "trainer_state.json").read_text())
    assert written.keys() == theirs.keys()
    assert [one["step"] for one in written["log_history"]] == [one["step"] for one in theirs["log_history"]]


class Pulled(torch.optim.SGD):  # type: ignore[misc]
    """Counts its steps, and pulls parameters to slow ones: both are attributes of its own."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.05)
        self.count = 0
        self.slow = [one.detach().clone() for one in self.param_groups[0]["params"]]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        self.count += 1
        for one, slow in zip(self.param_groups[0]["params"], self.slow, strict=True):
            one.lerp_(slow, 1 / self.count)
            slow.copy_(one)
        return loss


class Grows(nn.Module):  # type: ignore[misc]
    """Has a part that only the optimizer knows, and a buffer that has another shape with each step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 4)
        self.outside = [nn.Linear(4, 1)]
        self.register_buffer("seen", torch.zeros(0))
        self.seen: Any

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        self.outside[0].zero_grad()  # which Trainer does for the model alone
        out = self.outside[0](self.layer(x)) + self.seen.sum() / 100
        if self.training:
            self.seen = torch.cat([self.seen, out.detach().mean().reshape(1)])
        return {"loss": (out - labels).square().mean(), "logits": out}


def test_what_trainers_own_files_lack_lies_beside_them_and_comes_back(tmp_path: Path) -> None:
    def job(name: str, worker: Worker | None, *callbacks: Any) -> Any:
        trainer = training(tmp_path / name, worker, *callbacks)
        model = trainer.model = trainer.model_wrapped = Grows()
        trainer.optimizer = Pulled([*model.parameters(), *model.outside[0].parameters()])
        return trainer

    def all_of(trainer: Any) -> Any:
        outside = trainer.model.outside[0].weight.detach().tolist()
        return weights(trainer), outside, trainer.optimizer.optimizer.count

    undisturbed = job("a", None)
    undisturbed.train()
    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, "on_step_begin", 6)
    job("b", worker, asks).train()
    assert asks.saved is not None
    resumed = job("b", Worker(Session(run_id="r")))
    resumed.train(resume_from_checkpoint=asks.saved.path)
    assert all_of(resumed) == all_of(undisturbed)


def test_trainers_own_checkpoint_holds_the_rest_too(tmp_path: Path) -> None:
    def job(worker: Worker | None) -> Any:
        trainer = training(tmp_path, worker, save_strategy="steps", save_steps=5)
        trainer.optimizer = Pulled(trainer.model.parameters())
        return trainer

    first = job(Worker(Session(run_id="r")))
    first.train()
    resumed = job(Worker(Session(run_id="r")))
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert weights(resumed) == weights(first)
    assert resumed.optimizer.optimizer.count == first.optimizer.optimizer.count == STEPS


def words(model: Any, directory: Path, worker: Worker, *callbacks: Any) -> Any:
    """A training of a small language model."""
    ids = torch.arange(320).reshape(40, 8) % 31
    trainer = training(directory, worker, *callbacks, save_strategy="steps", save_steps=5)
    trainer.model = trainer.model_wrapped = model
    trainer.train_dataset = [{"input_ids": one, "labels": one} for one in ids]
    return trainer


@pytest.mark.parametrize("own", [False, True], ids=["gasp", "checkpoint"])
def test_a_mixture_of_experts_goes_on_with_its_own_experts(tmp_path: Path, own: bool) -> None:
    sizes = dict.fromkeys(("hidden_size", "intermediate_size"), 8)
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1}

    def job(worker: Worker, *callbacks: Any) -> Any:
        config = MixtralConfig(vocab_size=32, num_local_experts=2, **sizes, **heads)
        return words(MixtralForCausalLM(config), tmp_path, worker, *callbacks)

    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, "on_step_begin", 10)
    first = job(worker, asks)
    first.train()
    assert asks.saved is not None
    path = str(tmp_path / "checkpoint-10") if own else asks.saved.path
    point = ResumePoint(path=path, step=10, epoch=None, reason="fault", incarnation=1)
    resumed = job(Worker(Session(run_id="r", point=point)))
    resumed.train(resume_from_checkpoint=path)
    assert weights(resumed) == weights(first)


def test_a_model_that_its_class_refuses_to_save_is_saved_for_trainer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=8, n_layer=1, n_head=2, n_positions=8))
    model.generation_config.num_return_sequences = 4
    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, "on_step_end", 3)
    trainer = words(model, tmp_path, worker, asks)
    trainer.args.save_strategy = "no"
    trainer.args.max_steps = 4
    trainer.train()
    assert "gasps serve Trainer only, and no from_pretrained: ValueError" in capfd.readouterr().err
    assert asks.saved is not None
    assert Path(asks.saved.path, "pytorch_model.bin").is_file()


class Averages(TrainerCallback):  # type: ignore[misc]
    """Keeps averages of the first layer in the last one's weights."""

    def on_step_end(self, _args: Any, _state: Any, _control: Any, model: Any = None, **_: Any) -> None:
        with torch.no_grad():
            model.layers[3].weight.lerp_(model.layers[0].weight.T, 0.1)


def test_what_a_callback_behind_changes_as_a_step_ends_belongs_to_it(tmp_path: Path) -> None:
    undisturbed = training(tmp_path / "a", None, Averages())
    undisturbed.train()
    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, "on_log", 6)
    training(tmp_path / "b", worker, Averages(), asks).train()
    assert asks.saved is not None
    assert asks.saved.step == 6
    resumed = training(tmp_path / "b", Worker(Session(run_id="r")), Averages())
    resumed.train(resume_from_checkpoint=asks.saved.path)
    assert weights(resumed) == weights(undisturbed)


class Remembers(Averages):
    """Has averages and a count of its own, and says nothing of them."""

    def __init__(self) -> None:
        self.steps, self.shadow, self.name = 0, torch.zeros(8), "shadow"

    def on_step_end(self, _args: Any, _state: Any, _control: Any, model: Any = None, **_: Any) -> None:
        self.steps += 1
        self.shadow.lerp_(model.layers[0].bias.detach(), 0.5)


def test_what_a_callback_keeps_from_step_to_step_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    training(tmp_path, Worker(Session(run_id="r")), Remembers(), max_steps=4).train()
    heard = capfd.readouterr().err
    assert "what is not saved (Remembers.steps, Remembers.shadow), and begin anew after a fault" in heard


@pytest.mark.parametrize("step", [3, 6], ids=["first evaluation", "second"])
def test_weights_that_are_swapped_for_an_evaluation_are_saved_as_they_were(tmp_path: Path, step: int) -> None:
    def job(name: str, worker: Worker | None, *callbacks: Any) -> Any:
        trainer = training(tmp_path / name, worker, *callbacks, eval_strategy="steps", eval_steps=3)
        evaluate = trainer.evaluate

        def swapped(*args: Any, **kwargs: Any) -> Any:
            kept = [one.detach().clone() for one in trainer.model.parameters()]
            for one in trainer.model.parameters():
                one.data.mul_(0.5)
            metrics = evaluate(*args, **kwargs)
            for one, then in zip(trainer.model.parameters(), kept, strict=True):
                one.data.copy_(then)
            return metrics

        trainer.evaluate = swapped
        return trainer

    undisturbed = job("a", None)
    undisturbed.train()
    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, "on_prediction_step", step)
    first = job("b", worker, asks)
    first.train()
    assert weights(first) == weights(undisturbed)
    assert asks.saved is not None
    assert asks.saved.step == step
    resumed = job("b", Worker(Session(run_id="r")))
    resumed.train(resume_from_checkpoint=asks.saved.path)
    assert weights(resumed) == weights(undisturbed)


def test_trainers_own_search_and_rotation_do_not_see_the_gasps(tmp_path: Path) -> None:
    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, "on_step_end", 13)
    training(tmp_path, worker, asks, save_strategy="steps", save_steps=5, save_total_limit=1).train()
    assert asks.saved is not None
    assert Path(asks.saved.path).is_dir()
    find = importlib.import_module("transformers.trainer_utils").get_last_checkpoint
    assert find(str(tmp_path)) == str(tmp_path / f"checkpoint-{STEPS}")
    shutil.rmtree(tmp_path / f"checkpoint-{STEPS}")
    assert find(str(tmp_path)) is None


def test_the_patience_of_early_stopping_is_kept(tmp_path: Path) -> None:
    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, "on_step_begin", 7)
    options = {**EVALUATING, "load_best_model_at_end": True, "greater_is_better": True}
    stops = EarlyStoppingCallback(early_stopping_patience=9)
    training(tmp_path, worker, stops, asks, **options).train()
    assert asks.saved is not None
    told = json.loads(Path(asks.saved.path, "trainer_state.json").read_text())
    counted = told["stateful_callbacks"]["EarlyStoppingCallback"]["attributes"][
        "early_stopping_patience_counter"
    ]
    assert counted == 1, "the second evaluation was no better: the loss had fallen"


@pytest.mark.parametrize(("event", "step"), [("on_step_begin", 7), ("on_train_end", 1)])
def test_an_early_stop_comes_where_it_came_and_is_an_end(tmp_path: Path, event: str, step: int) -> None:
    def job(worker: Worker, *callbacks: Any) -> Any:
        stops = EarlyStoppingCallback(early_stopping_patience=2)
        return training(tmp_path, worker, stops, *callbacks, **EVALUATING, greater_is_better=True)

    worker = Worker(Session(run_id="r"))
    asks = Asks(worker, event, step)
    first = job(worker, asks)
    first.train()
    assert asks.saved is not None
    point = ResumePoint(path=asks.saved.path, step=None, epoch=None, reason="fault", incarnation=1)
    resumed = job(Worker(Session(run_id="r", point=point)))
    resumed.train(resume_from_checkpoint=asks.saved.path)
    assert resumed.state.global_step == first.state.global_step < STEPS


def test_what_cannot_be_saved_by_one_rank_is_refused_as_training_begins(tmp_path: Path) -> None:
    trainer = training(tmp_path, Worker(Session(run_id="r")))
    trainer.is_fsdp_enabled = True
    with pytest.raises(FaultrunError) as refused:
        refuse_sharded(trainer)
    assert "with FSDP each rank holds a part" in str(refused.value.because)


def test_trainers_own_save_on_sigterm_is_put_aside(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    worker = Worker(Session(run_id="r"))
    trainer = training(tmp_path, worker, enable_jit_checkpoint=True)
    trainer.train()
    assert "enable_jit_checkpoint is put aside" in capfd.readouterr().err
    assert worker._helper.pipe._previous == before
    handler: Callable[..., Any] | int | None = signal.getsignal(signal.SIGTERM)
    assert handler == worker._helper.pipe._on_sigterm, "it stays so when training is over"


def test_without_faultrun_nothing_is_made_and_there_is_no_checkpoint(tmp_path: Path) -> None:
    trainer = training(tmp_path, None)
    trainer.train()
    assert not (tmp_path / "_gasp").exists()
    (gasp,) = [one for one in trainer.callback_handler.callbacks if isinstance(one, ours.DyingGasp)]
    assert gasp.checkpoint is None
