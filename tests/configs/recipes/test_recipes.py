"""Recipes: filled in from what the user gave; every mistake in one is named by its line."""

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.configs.apply import carry_out
from faultrun.configs.recipes.packaged import recipe_file, recipe_names, templates_folder
from faultrun.configs.recipes.recipe import read_recipe
from faultrun.core.template import Values
from faultrun.errors import ConfigError
from faultrun.model.spec.run_spec import Framework, Recovery, Replicas, Rewrite
from support.asking import plan
from support.machine.scripts import faultrun, printed
from support.places import ROOT

CONTRACT = [
    *("mindio-ttp", "mindio-uce", "mindspore-lenet", "mindspore-resnet"),
    *("pangu-alpha", "pytorch-resnet50", "tensorflow-resnet50"),
]
MODELZOO = """\
output_path: "/cache/train"
checkpoint_path: "./checkpoint/"
pre_trained: ""
has_trained_epoch: 0
has_trained_step: 0
net_name: "resnet50"
---
pre_trained: "The checkpoint to go on from."
"""


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    """Every test works in a folder of its own, with a script in it."""
    (here / "train.py").write_text("import torch\n")
    return here


def recovery(*words: str) -> Recovery:
    return plan(*words).spec.recovery


# ---------------------------------------------------------------- the packaged ones


def test_every_recipe_of_the_contract_is_there_and_right() -> None:
    assert set(CONTRACT) <= set(recipe_names())
    for name in recipe_names():
        recipe = read_recipe(recipe_file(name))
        assert recipe.name == name
        assert len(recipe.summary) < 100


def test_lenet_saves_in_a_folder_of_its_name_and_is_passed_the_file() -> None:
    settled = plan("--recipe=mindspore-lenet", str(ROOT / "examples" / "01_mindspore_lenet" / "train.py"))
    assert settled.spec.framework is Framework.MINDSPORE
    assert settled.spec.recovery.checkpoint_dirs == ("lenet",)
    assert settled.spec.recovery.resume_args == ("--pre_trained={checkpoint}",)


def test_resnet_of_the_master_branch_gets_its_optimizer_and_schedule_back_as_well(folder: Path) -> None:
    # official/cv/ResNet/train.py at 145444c reads all from resume_ckpt, and weights alone from pre_trained.
    master = "output_dir: ./out\nnet_name: resnet50\ndataset: cifar10\npre_trained: ''\nresume_ckpt: ''\n"
    (folder / "resnet.yaml").write_text(master)
    found = recovery("--recipe=mindspore-resnet", "train.py", "--config_path=resnet.yaml")
    assert found.checkpoint_dirs == ("out/resnet50/cifar10/ckpt",)
    assert [(one.key, one.template) for one in found.rewrites] == [
        ("pre_trained", "{checkpoint}"),
        ("resume_ckpt", "{checkpoint}"),
    ]
    given = ("train.py", "--config_path=resnet.yaml", "--resume_ckpt=old.ckpt")
    assert recovery("--recipe=mindspore-resnet", *given).resume_args == ("--resume_ckpt={checkpoint}",)


@pytest.mark.parametrize("section", [False, True])
def test_mindformers_values_are_set_in_whichever_form_the_yaml_has(folder: Path, *, section: bool) -> None:
    text = "output_dir: ./run\nload_checkpoint: ''\nresume_training: False\n"
    text += "checkpoint:\n  load_path: ''\n  no_load_optim: True\n" if section else ""
    (folder / "train.yaml").write_text(text)
    found = recovery("--recipe=mindformers", "train.py", "--config=train.yaml")
    assert found.checkpoint_dirs == ("run/checkpoint",)
    keys = ["load_checkpoint", "resume_training"]
    keys += ["checkpoint.load_path", "checkpoint.no_load_optim"] if section else []
    assert [one.key for one in found.rewrites] == keys
    values = Values(checkpoint="run/checkpoint/iteration_00000020", run_id="r", incarnation=1, global_step=20)
    carry_out(found.rewrites, values, originals=folder / "log" / "original")
    assert "resume_training: True" in (folder / "train.yaml").read_text()
    old = recovery("--recipe=mindformers-legacy", "train.py", "--config=train.yaml")
    assert [(one.key, one.template) for one in old.rewrites] == [
        ("load_checkpoint", "./run/checkpoint"),
        ("resume_training", "{checkpoint_name}"),
    ]


