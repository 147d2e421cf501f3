"""Every recipe's example command works on a suitable script, and scripts are recognised by their imports."""

import json
import shlex
from pathlib import Path

import pytest

from faultrun.cli.options.choices import DryRun
from faultrun.configs.recipes.packaged import recipe_file, recipe_names
from faultrun.configs.recipes.recipe import read_recipe
from faultrun.configs.recipes.reference import options
from faultrun.model.recipe import Recipe
from faultrun.model.spec.run_spec import Recovery
from support.asking import plan
from support.machine.scripts import faultrun

BESIDE = {
    "config/resnet50_imagenet2012_config.yaml": (
        "output_path: /cache\ncheckpoint_path: ./checkpoint/\npre_trained: ''\n"
    ),
    **dict.fromkeys(
        ("pretrain_qwen3.yaml", "finetune_llama2.yaml"), "load_checkpoint: ''\nresume_training: False\n"
    ),
    "src/configs/res50_256bs_1p.py": "config = {'restore_path': None}\n",
}
"""Configurations that an example names."""


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    """Every test works in a folder of its own."""
    return here


def suitable(recipe: Recipe) -> str:
    """A script that such a code has: its imports, and every option by which it can be told."""
    imports = [f"import {name.rpartition('.')[0] or name}\n{name}\n" for name in recipe.detect]
    known = [option for phrase in recipe.resume_args for option in options(phrase.text)]
    return "".join([*imports, *(f"parser.add_argument({option!r})\n" for option in known)])


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def recovery(*words: str, script: str) -> Recovery:
    write("train.py", script)
    return plan(*words).spec.recovery


@pytest.mark.parametrize("name", recipe_names())
def test_the_example_of_a_recipe_can_be_typed(name: str) -> None:
    recipe = read_recipe(recipe_file(name))
    command, *words = shlex.split(recipe.example)
    assert command == "faultrun"
    assert f"--recipe={name}" in words
    for path, text in BESIDE.items():
        write(path, text)
    module = words[words.index("-m") + 1] if "-m" in words else ""
    script = module.replace(".", "/") + ".py" if module else next(one for one in words if one.endswith(".py"))
    if module:
        write(f"{module.partition('.')[0]}/__init__.py", "")
    write(script, suitable(recipe))
    settled = plan("--dry-run", *words)
    assert settled.dry_run is DryRun.SHORT
    assert settled.spec.recovery.checkpoint_dirs
    assert settled.spec.recovery.handed_over
    assert not [note for note in settled.notes if "no option" in note or "no effect" in note]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in recipe_names() if read_recipe(recipe_file(name)).detect])
def test_a_script_is_recognised_by_every_name_that_its_recipe_detects(name: str) -> None:
    for known in read_recipe(recipe_file(name)).detect:
        package, _, thing = known.rpartition(".")
        write("train.py", f"from {package} import {thing}\n" if package else f"import {known}.parts\n")
        told = f"train.py trains with {known}: --recipe={name} resumes it from its own checkpoints"
        assert told in plan("train.py").notes


def proposed(script: str, *words: str) -> bool:
    write("train.py", script)
    return any("--recipe=" in note for note in plan(*words, "train.py").notes)


def test_a_recipe_is_proposed_through_local_modules_and_not_applied() -> None:
    write("parts/loop.py", "import transformers as t\n\ndef go():\n    t.Trainer().train()\n")
    assert proposed("from parts import loop\nloop.go()\n")
    assert plan("train.py").spec.recovery.checkpoint_dirs == ()


TRAINER = "from transformers import Trainer\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (TRAINER, ("--checkpoint_dir=out",)),
        (TRAINER, ("--resume_arg=--x={checkpoint}", "--checkpoint_dir=out")),
        (TRAINER, ("--recipe=none",)),
        (TRAINER + "where = os.environ.get('FAULTRUN_RESUME_FROM')\n", ()),
        (TRAINER + "from faultrun import sdk\nwhere = sdk.resume()\n", ()),
        ("from transformers import AutoTokenizer\nimport torch\n", ()),
        ("import torch.distributed\n", ()),
        ("def broken(\n", ()),
    ],
)
def test_nothing_is_proposed_where_all_is_settled_or_unknown(script: str, words: tuple[str, ...]) -> None:
    assert not proposed(script, *words)


def test_a_script_that_only_saves_with_the_sdk_still_needs_to_be_told() -> None:
    assert proposed(TRAINER + "from faultrun.sdk.transformers import DyingGasp\n")


def test_of_two_recipes_that_fit_it_is_the_one_that_builds_on_the_other() -> None:
    write(
        "train.py", "import torch.distributed.checkpoint as dcp\nfrom lightning import Fabric\ndcp.save()\n"
    )
    (told,) = (note for note in plan("train.py").notes if "--recipe=" in note)
    assert "--recipe=fabric" in told


# ------------------------------------------------------------ where these codes save, and how they are told


