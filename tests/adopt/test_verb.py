"""``faultrun adopt`` as a person uses it: what is written, what is never written, errors and exit codes."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.errors import FaultrunError
from support.adopting import adopted, asked, refused, written
from support.machine.scripts import faultrun

COMMAND = "torchrun --nproc-per-node=2 train.py"
LOOP = '''"""A toy."""
import torch
from torch import nn
from torch.utils.data import DataLoader


def main():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    loader = DataLoader([(torch.ones(3), torch.ones(1))] * 8)
    for epoch in range(2):
        for i, (x, y) in enumerate(loader):
            loss = ((model(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()


main()'''


def test_the_file_says_where_each_value_was_read(tmp_path: Path) -> None:
    written(tmp_path, train__py="import torch\ntorch.save({}, 'ckpt/a.pt')\ntorch.load('ckpt/a.pt')\n")
    assert asked(tmp_path, COMMAND).return_value == 0
    text = (tmp_path / "faultrun.yaml").read_text()
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert rows == ["worker_num: 2         # torchrun --nproc_per_node", "checkpoint_dir: ckpt  # train.py:2"]


def test_a_file_that_is_there_is_never_written_over_without_force(tmp_path: Path) -> None:
    written(tmp_path, train__py="print(1)\n", faultrun__yaml="worker_num: 7\n")
    told = asked(tmp_path, COMMAND)
    assert isinstance(told.exception, FaultrunError)
    assert told.exception.exit_code == 64
    assert "-worker_num: 7" in told.stdout
    assert "+worker_num: 2" in told.stdout
    assert (tmp_path / "faultrun.yaml").read_text() == "worker_num: 7\n"
    assert "written over the one before" in asked(tmp_path, "--force", COMMAND).stdout
    assert "already so" in asked(tmp_path, COMMAND).stdout


@pytest.mark.long
def test_the_file_is_written_beside_the_script_and_used_from_there(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    written(tmp_path / "src", train__py="print(1)\n")
    found = adopted(tmp_path, "torchrun --nproc-per-node=3 src/train.py")
    assert found["config"] == str(tmp_path / "src" / "faultrun.yaml")
    assert found["command"] == ["faultrun", "src/train.py"]
    told = faultrun("--dry-run", "src/train.py", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "options from src/faultrun.yaml: worker_num" in told.stderr


@pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-p1", "--input"]])
def test_the_diff_is_one_that_git_and_patch_take(tmp_path: Path, tool: list[str]) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"no {tool[0]} here")
    written(tmp_path, train__py=LOOP, other__py=LOOP)
    told = asked(tmp_path, "--diff", COMMAND)
    assert told.exception is None
    assert "from now on:" in told.stderr
    assert told.stdout.startswith("--- a/train.py\n+++ b/train.py\n")
    (tmp_path / "x.patch").write_text(told.stdout)
    done = subprocess.run([*tool, "x.patch"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    by_tool = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "train.py").chmod(0o751)
    assert asked(tmp_path, "--apply", "--force", COMMAND).exception is None
    assert (tmp_path / "train.py").read_text() == by_tool
    assert stat.S_IMODE((tmp_path / "train.py").stat().st_mode) == 0o751
    compile(by_tool, "train.py", "exec")
    for line in (
        'guard = sdk.torch.protect(model, optimizer, directory="checkpoints", objects={"scheduler":',
        "for epoch in range(guard.epoch, 2):",
        "for i, (x, y) in enumerate(guard.batches(loader, epoch)):",
        "            scheduler.step()\n            guard.step()\n",
    ):
        assert line in by_tool
    assert "checkpoint_dir: checkpoints" in (tmp_path / "faultrun.yaml").read_text()


def test_without_apply_the_script_is_not_touched(tmp_path: Path) -> None:
    written(tmp_path, train__py=LOOP)
    before = (tmp_path / "train.py").stat()
    asked(tmp_path, "--diff", COMMAND)
    asked(tmp_path, "--force", "--json", COMMAND)
    assert (tmp_path / "train.py").read_text() == LOOP
    assert (tmp_path / "train.py").stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        (
            "from transformers import Trainer\nt = Trainer(\n    model,\n    callbacks=[a],\n)\nt.train()\n",
            ["t.add_callback(gasp)", "t.train(resume_from_checkpoint=gasp.checkpoint)"],
        ),
        (
            "from transformers import Trainer\nt = Trainer(m)\n"
            "t.train(resume_from_checkpoint=a if b else c)\n",
            ["t.train(resume_from_checkpoint=gasp.checkpoint or (a if b else c))"],
        ),
        (
            "import lightning as L\nt = L.Trainer(\n    max_steps=3,\n    callbacks=[a, b],\n)\n"
            "t.fit(m, d)\n",
            ["    callbacks=[gasp, a, b],", "t.fit(m, d, ckpt_path=gasp.ckpt_path)"],
        ),
        (
            "import lightning as L\nt = L.Trainer(\n    max_steps=3,\n)\nt.fit(m, ckpt_path=x)\n",
            ["    max_steps=3, callbacks=[gasp]", "t.fit(m, ckpt_path=gasp.ckpt_path or x)"],
        ),
        (
            "import mindspore as ms\nfrom mindspore.train import ModelCheckpoint\n"
            "c = ModelCheckpoint(prefix='n', directory='ckpt')\nmodel.train(3, data, callbacks=[c])\n",
            [
                'gasp = sdk.mindspore.DyingGasp(prefix="gasp", directory=f"ckpt/rank_{get_rank()}")',
                "model.train(3, data, callbacks=[c, gasp])",
                "from mindspore.communication import get_rank",
            ],
        ),
        (
            "from accelerate import Accelerator\nacc = Accelerator()\nopt = torch.optim.SGD(m.parameters())\n"
            "for e in range(3):\n    for b in tqdm(data):\n        opt.step()\n",
            [
                'guard = sdk.accelerate.protect(acc, directory="checkpoints")',
                "for b in tqdm(guard.batches(data, e)):",
                "        guard.step()",
            ],
        ),
    ],
)
def test_the_lines_of_each_training_code(tmp_path: Path, script: str, lines: list[str]) -> None:
    written(tmp_path, train__py=script)
    assert asked(tmp_path, "--apply", COMMAND).exception is None
    text = (tmp_path / "train.py").read_text()
    compile(text, "train.py", "exec")
    assert "from faultrun import sdk\n" in text
    for line in lines:
        assert line in text, text


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import torch\nprint(1)\n", "no `for epoch in range(...)`"),
        ("import torch\nfrom faultrun import sdk\nsdk.step(1)\n", "uses faultrun.sdk already"),
        ("import torch\ntorch.load('a/b.pt')\n", "loads checkpoints of its own"),
        ("import torch\ndef (\n", "is not here, or no Python"),
        ("from transformers import Trainer\nrun(Trainer(m))\n", "where a Trainer is made"),
    ],
)
def test_where_no_line_can_be_placed_the_reason_is_said(tmp_path: Path, script: str, why: str) -> None:
    written(tmp_path, train__py=script)
    found = adopted(tmp_path, "--apply", COMMAND)
    assert why in found["why_no_lines"]
    assert (tmp_path / "train.py").read_text() == script


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("",),
        ("  ",),
        ("missing.py",),
        (".",),
        ("torchrun",),
        ("torchrun --nproc-per-node=2",),
        ("torchrun --no-such-option=2 train.py",),
        ("make train",),
        ("'torchrun",),
        ("x" * 9000,),
        ("torchrun train.py \x00",),
    ],
)
def test_what_cannot_be_adopted_is_an_error_of_three_lines(tmp_path: Path, words: tuple[str, ...]) -> None:
    written(tmp_path, train__py="print(1)\n")
    error = refused(tmp_path, *words)
    assert error.exit_code in (64, 78)
    assert not (tmp_path / "faultrun.yaml").exists()


WORDS = st.sampled_from(
    [
        *(
            "torchrun",
            "msrun",
            "accelerate",
            "launch",
            "deepspeed",
            "mpirun",
            "srun",
            "fabric",
            "run",
            "python",
        ),
        *("-m", "-n", "-np", "2", "--nproc-per-node=2", "--nnodes", "--", "-", "=", "train.py", "x", "$X"),
        *(
            "${Y:-2}",
            "$(dirname $0)",
            "&&",
            ";",
            "|",
            "(",
            ")",
            "'",
            '"',
            "\\",
            "\n",
            "cd",
            "..",
            "A=1",
            "A=(",
            "for",
        ),
        *(
            "do",
            "done",
            "bash",
            "-c",
            "env",
            "uv",
            "--config_file",
            "bad.yaml",
            "#SBATCH --nodes=1",
            "\x00",
            "é",
        ),
    ]
)


@settings(max_examples=120)
@given(words=st.lists(WORDS, max_size=12))
def test_whatever_is_typed_there_is_an_answer_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"typed{os.getpid()}"
    folder.mkdir(exist_ok=True)
    written(folder, train__py="import torch\ntorch.save(1, 'a/b')\n", bad__yaml="a: [")
    _answered(folder, " ".join(words))


@settings(max_examples=80)
@given(
    name=st.sampled_from(["job.yaml", "run.sh", "Dockerfile", "job.sbatch", "train.py", "data.json"]),
    content=st.one_of(
        st.binary(max_size=200), st.lists(WORDS, max_size=30).map(lambda words: " ".join(words).encode())
    ),
)
def test_whatever_a_file_holds_there_is_an_answer_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"files{os.getpid()}"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    _answered(folder, name)
    (folder / name).unlink()


def _answered(folder: Path, *words: str) -> None:
    told = asked(folder, "--force", "--diff", "--", *words)
    error = told.exception
    if error is not None and not isinstance(error, FaultrunError):
        raise AssertionError(words) from error
    (folder / "faultrun.yaml").unlink(missing_ok=True)


@pytest.mark.long
def test_a_misspelt_option_is_refused_and_a_missing_place_is_said(tmp_path: Path) -> None:
    written(tmp_path, train__py="import torch\nprint(1)\n")
    told = faultrun("adopt", "--aply", COMMAND, cwd=tmp_path)
    assert told.returncode == 64
    assert "--apply" in told.stderr
    told = faultrun("adopt", "--diff", COMMAND, cwd=tmp_path)
    assert (told.returncode, told.stdout) == (0, "")
    assert "no lines of the SDK:\n  no `for epoch in range(...)`" in told.stderr