def test_resnet_is_derived_from_the_modelzoo_yaml(folder: Path) -> None:
    (folder / "resnet.yaml").write_text(MODELZOO)
    found = recovery("--recipe=mindspore-resnet", "train.py", "--config_path=resnet.yaml")
    assert found.checkpoint_dirs == ("/cache/train/checkpoint",)
    assert [(one.file, one.key, one.template) for one in found.rewrites] == [
        ("resnet.yaml", "pre_trained", "{checkpoint}"),
        ("resnet.yaml", "has_trained_epoch", "{epoch}"),
        ("resnet.yaml", "has_trained_step", "{global_step}"),
    ]
    assert found.resume_args == ()


def test_resnet_takes_arguments_before_the_yaml(folder: Path) -> None:
    (folder / "resnet.yaml").write_text(MODELZOO)
    args = (
        *("--config_path", "resnet.yaml", "--output_path=/first"),
        *("--output_path", "/job", "--pre_trained=/job"),
    )
    found = recovery("--recipe=mindspore-resnet", "train.py", *args)
    assert found.checkpoint_dirs == ("/job/checkpoint",)
    assert found.resume_args == ("--pre_trained={checkpoint}",)


def test_resnet_of_master_saves_elsewhere_and_has_no_count_of_epochs(folder: Path) -> None:
    (folder / "resnet.yaml").write_text(
        "output_dir: ../outputs\nnet_name: resnet50\ndataset: imagenet2012\npre_trained: ''\n"
    )
    found = recovery("--recipe=mindspore-resnet", "train.py", "--config_path=resnet.yaml")
    assert found.checkpoint_dirs == ("../outputs/resnet50/imagenet2012/ckpt",)
    assert [one.key for one in found.rewrites] == ["pre_trained"]


def test_pangu_trusts_nothing_but_group_info() -> None:
    settled = plan(
        "--recipe=pangu-alpha", "train.py", "--save_checkpoint_path=/job/8p", "--has_trained_steps=0"
    )
    assert settled.spec.framework is Framework.MINDSPORE
    assert settled.spec.recovery.replicas is Replicas.GROUP_INFO
    assert settled.spec.recovery.checkpoint_dirs == ("/job/8p",)
    assert settled.spec.recovery.resume_args == (
        "--pre_trained={checkpoint}",
        "--strategy_load_ckpt_path=strategy.ckpt",
        "--has_trained_steps={global_step}",
    )


def test_torch_saves_in_a_folder_of_each_rank() -> None:
    found = recovery("--recipe=pytorch-resnet50", "--worker_num=3", "train.py", "--resume=false")
    assert found.checkpoint_dirs == ("rank_0", "rank_1", "rank_2")
    assert found.resume_args == ("--resume=true",)


def test_tensorflow_configs_lie_beside_the_script(folder: Path) -> None:
    for name in ("src/mains", "src/configs"):
        (folder / name).mkdir(parents=True)
    (folder / "src/mains/res50.py").write_text("import tensorflow\n")
    settled = plan("--recipe=tensorflow-resnet50", "src/mains/res50.py", "--config_file=res50_256bs_1p")
    assert settled.spec.framework is Framework.TENSORFLOW
    assert settled.spec.recovery.checkpoint_dirs == ("model_dir",)
    assert settled.spec.recovery.rewrites == (
        Rewrite(file="src/configs/res50_256bs_1p.py", key="restore_path", template="{checkpoint_dir}"),
    )


