"""Where a script saves and how it resumes, read from its source with the line of each answer."""

import time
from pathlib import Path
from typing import Any

import pytest

from support.adopting import adopted, written

HEAD = "import argparse, os\nfrom pathlib import Path\nimport torch\np = argparse.ArgumentParser()\n"


def read(folder: Path, script: str, args: str = "", **files: str) -> dict[str, Any]:
    written(folder, train__py=HEAD + script, **files)
    return adopted(folder, f"torchrun --nproc-per-node=2 train.py {args}")


LOADS = "\np.add_argument('--resume', default='')\nargs = p.parse_args()\ntorch.load(args.resume)\n"


@pytest.mark.parametrize(
    ("saves", "folder"),
    [
        ("torch.save({}, 'ckpt/a.pt')", "ckpt"),
        ("torch.save({}, 'a.pt')", "."),
        ("torch.save({}, f'ckpt/run/{n}.pt')", "ckpt/run"),
        ("torch.save({}, f'ckpt/run_{n}/a.pt')", "ckpt"),
        ("torch.save({}, os.path.join('ckpt', 'x', 'e%d.pt' % n))", "ckpt/x"),
        ("torch.save({}, os.path.join('ckpt', 'e{}.pt'.format(n)))", "ckpt"),
        ("torch.save({}, Path('ckpt') / 'x' / f'{n}.pt')", "ckpt/x"),
        ("torch.save({}, Path('ckpt').joinpath('a.pt').with_suffix('.tmp'))", "ckpt"),
        ("D = Path('ckpt')\nwith (D / 'a.pt').open('wb') as f:\n    torch.save({}, f)", "ckpt"),
        ("with open(os.path.join('ckpt', 'a'), 'wb') as f:\n    torch.save({}, f=f)", "ckpt"),
        ("def save(state, path):\n    torch.save(state, path)\nsave({}, 'ckpt/a.pt')", "ckpt"),
        ("def save(s, folder='ckpt'):\n    torch.save(s, folder + '/a.pt')\nsave({})", "ckpt"),
        ("def where():\n    return Path('ckpt')\ntorch.save({}, where() / 'a.pt')", "ckpt"),
        (
            "class T:\n    def __init__(self, d):\n        self.d = d\n    def go(self):\n"
            "        torch.save({}, os.path.join(self.d, 'x.pt'))\nT('ckpt').go()",
            "ckpt",
        ),
        ("out = os.environ.get('OUT', 'ckpt')\ntorch.save({}, out + '/a.pt')", "ckpt"),
        ("out = None or 'ckpt'\ntorch.save({}, out + '/a.pt')", "ckpt"),
        ("from torch import save\nsave({}, 'ckpt/a.pt')", "ckpt"),
        (
            "out = str(Path(__file__).parent / 'ckpt')\ntorch.save({}, out + '/a.pt')",
            "ckpt",
        ),
    ],
)
def test_the_folder_of_checkpoints_is_found(tmp_path: Path, saves: str, folder: str) -> None:
    found = read(tmp_path, f"{saves}\n{LOADS}")
    assert found["options"]["checkpoint_dir"] == [folder], found
    assert found["read"]["checkpoint_dir"].startswith("train.py:")
    assert found["missing"] == []


def test_an_option_counts_as_it_is_given_else_by_its_default(tmp_path: Path) -> None:
    script = (
        "p.add_argument('--out-dir', default='ckpt')" + LOADS + "torch.save({}, f'{args.out_dir}/a.pt')\n"
    )
    assert read(tmp_path, script)["options"]["checkpoint_dir"] == ["ckpt"]
    given = read(tmp_path, script, "--out-dir=else/where")
    assert given["options"]["checkpoint_dir"] == ["else/where"]
    assert given["read"]["checkpoint_dir"] == "--out_dir of the command"


