"""What adopt takes from a script: imports, and names of options to ask about. It follows no value."""

import time
from pathlib import Path
from typing import Any

import pytest

from support.adopting import adopted, left_open, written

HEAD = "import argparse, os\nimport torch\np = argparse.ArgumentParser()\n"


def read(folder: Path, script: str, args: str = "", **files: str) -> dict[str, Any]:
    written(folder, train__py=HEAD + script, **files)
    return adopted(folder, f"torchrun --nproc-per-node=2 train.py {args}")


@pytest.mark.parametrize(
    "script",
    [
        "torch.save({}, 'ckpt/a.pt')\ntorch.load('ckpt/a.pt')\n",
        "import sys\nfolder = 'ckpt'\nexec(open(sys.argv[1]).read())\ntorch.save({}, folder + '/a.pt')\n",
        "train()\ntorch.save({}, 'ckpt/last.pt')\nif args.test:\n    torch.load('ckpt/last.pt')\n",
        "out = os.environ.get('OUT', 'ckpt')\ntorch.save({}, out + '/a.pt')\n",
        "from keras.callbacks import BackupAndRestore\nBackupAndRestore('ckpt')\n",
    ],
)
def test_what_only_the_source_tells_is_asked_and_not_written_nor_said(tmp_path: Path, script: str) -> None:
    found = read(tmp_path, script)
    assert found["options"] == {"worker_num": ["2"]}
    assert found["notes"] == []
    assert found["missing"] == [
        "where does train.py save its checkpoints? Say it in faultrun.yaml: checkpoint_dir",
        "how is train.py told which checkpoint to load? Say it in faultrun.yaml: resume_arg",
    ]
    assert left_open(tmp_path) == {"checkpoint_dir": "DIR", "resume_arg": "--OPTION={checkpoint}"}
    assert "ckpt" not in (tmp_path / "faultrun.yaml").read_text()


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        ("p.add_argument('--out-dir', default='ckpt')", "ckpt"),
        ("p.add_argument('--work_dir', default='runs/x')", "runs/x"),
        ("p.add_argument('--out', default='o')\np.add_argument('--checkpoint_dir', default='ck')", "ck"),
        ("import click\n@click.option('--save-dir', default='s')\ndef main(save_dir): ...", "s"),
        ("from absl import flags\nflags.DEFINE_string('output_dir', 'o', '')", "o"),
        (
            "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n"
            "@dataclass\nclass A:\n    output_dir: str = 'out'\nHfArgumentParser(A)",
            "out",
        ),
        ("p.add_argument('--out', default=os.environ.get('OUT', 'x'))", "DIR"),
        ("p.add_argument('--data_dir', default='data')", "DIR"),
        ("p.add_argument('--log_dir', default='logs')", "DIR"),
        ("p.add_argument('--save_every', default='5')", "DIR"),
        ("p.add_argument('--load_dir', default='old')", "DIR"),
        ("p.add_argument('--output', action='store_true')", "DIR"),
    ],
)
def test_the_folder_offered_is_of_an_option_so_named(tmp_path: Path, options: str, folder: str) -> None:
    read(tmp_path, f"{options}\n")
    assert left_open(tmp_path)["checkpoint_dir"] == folder


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ("p.add_argument('--resume')", "--resume={checkpoint}"),
        ("p.add_argument('--ckpt-path')", "--ckpt-path={checkpoint}"),
        ("p.add_argument('--pretrained')\np.add_argument('--resume')", "--resume={checkpoint}"),
        ("p.add_argument('--resume_from')", "--resume_from={checkpoint}"),
        ("p.add_argument('--resume', action='store_true')", "--resume"),
        ("p.add_argument('--resume', type=bool, default=False)", "--resume=true"),
        ("p.add_argument('--is_recover', type=int, default=0)", "--is_recover=1"),
        ("import click\n@click.option('--resume')\ndef main(resume): ...", "--resume={checkpoint}"),
        ("p.add_argument('--save_every')", "--OPTION={checkpoint}"),
        ("p.add_argument('--checkpoint_dir')", "--OPTION={checkpoint}"),
        ("p.add_argument('--ckpt_interval')", "--OPTION={checkpoint}"),
        ("p.add_argument('--load_workers')", "--OPTION={checkpoint}"),
        ("p.add_argument('--lr')", "--OPTION={checkpoint}"),
    ],
)
def test_the_argument_offered_is_an_option_so_named(tmp_path: Path, options: str, argument: str) -> None:
    found = read(tmp_path, f"{options}\n")
    assert left_open(tmp_path)["resume_arg"] == argument
    assert "resume_arg" not in found["options"]