def test_the_ttp_script_of_the_documents_gets_its_two_numbers(folder: Path) -> None:
    (folder / "case.py").write_text(
        "import mindspore\n"
        "if bool(args_opt.is_recover):\n"
        "    cur_epoch = 2  # Set to the epoch value of the exception save\n"
        "    cur_step = 1215\n"
    )
    settled = plan("--recipe=mindio-ttp", "case.py")
    assert [(one.file, one.key, one.template) for one in settled.spec.recovery.rewrites] == [
        ("case.py", "cur_epoch", "{epoch}"),
        ("case.py", "cur_step", "{step}"),
    ]
    assert settled.spec.recovery.checkpoint_dirs == ("ttp_checkpoints",)
    assert dict(settled.spec.environment) == {"MS_ENABLE_TFT": "{TTP:1}", "MINDIO_FOR_MINDSPORE": "1"}


def test_a_number_that_the_script_works_out_is_left_alone(folder: Path) -> None:
    (folder / "case.py").write_text("import mindspore\ncur_epoch = int(saved['epoch_num'])\n")
    settled = plan("--recipe=mindio-ttp", "case.py")
    assert settled.spec.recovery.rewrites == ()
    assert "recipe mindio-ttp: case.py:cur_epoch is left alone: line 2 computes it" in settled.notes


# ------------------------------------------------------------------------ who wins


def test_what_is_given_wins_part_by_part(folder: Path) -> None:
    (folder / "mine.yml").write_text("x: 1\n")
    options = (
        "--recipe=mindspore-resnet",
        "--checkpoint_dir=here",
        "--framework=plain",
        "--rewrite=mine.yml:x",
    )
    settled = plan(*options, "train.py")
    assert settled.spec.framework is Framework.PLAIN
    assert settled.spec.recovery.checkpoint_dirs == ("here",)
    assert [one.file for one in settled.spec.recovery.rewrites] == ["mine.yml"]


def test_the_config_file_and_variables_win_over_the_recipe(folder: Path) -> None:
    (folder / "faultrun.yaml").write_text("recipe: pytorch-resnet50\ncheckpoint_dir: [elsewhere]\n")
    settled = plan("--config=faultrun.yaml", "train.py", environ={"FAULTRUN_RESUME_ARG": "--go={checkpoint}"})
    assert settled.spec.framework is Framework.TORCH
    assert settled.spec.recovery.checkpoint_dirs == ("elsewhere",)
    assert settled.spec.recovery.resume_args == ("--go={checkpoint}",)


def test_the_users_variables_win_over_the_recipes() -> None:
    environ = {"MS_ENABLE_TFT": "{UCE:0, TTP:1}", "MINDIO_FOR_MINDSPORE": ""}
    settled = plan("--recipe=mindio-uce", "train.py", environ=environ)
    assert dict(settled.spec.environment) == {"MS_ENABLE_TFT": "{UCE:0,TTP:1}"}


def test_switches_are_put_right_for_mindspore_and_let_be_for_torch(folder: Path) -> None:
    environ = {"MS_ENABLE_TFT": "{UEC:1}"}
    assert plan("train.py", environ=environ).spec.environment == ()
    (folder / "train.py").write_text("import mindspore\n")
    with pytest.raises(ConfigError, match="UEC"):
        plan("train.py", environ=environ)


def test_no_recipe_can_be_asked_for() -> None:
    assert replace(recovery("--recipe=none", "train.py"), script_asks=None) == Recovery()


# ----------------------------------------------------------------------- the verb


@pytest.mark.long
def test_what_is_shown_can_be_used() -> None:
    shown = faultrun("recipes", "show", "pytorch-resnet50")
    assert shown.returncode == 0
    Path("copy.yaml").write_text(shown.stdout)
    assert recovery("--recipe=copy.yaml", "train.py").resume_args == ("--resume=true",)
    assert faultrun("recipes", "show", "nothing").returncode == 78


# ------------------------------------------------------------------- the packages


def test_the_checkout_has_its_templates() -> None:
    assert templates_folder() == ROOT / "templates"


@pytest.mark.slow
def test_the_wheel_has_them_too(folder: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("launcher", "templates", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"],
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    installed = folder / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    program = "from faultrun.configs.recipes.packaged import *; print(templates_folder(), *recipe_names())"
    asked = printed(program, environ={**os.environ, "PYTHONPATH": str(installed)})
    assert asked.split() == [str(installed / "faultrun" / "_templates"), *recipe_names()]