def test_an_option_without_a_default_is_named_with_its_line(tmp_path: Path) -> None:
    found = read(tmp_path, "p.add_argument('--out')" + LOADS + "torch.save({}, args.out)\n")
    (said,) = [one for one in found["missing"] if "checkpoint folder" in one]
    assert said == (
        "no checkpoint folder found: train.py:9 calls torch.save(... args.out): "
        "--out is not given and has no default (train.py:5)"
    )
    assert "checkpoint_dir" not in found["options"]
    page = (tmp_path / "faultrun.yaml").read_text()
    assert '# resume_arg: "--resume={checkpoint}"' in page, "kept as a comment: alone it would be refused"


@pytest.mark.parametrize(
    ("loads", "argument"),
    [
        ("p.add_argument('--resume')\na = p.parse_args()\ntorch.load(a.resume)", "--resume={checkpoint}"),
        (
            "p.add_argument('--ckpt-path')\na = p.parse_args()\ntorch.load(a.ckpt_path)",
            "--ckpt-path={checkpoint}",
        ),
        (
            "p.add_argument('--pretrained')\np.add_argument('--resume')\na = p.parse_args()\n"
            "torch.load(a.resume)\n"
            "torch.load(a.pretrained)",
            "--resume={checkpoint}",
        ),
        ("p.add_argument('--resume_from')\nload(p.parse_args())", "--resume_from={checkpoint}"),
        ("p.add_argument('--resume', action='store_true')", "--resume"),
        ("p.add_argument('--resume', type=bool, default=False)", "--resume=true"),
        ("p.add_argument('--is_recover', type=int, default=0)", "--is_recover=1"),
        (
            "p.add_argument('--load_dir')\na = p.parse_args()\n"
            "torch.load(os.path.join(a.load_dir, 'last.pt'))",
            None,
        ),
        (
            "import click\n@click.command()\n@click.option('--resume')\n"
            "def main(resume):\n    torch.load(resume)",
            "--resume={checkpoint}",
        ),
        (
            "def run(path):\n    torch.load(path)\np.add_argument('--restore')\nrun(p.parse_args().restore)",
            "--restore={checkpoint}",
        ),
    ],
)
def test_how_it_resumes_is_found(tmp_path: Path, loads: str, argument: str | None) -> None:
    found = read(tmp_path, f"torch.save({{}}, 'ckpt/a.pt')\n{loads}\n")
    if argument is None:
        assert "resume_arg" not in found["options"]
        assert any("where to resume" in one for one in found["missing"])
        return
    assert found["options"]["resume_arg"] == [argument]
    assert "train.py:" in found["read"]["resume_arg"]
    assert found["missing"] == []


@pytest.mark.parametrize(
    "option",
    ["--save_every", "--checkpoint_dir", "--ckpt_interval", "--checkpoint-freq", "--load_workers", "--lr"],
)
def test_an_option_about_something_else_is_not_taken_for_it(tmp_path: Path, option: str) -> None:
    found = read(tmp_path, f"torch.save({{}}, 'ckpt/a.pt')\np.add_argument('{option}', default='x')\n")
    assert "resume_arg" not in found["options"]
    assert any("where to resume" in one for one in found["missing"])


CONFIG = (
    "import yaml\np.add_argument('--config', default='c.yaml')\n"
    "cfg = yaml.safe_load(open(p.parse_args().config))\n"
)


def test_a_key_of_the_configuration_is_rewritten(tmp_path: Path) -> None:
    script = (
        CONFIG + "torch.save({}, cfg['train']['out'] + '/a.pt')\ntorch.load(cfg['train']['pre_trained'])\n"
    )
    text = "train:\n  out: ckpt\n  pre_trained: ''\n"
    found = read(tmp_path, script, c__yaml=text)
    assert found["options"]["rewrite"] == ["c.yaml:train.pre_trained"]
    assert found["read"]["rewrite"].startswith("c.yaml:3")
    assert found["options"]["checkpoint_dir"] == ["ckpt"]
    assert found["missing"] == []
    other = read(tmp_path, script, "--config=d.yaml", d__yaml=text.replace("ckpt", "other"))
    assert other["options"]["rewrite"] == ["d.yaml:train.pre_trained"]
    assert other["options"]["checkpoint_dir"] == ["other"]