def test_each_open_line_says_what_belongs_there_and_where_the_offer_was_read(tmp_path: Path) -> None:
    read(tmp_path, "p.add_argument('--out', default='ckpt')\np.add_argument('--resume')\n")
    page = (tmp_path / "faultrun.yaml").read_text()
    assert "# the folder into which train.py saves; the default of --out (train.py:4)\n" in page
    assert "# how train.py is told what to load; perhaps --resume (train.py:5)\n" in page


@pytest.mark.parametrize(
    "script",
    [
        "torch.load(os.environ['FAULTRUN_RESUME_FROM'])\n",
        "from faultrun import sdk\nsdk.torch.protect(m, o).resume()\n",
    ],
)
def test_a_script_that_names_faultrun_is_asked_only_where_it_saves(tmp_path: Path, script: str) -> None:
    found = read(tmp_path, script)
    assert left_open(tmp_path) == {"checkpoint_dir": "DIR"}
    assert len(found["missing"]) == 1


def test_what_the_command_says_already_is_not_asked(tmp_path: Path) -> None:
    written(tmp_path, train__py=HEAD)
    found = adopted(tmp_path, "faultrun --checkpoint_dir=ck --resume_arg=--resume={checkpoint} train.py")
    assert found["options"] == {"checkpoint_dir": ["ck"], "resume_arg": ["--resume={checkpoint}"]}
    assert found["missing"] == []
    assert left_open(tmp_path) == {}


@pytest.mark.parametrize(
    ("script", "args", "recipe", "told"),
    [
        (
            "from transformers import Trainer\np.add_argument('--resume_from_checkpoint')\n",
            "--output_dir=out",
            "transformers",
            "checkpoints in out; a restart passes --resume_from_checkpoint={checkpoint}",
        ),
        (
            "from mindformers import Trainer\n",
            "--config=c.yaml",
            "mindformers",
            "checkpoints in saved output/checkpoint; a restart sets c.yaml:load_checkpoint",
        ),
    ],
)
def test_a_recipe_is_named_by_the_imports_and_told_by_the_command(
    tmp_path: Path, script: str, args: str, recipe: str, told: str
) -> None:
    config = "load_checkpoint: ''\nresume_training: false\ncheckpoint:\n  save_path: saved\n"
    found = read(tmp_path, script, args, c__yaml=config)
    assert found["options"]["recipe"] == [recipe]
    assert told in found["read"]["recipe"]
    assert (found["missing"], left_open(tmp_path)) == ([], {})


@pytest.mark.parametrize(
    ("script", "recipe"),
    [
        (
            "from transformers import Trainer, TrainingArguments\np.add_argument('--resume')\n"
            "TrainingArguments(output_dir='out')\n",
            "transformers",
        ),
        (
            "import lightning as L\nL.Trainer(default_root_dir='out')\np.add_argument('--ckpt_path')\n",
            "lightning",
        ),
        (
            "import deepspeed\nengine, *_ = deepspeed.initialize()\nengine.save_checkpoint('out')\n",
            "deepspeed",
        ),
        (
            "import torch.distributed.checkpoint as dcp\np.add_argument('--resume')\n"
            "dcp.save({}, checkpoint_id='out')\n",
            "dcp",
        ),
    ],
)
def test_a_folder_that_only_the_source_tells_is_asked(tmp_path: Path, script: str, recipe: str) -> None:
    found = read(tmp_path, script)
    assert found["options"]["recipe"] == [recipe]
    assert "checkpoints in" not in found["read"]["recipe"]
    assert left_open(tmp_path) == {"checkpoint_dir": "DIR"}


