"""What a recipe and a pattern come to when a rank dies: real processes, a format that nobody knows."""

import json
from pathlib import Path

from support.machine.scripts import Done, faultrun
from support.runs import Launcher, Run

PATTERN = r"--checkpoint_pattern=state-(?P<step>\d+)\.bin"
SAVES = """
os.makedirs("ckpt", exist_ok=True)
if life == 0 and rank == 0:
    for step in (9, 12):
        with open(f"ckpt/state-{step}.bin", "wb") as file:
            file.write(bytes(64))
say(*sys.argv[1:])
say(os.environ.get("GO_FROM", "nowhere"))
train_in_the_first_life()
"""
RECIPE = r"""
summary: mine
checkpoint_dir: ckpt
environment: {GO_FROM: "at {global_step}: {checkpoint_file}"}
"""


def killed_once(launcher: Launcher, *options: str) -> Run:
    run = launcher.run(SAVES, *options).trains([0, 1])
    run.kill(1)
    return run


def test_files_that_a_pattern_names_are_resumed_from(launcher: Launcher) -> None:
    options = ("--checkpoint_dir=ckpt", PATTERN, "--resume_arg=--from={checkpoint}")
    run = killed_once(launcher, *options)
    assert run.ends() == 0
    newest = launcher.folder / "ckpt" / "state-12.bin"
    assert run.events("RecoveryPointChosen")[-1]["point"]["global_step"] == 12
    assert f"--from={newest}" in run.log(0, 1)
    assert "--from" not in run.log(0, 0)
    spec = json.loads((run.log_dir / "run.json").read_text())["spec"]
    assert spec["recovery"]["pattern"] == PATTERN.partition("=")[2]


def test_a_dry_run_knows_the_pattern_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "state-12.bin").write_bytes(bytes(64))

    def dry_run(*words: str) -> Done:
        return faultrun(
            "--dry-run", "--checkpoint_dir=ckpt", "--worker_num=1", *words, "train.py", cwd=tmp_path
        )

    assert "no checkpoint yet in ckpt" in dry_run().stdout
    assert "ckpt/state-12.bin, step 12" in dry_run(PATTERN).stdout
    refused = dry_run("--checkpoint_pattern=state-(")
    assert refused.returncode == 64
    assert "missing ), unterminated subpattern" in refused.stderr


def test_a_variable_of_a_recipe_is_set_when_an_incarnation_resumes_and_only_then(launcher: Launcher) -> None:
    (launcher.folder / "mine.yaml").write_text(RECIPE)
    run = killed_once(launcher, "--recipe=./mine.yaml", PATTERN)
    assert run.ends() == 0
    assert run.log(0, 0).splitlines()[1] == "nowhere"
    assert run.log(0, 1).splitlines()[1] == f"at 12: {launcher.folder}/ckpt/state-12.bin"
    assert "not handed over" not in run.text


def test_an_argument_of_a_recipe_that_the_script_refuses_is_the_recipes_error(launcher: Launcher) -> None:
    (launcher.folder / "mine.yaml").write_text(
        'summary: mine\ncheckpoint_dir: ckpt\nresume_arg: "--ckpt_path={checkpoint}"\n'
    )
    parses = "import argparse\nargparse.ArgumentParser().parse_args()\n"
    run = launcher.run(parses + SAVES, "--recipe=./mine.yaml", PATTERN).trains([0, 1])
    run.kill(1)
    assert run.ends() == 78
    told = "the script does not take an argument that a restart gives it: --ckpt_path={checkpoint}"
    assert told in run.text
    assert "unrecognized arguments: --ckpt_path=" in run.card(2)


def test_formats_that_a_recipe_does_not_name_do_not_count(launcher: Launcher) -> None:
    (launcher.folder / "mine.yaml").write_text("summary: mine\ncheckpoint_dir: ckpt\nformats: torch\n")
    run = killed_once(launcher, "--recipe=./mine.yaml", PATTERN)
    assert run.ends() == 0, "what the user names counts under any recipe"
    assert run.events("RecoveryPointChosen")[-1]["point"]["global_step"] == 12
    (launcher.folder / "mine.yaml").write_text("summary: mine\ncheckpoint_dir: ckpt\nformats: torhc\n")
    refused = faultrun(
        "--recipe=./mine.yaml", "--dry-run", "--worker_num=1", "-m", "this", cwd=launcher.folder
    )
    assert refused.returncode == 78
    assert "no checkpoint format torhc" in refused.stderr