@pytest.mark.parametrize(
    ("script", "args", "saves_in"),
    [
        ("TrainingArguments('mine')", (), "mine"),
        ("TrainingArguments(output_dir='mine')", ("--output_dir=given",), "given"),
        ("TrainingArguments(report_to='none')", (), "trainer_output"),
        ("SFTConfig(output_dir='sft')", (), "sft"),
        ("p.add_argument('--out', default='by')\nTrainingArguments(output_dir=p.parse_args().out)", (), "by"),
    ],
)
def test_trainer_saves_where_its_arguments_say(script: str, args: tuple[str, ...], saves_in: str) -> None:
    found = recovery("--recipe=transformers", "train.py", *args, script=f"HfArgumentParser()\n{script}\n")
    assert found.checkpoint_dirs == (saves_in,)
    assert found.resume_args == ("--resume_from_checkpoint={checkpoint}",)
    assert found.formats == ("folder",)


def test_lightning_saves_below_the_trainers_root_whatever_the_version() -> None:
    found = recovery("--recipe=lightning", "train.py", script="LightningCLI(Model)\n")
    assert found.checkpoint_dirs == ("lightning_logs", "checkpoints")
    assert found.resume_args == ("--ckpt_path={checkpoint}",)
    script = "p.add_argument('--ckpt-path')\n"
    script += "L.Trainer(default_root_dir='r', callbacks=[ModelCheckpoint(dirpath='d')])\n"
    found = recovery("--recipe=lightning", "train.py", script=script)
    assert found.checkpoint_dirs == ("d", "r/lightning_logs", "r/checkpoints")
    assert found.resume_args == ("--ckpt-path={checkpoint}",)


def test_accelerate_saves_in_its_project_or_where_the_loop_says() -> None:
    script = "add('--resume_from_checkpoint')\nProjectConfiguration(project_dir='p', total_limit=2)\n"
    assert recovery("--recipe=accelerate", "train.py", script=script).checkpoint_dirs == ("p",)
    script = "add = parser.add_argument\nadd('--output_dir', default='.')\nadd('--resume')\n"
    script += "accelerator.save_state(f'step_{n}')\n"
    found = recovery("--recipe=accelerate", "train.py", script=script)
    assert found.checkpoint_dirs == (".",)
    assert found.resume_args == ("--resume={checkpoint}",)


def test_dcp_saves_where_its_checkpoint_id_begins_and_serves_any_world() -> None:
    script = (
        "add('--resume')\nadd('--out', default='o')\ndcp.async_save(s, checkpoint_id=f'{args.out}/{n}')\n"
    )
    found = recovery("--recipe=dcp", "train.py", "--out=there", script=script)
    assert found.checkpoint_dirs == ("there",)
    assert found.resharded


def test_a_script_that_reads_our_variable_gets_no_argument_that_it_does_not_know() -> None:
    script = "from lightning import Fabric\nwhere = os.environ.get('FAULTRUN_RESUME_FROM')\n"
    found = recovery("--recipe=fabric", "train.py", script=script)
    assert found.resume_args == ()
    assert found.handed_over


def test_a_folder_that_the_script_computes_is_asked_for_and_one_that_is_named_is_not() -> None:
    write("train.py", "Trainer(callbacks=[ModelCheckpoint(dirpath=made(), monitor='loss')])\n")
    told = "the script computes ModelCheckpoint.dirpath; name where it saves: --checkpoint_dir=DIR"
    assert f"recipe lightning: {told}" in plan("--recipe=lightning", "train.py").notes
    assert (
        f"recipe lightning: {told}" not in plan("--recipe=lightning", "--checkpoint_dir=d", "train.py").notes
    )


def test_a_computed_folder_is_no_question_where_the_scripts_options_tell_it() -> None:
    write("train.py", "add('--output_dir', default='o')\nadd('--resume')\nFileSystemWriter(made())\n")
    settled = plan("--recipe=dcp", "train.py")
    assert settled.spec.recovery.checkpoint_dirs == ("o",)
    assert not any("computes" in note for note in settled.notes)


def test_a_script_that_nothing_can_tell_is_pointed_out() -> None:
    write("train.py", TRAINER)
    settled = plan("--recipe=transformers", "train.py")
    assert not settled.spec.recovery.handed_over
    assert any("no option --resume_from_checkpoint, --resume, so nothing" in note for note in settled.notes)


# ---------------------------------------------------------------------------------------------- the verb


@pytest.mark.long
def test_the_list_has_a_summary_and_an_example_each_and_says_what_serves_any_world() -> None:
    lines = faultrun("recipes").stdout.splitlines()
    assert [line.split()[0] for line in lines[::2]] == list(recipe_names())
    assert all(line.split()[0] == "faultrun" for line in lines[1::2])
    assert next(line for line in lines if line.startswith("dcp")).endswith(
        "(loads into any number of workers)"
    )


@pytest.mark.long
def test_programs_get_the_list_as_json() -> None:
    listed = json.loads(faultrun("recipes", "--json").stdout)
    assert [one["name"] for one in listed] == list(recipe_names())
    (dcp,) = (one for one in listed if one["name"] == "dcp")
    assert (dcp["world_size"], dcp["framework"], dcp["detect"]) == (
        "any",
        "torch",
        ["torch.distributed.checkpoint"],
    )
