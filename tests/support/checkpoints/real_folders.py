"""Writes series of checkpoints below DIR as the real libraries do: ``python -W ignore real_folders.py DIR``.

A program of its own, run alone or by two ranks: these libraries take seconds to import and leave
settings behind.
"""

import os
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from accelerate.utils import (
    FullyShardedDataParallelPlugin,
    ProjectConfiguration,
    save_fsdp_model,
    save_fsdp_optimizer,
)
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

WORLD = int(os.environ.get("WORLD_SIZE", "1"))
STEPS, EVERY = 6, 2


class Sentences(Dataset):  # type: ignore[misc]  # torch has no types here
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.arange(8) + index % 5
        return {"input_ids": words, "labels": words}


def gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=16, n_positions=8, n_embd=8, n_layer=2, n_head=1, bos_token_id=0, eos_token_id=0
        )
    )


def trainer(root: Path, **more: Any) -> None:
    args = TrainingArguments(
        output_dir=str(root),
        max_steps=STEPS,
        save_steps=EVERY,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **more,
    )
    one = Trainer(model=gpt2(), args=args, train_dataset=Sentences())
    one.train()
    if not more:
        one.save_model()
        one.save_state()


def sharded(root: Path) -> None:
    """As Trainer writes a model that is larger than a shard may be."""
    trainer(root)
    for folder in root.glob("checkpoint-*"):
        (folder / "model.safetensors").unlink()
        gpt2().save_pretrained(folder, max_shard_size="2KB")
        (folder / "trainer_state.json").touch()
    for path in [*root.glob("*.*")]:
        path.unlink()


class Progress:
    step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def small() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))


def accelerate(root: Path, *, registered: bool) -> None:
    project = ProjectConfiguration(project_dir=str(root), automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=project)
    optimizer = torch.optim.AdamW((model := small()).parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    loader = DataLoader(TensorDataset(torch.rand(64, 4)), batch_size=4, shuffle=True)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    progress = Progress()
    if registered:
        accelerator.register_for_checkpointing(progress)
    for (batch,) in loader:
        accelerator.backward(model(batch).sum())
        optimizer.step()
        schedule.step()
        progress.step += 1
        if progress.step % EVERY == 0:
            accelerator.save_state()
        if progress.step == STEPS:
            break


def accelerate_fsdp(root: Path, kind: str) -> None:
    """What ``save_state`` writes of an FSDP model; on CPU accelerate itself does not choose FSDP."""
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type=kind)
    for number in range(3):
        accelerator = Accelerator(cpu=True)
        model = fully_shard(small())
        optimizer = torch.optim.AdamW(model.parameters())
        accelerator.prepare(torch.optim.lr_scheduler.StepLR(optimizer, 10))
        for _ in range(EVERY * (number + 1)):
            model(torch.rand(4, 4)).sum().backward()
            optimizer.step()
        folder = str(root / f"checkpoint_{number}")
        Path(folder).mkdir(parents=True)
        save_fsdp_model(plugin, accelerator, model, folder)  # in the order of accelerate's own save_state
        save_fsdp_optimizer(plugin, accelerator, optimizer, model, folder)
        accelerator.save_state(folder)


class Net(lightning.LightningModule):  # type: ignore[misc]  # as above
    def __init__(self) -> None:
        super().__init__()
        self.net = small()

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:
        loss: torch.Tensor = self.net(batch[0]).sum()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


class Sharded(Net):
    def configure_model(self) -> None:
        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])


def lightning_folder(root: Path, module: type[Net], **more: Any) -> None:
    keep = ModelCheckpoint(dirpath=str(root), every_n_train_steps=EVERY, save_top_k=-1, save_last=True)
    one = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", callbacks=[keep], logger=False, enable_progress_bar=False,
        enable_model_summary=False, devices=WORLD, **more,
    )  # fmt: skip
    one.fit(module(), DataLoader(TensorDataset(torch.rand(16 * WORLD, 4)), batch_size=4))


def torch_dcp(root: Path) -> None:
    """FSDP2 with its optimizer; the last one as torchtitan writes it, the model alone."""
    model = fully_shard(small())
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(1, STEPS + 1):
        model(torch.rand(4, 4)).sum().backward()
        optimizer.step()
        if step % EVERY == 0:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments, "train_state": {"step": torch.tensor(step)}}
            dcp.async_save(state, checkpoint_id=root / f"step-{step}").result()
    dcp.save(weights, checkpoint_id=root / f"step-{STEPS + EVERY}")


def hugging_face_storage(root: Path) -> None:
    flat = {"model.w": torch.rand(4, 4), "model.b": torch.rand(4)}
    order = {"model.w": 1, "model.b": 2}
    for step in (2, 4, 6):
        dcp.save(flat, storage_writer=HuggingFaceStorageWriter(str(root / f"step-{step}"), order))
    for step in (2, 4, 6):
        writer = HuggingFaceStorageWriter(str(root / f"apart/step-{step}"), order, save_distributed=True)
        dcp.save(flat, storage_writer=writer)


def main(root: Path) -> None:
    if WORLD > 1:
        trainer(root / "trainer_ranks")
        accelerate(root / "accelerate_ranks", registered=False)
        strategy = ModelParallelStrategy(data_parallel_size=WORLD, tensor_parallel_size=1)
        lightning_folder(root / "lightning_sharded", Sharded, strategy=strategy)
        torch_dcp(root / "dcp_ranks")
        return
    trainer(root / "trainer")
    sharded(root / "trainer_sharded")
    trainer(root / "trainer_model_only", save_only_model=True)
    lightning_folder(root / "lightning", Net)
    accelerate(root / "accelerate", registered=False)
    accelerate(root / "accelerate_registered", registered=True)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    accelerate_fsdp(root / "accelerate_fsdp", "SHARDED_STATE_DICT")
    accelerate_fsdp(root / "accelerate_fsdp_full", "FULL_STATE_DICT")
    torch_dcp(root / "dcp")
    hugging_face_storage(root / "hf_storage")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # threads that torch leaves may abort an interpreter that ends; everything is written