def test_local_modules_are_read_too(tmp_path: Path) -> None:
    helper = "import torch\nOUT = 'ckpt'\ndef save(state, name):\n    torch.save(state, OUT + '/' + name)\n"
    found = read(tmp_path, "import helper\nhelper.save({}, 'a.pt')\n" + LOADS, helper__py=helper)
    assert found["options"]["checkpoint_dir"] == ["ckpt"]
    assert found["read"]["checkpoint_dir"] == "helper.py:2"


def test_a_script_that_finds_its_checkpoint_itself_needs_no_argument(tmp_path: Path) -> None:
    found = read(tmp_path, "torch.save({}, 'ckpt/last.pt')\ntorch.load('ckpt/last.pt')\n")
    assert found["options"]["checkpoint_dir"] == ["ckpt"]
    assert "resume_arg" not in found["options"]
    assert any("by itself" in one for one in found["notes"])
    assert found["missing"] == []


def test_a_script_that_asks_faultrun_needs_no_argument(tmp_path: Path) -> None:
    found = read(tmp_path, "torch.save({}, 'ckpt/a.pt')\ntorch.load(os.environ['FAULTRUN_RESUME_FROM'])\n")
    assert found["options"]["checkpoint_dir"] == ["ckpt"]
    assert found["missing"] == []


@pytest.mark.parametrize(
    ("script", "recipe", "folder"),
    [
        (
            "from transformers import Trainer, TrainingArguments\n"
            "p.add_argument('--resume_from_checkpoint')\n"
            "TrainingArguments(output_dir='out')\n",
            "transformers",
            "out",
        ),
        (
            "import lightning as L\nL.Trainer(default_root_dir='out')\np.add_argument('--ckpt_path')\n",
            "lightning",
            "out/lightning_logs",
        ),
        (
            "import deepspeed\nengine, *_ = deepspeed.initialize()\nengine.save_checkpoint('out')\n",
            "deepspeed",
            "out",
        ),
        (
            "import torch.distributed.checkpoint as dcp\np.add_argument('--resume')\n"
            "dcp.save({}, checkpoint_id='out')\n",
            "dcp",
            "out",
        ),
    ],
)
def test_the_recipe_of_a_known_code_is_taken(tmp_path: Path, script: str, recipe: str, folder: str) -> None:
    found = read(tmp_path, script)
    assert found["options"]["recipe"] == [recipe]
    assert folder in found["read"]["recipe"]
    assert found["missing"] == []


def test_a_recipe_that_cannot_hand_over_says_so(tmp_path: Path) -> None:
    script = "from transformers import Trainer, TrainingArguments\nTrainingArguments(output_dir='out')\n"
    found = read(tmp_path, script)
    assert any("where to resume" in one for one in found["missing"])


def test_a_file_that_python_cannot_parse_is_named(tmp_path: Path) -> None:
    found = read(tmp_path, "def broken(:\n")
    assert any("not parsed" in one and "train.py" in one for one in found["missing"])


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "rank = int(os.environ['OMPI_COMM_WORLD_RANK'])\n",
            "train.py:5 reads OMPI_COMM_WORLD_RANK: MPI does not",
        ),
        ("rank = os.environ.get('SLURM_PROCID', 0)\n", "train.py:5 reads SLURM_PROCID: Slurm does not"),
        (
            "p.add_argument('--local_rank', type=int)\n",
            "train.py:5 takes --local_rank: faultrun passes no such",
        ),
        (
            "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=4)\n",
            "train.py:6 starts processes of its own",
        ),
        ("from mpi4py import MPI\n", "mpi4py"),
    ],
)
def test_what_the_script_expects_of_its_launcher_is_said(tmp_path: Path, script: str, said: str) -> None:
    found = read(tmp_path, script)
    assert any(said in one for one in found["missing"]), found["missing"]


