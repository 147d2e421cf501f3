"""The card of a Trainer script that fails: its own exception and line, with ``record`` and without."""

import json

import pytest

from support.machine.installed import need
from support.runs import Launcher

pytestmark = [pytest.mark.slow, pytest.mark.torch]

SCRIPT = """
import torch
from torch.distributed.elastic.multiprocessing.errors import record
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
torch.set_num_threads(1)
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, at):
        return {{"input_ids": torch.zeros(8, dtype=torch.long), "labels": torch.zeros(8, dtype=torch.long)}}
class Fails(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        try:
            import package_that_nobody_has
        except ImportError:
            raise KeyError("fused_adam")
{decorator}
def main():
    net = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    args = TrainingArguments(output_dir="out", max_steps=3, use_cpu=True, report_to=[], disable_tqdm=True)
    Trainer(model=net, args=args, train_dataset=Data(), callbacks=[Fails()]).train()
main()
"""


@pytest.mark.parametrize("decorator", ["@record", ""])
def test_the_card_has_the_scripts_own_exception_and_line(launcher: Launcher, decorator: str) -> None:
    need("transformers")
    code = SCRIPT.format(decorator=decorator)
    (launcher.folder / "train.py").write_text(code)
    run = launcher.command(
        *("--framework=torch", "--worker_num=1", "--standby=none", "--max_restarts=0", "train.py")
    )
    assert run.ends(within_s=240) == 1
    line = code.splitlines().index('            raise KeyError("fused_adam")') + 1
    assert f"KeyError: 'fused_adam' (train.py:{line} in on_step_end)" in run.card(1)
    note = run.log_dir / "incarnation_0" / "error_0.json"
    assert note.exists() == bool(decorator)
    if decorator:
        assert "fused_adam" in json.loads(note.read_text())["message"]["message"]