def test_a_recipe_of_a_script_without_such_an_option_leaves_the_argument_open(tmp_path: Path) -> None:
    read(tmp_path, "from transformers import Trainer\n", "--output_dir=out")
    assert left_open(tmp_path) == {"resume_arg": "--OPTION={checkpoint}"}


def test_a_file_that_python_cannot_parse_is_named(tmp_path: Path) -> None:
    found = read(tmp_path, "def broken(:\n")
    assert any("not parsed" in one and "train.py" in one for one in found["missing"])


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "rank = int(os.environ['OMPI_COMM_WORLD_RANK'])\n",
            "train.py:4 reads OMPI_COMM_WORLD_RANK: MPI does not",
        ),
        ("rank = os.environ.get('SLURM_PROCID', 0)\n", "train.py:4 reads SLURM_PROCID: Slurm does not"),
        (
            "p.add_argument('--local_rank', type=int)\n",
            "train.py:4 takes --local_rank: faultrun passes no such",
        ),
        (
            "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=4)\n",
            "train.py:5 starts processes of its own",
        ),
        ("from mpi4py import MPI\n", "mpi4py"),
    ],
)
def test_what_the_script_expects_of_its_launcher_is_said(tmp_path: Path, script: str, said: str) -> None:
    found = read(tmp_path, script)
    assert any(said in one for one in found["missing"]), found["missing"]


def test_a_script_that_also_reads_rank_misses_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, "rank = os.environ.get('RANK') or os.environ['OMPI_COMM_WORLD_RANK']\n")
    assert not any("MPI" in one for one in found["missing"])


def test_the_devices_of_a_lightning_trainer_are_the_workers_where_no_launcher_counts(tmp_path: Path) -> None:
    written(tmp_path, train__py="import lightning as L\nL.Trainer(devices=4)\n")
    assert adopted(tmp_path, "python train.py")["options"]["worker_num"] == ["4"]
    assert adopted(tmp_path, "torchrun --nproc-per-node=2 train.py")["options"]["worker_num"] == ["2"]


@pytest.mark.parametrize("module", [False, True])
def test_a_package_of_300_modules_beside_the_script_costs_nothing(tmp_path: Path, module: bool) -> None:
    package = tmp_path / "lib"
    package.mkdir()
    function = "def f{}(x):\n    y = int(len(str(x)))\n    print(list(range(y)), dict(a=y))\n    return [y]\n"
    text = "".join(function.format(number) for number in range(60))
    for number in range(300):
        (package / f"m{number}.py").write_text(f"from lib.m{(number + 1) % 300} import *\n{text}")
    (package / "__init__.py").write_text("".join(f"from lib.m{number} import *\n" for number in range(300)))
    script = package / "train.py" if module else tmp_path / "train.py"
    script.write_text(f"{HEAD}import lib\nfrom lib import m0\np.add_argument('--out', default='ckpt')\n")
    adopted(tmp_path, "torchrun train.py" if not module else "torchrun -m lib.train")
    began_s = time.process_time()
    found = adopted(tmp_path, f"torchrun --nproc-per-node=2 {'-m lib.train' if module else 'train.py'}")
    assert time.process_time() - began_s < 1
    assert found["options"]["worker_num"] == ["2"]
    assert left_open(script.parent)["checkpoint_dir"] == "ckpt"


def test_plain_python_sets_no_rank_for_a_script_that_asks_for_one(tmp_path: Path) -> None:
    written(tmp_path, train__py="import torch, ddp", ddp__py="import os\nos.environ.get('RANK')")
    assert adopted(tmp_path, "python train.py")["options"] == {"rank_env": ["none"]}
    assert "rank_env" not in adopted(tmp_path, "torchrun --nproc-per-node=2 train.py")["options"]