def test_a_script_that_also_reads_rank_misses_nothing(tmp_path: Path) -> None:
    script = "rank = os.environ.get('RANK') or os.environ['OMPI_COMM_WORLD_RANK']\n"
    found = read(tmp_path, script + "torch.save({}, 'c/a.pt')\ntorch.load('c/a.pt')\n")
    assert found["missing"] == []


def test_the_devices_of_a_lightning_trainer_are_the_workers_where_no_launcher_counts(tmp_path: Path) -> None:
    written(tmp_path, train__py="import lightning as L\nL.Trainer(devices=4)\n")
    assert adopted(tmp_path, "python train.py")["options"]["worker_num"] == ["4"]
    assert adopted(tmp_path, "torchrun --nproc-per-node=2 train.py")["options"]["worker_num"] == ["2"]


IMAGENET = """
import torch.multiprocessing as mp
p.add_argument('--resume', default='', type=str, metavar='PATH')
p.add_argument('--pretrained', dest='pretrained', action='store_true')
args = p.parse_args()
torch.load(args.resume)
def save_checkpoint(state, is_best, filename='checkpoint.pth.tar'):
    torch.save(state, filename)
    shutil.copyfile(filename, 'model_best.pth.tar')
save_checkpoint({}, True)
"""


def test_a_script_that_only_looks_like_a_seeds_code_is_not_taken_for_it(tmp_path: Path) -> None:
    found = read(tmp_path, IMAGENET)
    assert "recipe" not in found["options"]
    assert found["options"]["resume_arg"] == ["--resume={checkpoint}"]
    assert found["options"]["checkpoint_dir"] == ["."]


HYDRA = """
import io
import hydra, fsspec
from dataclasses import dataclass
@dataclass
class TrainerConfig:
    snapshot_path: str = None
def train(config: TrainerConfig):
    buffer = io.BytesIO()
    torch.save({}, buffer)
    torch.save({}, config.snapshot_path)
    with fsspec.open(config.snapshot_path) as f:
        torch.load(f)
@hydra.main(version_base=None, config_path='.', config_name='cfg')
def main(cfg):
    train(TrainerConfig(**cfg['trainer']))
main()
"""


def test_hydras_configuration_is_read_and_one_path_for_both_is_the_scripts_own(tmp_path: Path) -> None:
    found = read(tmp_path, HYDRA, cfg__yaml="trainer:\n  epochs: 3\n  snapshot_path: snaps/last.pt\n")
    assert found["options"]["checkpoint_dir"] == ["snaps"]
    assert found["read"]["checkpoint_dir"] == "cfg.yaml:3"
    assert "rewrite" not in found["options"]
    assert "resume_arg" not in found["options"]
    assert any("by itself" in one for one in found["notes"])
    assert found["missing"] == []


CONDITION = """init_from = 'scratch'
if init_from == 'resume':
    torch.load('out/ckpt.pt')
torch.save({}, 'out/ckpt.pt')
"""


def test_a_load_under_a_condition_is_named_with_it(tmp_path: Path) -> None:
    found = read(tmp_path, CONDITION)
    (said,) = [one for one in found["missing"] if "loads only if" in one]
    assert said.startswith(
        "train.py:7 loads only if init_from is 'resume' (train.py:6): --resume_arg=--init_from="
    )
    option = "p.add_argument('--init_from', default='scratch')\na = p.parse_args()\n"
    found = read(tmp_path, option + CONDITION.replace("init_from ==", "a.init_from =="))
    assert found["options"]["resume_arg"] == ["--init_from=resume"]
    assert found["missing"] == []


@pytest.mark.long
def test_a_source_that_doubles_at_every_line_is_given_up_and_soon(tmp_path: Path) -> None:
    lines = "".join(f"a{n} = a{n - 1} + a{n - 1}\n" for n in range(1, 60))
    began = time.process_time()
    found = read(tmp_path, f"a0 = 'x'\n{lines}torch.save({{}}, a59)\n")
    assert time.process_time() - began < 20
    assert any("no checkpoint folder" in one for one in found["missing"])
