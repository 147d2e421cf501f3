"""What is typed for the folder of checkpoints counts, and never the default in its place."""

from pathlib import Path

import pytest

from support.adopting import adopted, asked, written

SCRIPT = """import argparse, os, torch
p = argparse.ArgumentParser()
p.add_argument("-o", "--out", "--output", default="ckpt")
p.add_argument("--resume", default="")
p.add_argument("--log-every", default=1)
p.add_argument("--log-dir", default="logs")
args = p.parse_args()
if args.resume:
    torch.load(args.resume)
torch.save({}, os.path.join(args.out, "a.pt"))
"""
SAID = "{option} is {typed}: only the shell knows; "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOEDIR", "/data")
    monkeypatch.delenv("NOSUCH", raising=False)
    return written(tmp_path, train__py=SCRIPT)


@pytest.mark.parametrize("joint", [" ", "="])
@pytest.mark.parametrize("typed", ["$FOEDIR/ck", "${FOEDIR}/ck/run"])
def test_a_variable_of_the_shell_stays_on_the_command_line(folder: Path, typed: str, joint: str) -> None:
    found = adopted(folder, f"torchrun --nproc-per-node=2 train.py --out{joint}{typed}")
    assert (
        "checkpoint_dir"
        not in (folder / "faultrun.yaml").read_text().partition("\n\n")[2].partition("# n")[0]
    )
    assert f"--checkpoint_dir={typed}" in found["command"]
    assert found["command_line"].startswith(f"faultrun --checkpoint_dir={typed} train.py --out")
    said = SAID.format(option="--out", typed=typed)
    assert found["missing"] == [f"{said}--checkpoint_dir={typed} stands on the command line"]


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("ckpt_$(date +%F)", "DIR, the folder that comes of it"),
        ("`pwd`/ck", "DIR, the folder that comes of it"),
        ("$NOSUCH/ck", "$NOSUCH/ck"),
        ("$i", "$i"),
    ],
)
def test_what_no_shell_here_can_tell_is_missing_and_is_no_default(
    folder: Path, typed: str, instead: str
) -> None:
    found = adopted(folder, f'torchrun --nproc-per-node=2 train.py --out "{typed}"')
    assert "checkpoint_dir" not in found["options"]
    assert not any(word.startswith("--checkpoint_dir") for word in found["command"])
    assert found["missing"] == [f"--out is {typed}: only the shell knows; give --checkpoint_dir={instead}"]
    page = (folder / "faultrun.yaml").read_text()
    assert "\ncheckpoint_dir" not in page
    assert "\nresume_arg" not in page


def test_a_shell_script_names_its_own_variable(folder: Path) -> None:
    written(folder, run__sh="SAVE=$SCRATCH/run7\ntorchrun --nproc-per-node=2 train.py --out $SAVE\n")
    told = asked(folder, "run.sh")
    assert told.exception is None
    assert "  faultrun --checkpoint_dir=$SAVE train.py --out $SAVE\n" in told.stdout
    assert "\ncheckpoint_dir" not in (folder / "faultrun.yaml").read_text()


@pytest.mark.parametrize(
    "typed", ["--ou else/where", "--ou=else/where", "--outp else/where", "-o else/where", "-oelse/where"]
)
def test_an_option_is_known_by_all_that_argparse_takes_for_it(folder: Path, typed: str) -> None:
    found = adopted(folder, f"torchrun --nproc-per-node=2 train.py {typed}")
    assert found["options"]["checkpoint_dir"] == ["else/where"]


def test_a_beginning_that_two_options_have_is_none_of_them(tmp_path: Path) -> None:
    written(tmp_path, train__py=SCRIPT.replace("args.out,", "args.log_dir,"))
    found = adopted(tmp_path, "torchrun --nproc-per-node=2 train.py --log-d else --log-e 3")
    assert found["options"]["checkpoint_dir"] == ["else"]
    found = adopted(tmp_path, "torchrun --nproc-per-node=2 train.py --log x")
    assert found["options"]["checkpoint_dir"] == ["logs"], "argparse itself refuses that"


@pytest.mark.parametrize(
    "saves",
    [
        "torch.save({}, (args.out or 'ckpt') + '/a.pt')",
        "out = args.out\nif not out:\n    out = 'ckpt'\ntorch.save({}, f'{out}/a.pt')",
        "torch.save({}, os.path.dirname(args.out) + '/a.pt')",
        "torch.save({}, os.path.join('runs', args.out, 'a.pt'))",
        "torch.save({}, args.out)\ntorch.save({}, 'best/a.pt')",
    ],
)
def test_no_other_folder_takes_the_place_of_the_typed_one(folder: Path, saves: str) -> None:
    written(folder, train__py=SCRIPT.partition("torch.save")[0] + saves + "\n")
    found = adopted(folder, "torchrun --nproc-per-node=2 train.py --out $FOEDIR")
    assert "checkpoint_dir" not in found["options"]
    assert found["missing"][0].startswith("--out is $FOEDIR: only the shell knows; ")


def test_a_variable_before_the_command_is_no_default_either(folder: Path) -> None:
    written(folder, train__py="import os, torch\ntorch.save({}, os.environ.get('OUT', 'ckpt') + '/a.pt')\n")
    found = adopted(folder, "OUT=$(mktemp -d) torchrun --nproc-per-node=2 train.py")
    assert "checkpoint_dir" not in found["options"]
    assert "OUT is $(mktemp -d): only the shell knows" in found["missing"][0]


def test_the_default_configuration_does_not_count_for_a_typed_one(tmp_path: Path) -> None:
    script = (
        "import argparse, torch, yaml\np = argparse.ArgumentParser()\n"
        "p.add_argument('--config', default='conf.yaml')\np.add_argument('--resume')\n"
        "args = p.parse_args()\ncfg = yaml.safe_load(open(args.config))\ntorch.load(args.resume)\n"
        "torch.save({}, cfg['out'] + '/a.pt')\n"
    )
    written(tmp_path, train__py=script, conf__yaml="out: ckpt\n")
    command = "torchrun --nproc-per-node=2 train.py"
    assert adopted(tmp_path, command)["options"]["checkpoint_dir"] == ["ckpt"]
    for typed in ("$CONF", "$HOME/my.yaml"):
        assert "checkpoint_dir" not in adopted(tmp_path, f"{command} --config {typed}")["options"]


@pytest.mark.parametrize("between", ["", "bash inner.sh"])
def test_what_a_script_exports_is_no_default_either(folder: Path, between: str) -> None:
    written(
        folder, train__py="import os, torch\ntorch.save({}, os.environ.get('OUT', 'ckpt') + '/a.pt')\n" * 2
    )
    launch = "torchrun --nproc-per-node=2 train.py\n"
    written(folder, inner__sh=launch, run__sh=f"export OUT=else/where\n{between or launch}\n")
    asked(folder, "--force", "run.sh")
    assert "# checkpoint_dir: else/where" in (folder / "faultrun.yaml").read_text()
    written(folder, run__sh=f"export OUT=$FOEDIR/ck\n{between or launch}\n")
    assert "OUT is $FOEDIR/ck: only the shell knows" in adopted(folder, "run.sh")["missing"][0]
    assert "ckpt" not in (folder / "faultrun.yaml").read_text()
