"""Every command of the documentation is run as it stands there; those that cannot be have a reason here."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import pytest

from faultrun.cli.app import program
from faultrun.errors import FaultrunError
from support.machine.free_port import free_port
from support.machine.processes import PATIENCE_S, end_all
from support.machine.receiver import receiving
from support.places import ROOT
from support.reporting.pages import PAGES, behind_faultrun, commands
from support.runs import FAULTRUN

NOT_RUN = {
    "faultrun lint": "a mention: it needs a file",
    **{
        f"faultrun rehearse {words}": "tests/rehearse: it needs a training of some minutes"
        for words in (
            "--worker_num=4 --checkpoint_dir=ckpt --resume_arg=--resume={checkpoint} train.py --lr 0.1",
            "--json --minutes=5 --faults=rank,rank0,stop --worker_num=2 --checkpoint_dir=ckpt train.py",
            "--diff --worker_num=4 train.py > better.diff",
        )
    },
    "faultrun --recipe=transformers": "a mention: it needs a script",
    "faultrun --recipe=NAME --worker_num=4 train.py ...": "a mention: test_recipe_examples.py",
    "faultrun prestop": "faults/processes/test_told_to_stop.py: it ends the run that the others look at",
    "faultrun stop": "faults/processes/test_told_to_stop.py, for the same reason",
    "faultrun checkpoint-now": "faults/saves/test_dying_gasp.py: a worker with the SDK saves and goes on",
    **{
        f"faultrun --recipe={words}": "tests/configs/recipes/test_examples.py: the code's own script"
        for words in (
            "megatron --worker_num=8 pretrain_gpt.py --save=ckpt --load=ckpt --save-interval=500",
            "mindformers --worker_num=8 run_mindformer.py --config=pretrain_qwen3.yaml",
            "mindformers-legacy --worker_num=8 run_mindformer.py --config=finetune_llama2.yaml",
        )
    },
    **{
        f"faultrun --nnodes={words} train.py": "tests/examples/test_several_nodes.py: alone it would wait"
        for words in (
            "2 --nproc-per-node=8 --master_addr=gpu07 --node_rank=0",
            "2 --nproc-per-node=8 --master_addr=gpu07 --node_rank=1",
            "3 --nproc-per-node=8 --rdzv-backend=etcd"
            " --rdzv-endpoint=e0:2379,e1:2379,e2:2379 --rdzv-id=job42",
            "3 --nproc-per-node=8 --rdzv-backend=etcd"
            " --rdzv-endpoint=e0:2379,e1:2379,e2:2379 --rdzv-id=job42 --checkpoint_dir=/shared/ckpt",
            "2:3 --nproc-per-node=8 --node_wait=2min --rdzv-backend=etcd"
            " --rdzv-endpoint=e0:2379 --rdzv-id=job42 --checkpoint_dir=/shared/ckpt",
            *(
                "2 --nproc-per-node=1 --master_addr=127.0.0.1"
                f" --node_rank={rank} --node_name={name} --checkpoint_dir=ckpt"
                for rank, name in enumerate("abc")
            ),
        )
    },
    **{
        f"faultrun {verb} --rdzv-endpoint={words}": "tests/cli/nodes/test_run_in_etcd.py: it needs an etcd"
        for verb, words in (
            ("status", "e0:2379,e1:2379,e2:2379 --rdzv-id=job42"),
            ("status", "e0:2379 --rdzv-id=job42 --watch"),
            ("status", "gpu07:29500 --json"),
            ("incident", "e0:2379 --rdzv-id=job42"),
            ("report", "e0:2379 --rdzv-id=job42"),
        )
    },
    "faultrun etcd": "tests/cli/nodes/test_etcd.py: it serves until it is told to end",
    "kubectl exec trainer-0 -- faultrun status": "needs a cluster; its words are parsed by test_docs",
    "kubectl logs trainer-0": "needs a cluster",
    "kubectl cp trainer-0:/workspace/faultrun_log/report.html report.html": "needs a cluster",
}
INSTALLS, MAKES = "pip install ", "make "
"""Not run: they would change the Python that tests, or take too long. Extras and targets are looked up."""

FILLED_IN = (
    (r"\bNAME\b", "job"),
    (r"\bJOB\.yaml\b", "job.yaml"),
    (r"\bDIR\b", "ckpt"),
    (r"incident N\b", "incident 1"),
    (r" \.\.\.$", " train.py"),
    (r"/logs/run7", "faultrun_log"),
    (r"/var/lib/node_exporter/|/tmp/", "made/"),
)
"""What a reader puts in the place of what stands there."""

MUST_BE_GIVEN = {"Dockerfile": "base_image=python:3.11", "slurm": ""}
"""What a template cannot guess; all others want an image."""

TRAIN = """
import os, signal
if os.environ["FAULTRUN_INCARNATION"] == "0" and os.environ["RANK"] == "1" and os.path.exists("fault"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
NAMES = ("pre_trained", "has_trained_epoch", "has_trained_step", "output_path", "checkpoint_path")
CONFIG = "".join(f"{name}: ''\n" for name in NAMES)
MARK = "TEST_MARK=documented"


def everything() -> list[str]:
    """Each command once, in the order of the pages."""
    return list(dict.fromkeys(command for page in PAGES for command in commands(page)))


def to_run() -> list[str]:
    return [one for one in everything() if one not in NOT_RUN and not one.startswith((INSTALLS, MAKES))]


def starts_a_run(command: str) -> bool:
    return "train.py" in command and "--dry-run" not in command


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a reader's script, configurations and checkpoint; and ``faultrun`` on the PATH."""
    folder = tmp_path / "desk"
    for name in ("ckpt", "lenet", "config", "made"):
        (folder / name).mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    for name in (
        "config.yaml",
        "resnet50_imagenet2012_config.yaml",
        "config/resnet50_imagenet2012_config.yaml",
    ):
        (folder / name).write_text(CONFIG)
    (folder / "values.yaml").write_text("namespace: ml\n")
    shutil.copy(ROOT / "tests/data/torch/zip.pt", folder / "ckpt" / "model_step_12.pt")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "faultrun").write_text(f'#!/bin/sh\nexec {shlex.join(FAULTRUN)} "$@"\n')
    (tools / "faultrun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("FAULTRUN_REPORT", "False")
    name, _, value = MARK.partition("=")
    monkeypatch.setenv(name, f"{value}{os.getpid()}")
    monkeypatch.chdir(folder)
    yield folder
    assert not end_all(f"{MARK}{os.getpid()}", within_s=30)


def filled_in(command: str) -> list[str]:
    """What a reader would type; of ``job|slurm`` each."""
    for pattern, instead in FILLED_IN:
        command = re.sub(pattern, instead, command)
    choice = re.search(r"\S+(\|\S+)+", command)
    return [command.replace(choice[0], one) for one in choice[0].split("|")] if choice else [command]


def in_a_shell(command: str, folder: Path) -> str:
    """What it said, if it did not end well."""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", command], cwd=folder, capture_output=True, text=True,
        timeout=3 * PATIENCE_S, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"


def here(command: str) -> str:
    """The same without a process, for verbs: most of their time is Python's own start."""
    words = behind_faultrun(command)
    if words[0] == "render" and len(words) > 1 and "--list" not in words:
        given = MUST_BE_GIVEN.get(words[1], "image=train:1")
        words[2:2] = ["--set", given] if given else []
    try:
        code = program().main(words, "faultrun", standalone_mode=False)
    except click.exceptions.Exit as end:
        code = end.exit_code
    except (click.ClickException, FaultrunError) as error:
        return f"{command}: {error}"
    return "" if code in (0, None) else f"{command}: ended with {code}"


@pytest.mark.slow
def test_every_command_does_what_a_reader_wants(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *runs = [command for command in to_run() if starts_a_run(command)]
    looks = [one for command in to_run() if not starts_a_run(command) for one in filled_in(command)]
    looks.sort(key=lambda one: ">" not in one)  # others want the files
    (desk / "fault").touch()
    assert in_a_shell(first, desk) == ""
    (desk / "fault").unlink()
    shutil.copytree(desk / "faultrun_log", desk / "faultrun_log" / "runs" / "brave-fox-1a2b")

    said = [in_a_shell(one, desk) if re.search("[|>]", one) else here(one) for one in looks]
    assert "\n".join(words for words in said if words) == ""
    assert "rank 1 of 4 killed by SIGKILL" in capsys.readouterr().out

    with receiving() as receiver, ThreadPoolExecutor(4) as pool:
        trained = [
            pool.submit(in_a_shell, _on_this_machine(one, receiver.address), _copy(desk, number))
            for number, command in enumerate(runs)
            for one in filled_in(command)
        ]
        assert "\n".join(done.result() for done in trained if done.result()) == ""
        assert receiver.sent_to("/hooks/training")
    assert len(looks) + len(runs) > 45


def _copy(desk: Path, number: int) -> Path:
    """Each run in a folder of its own, so that they may be at the same time."""
    folder = desk.parent / f"run_{number}"
    shutil.copytree(desk, folder, ignore=shutil.ignore_patterns("faultrun_log"))
    return folder


def _on_this_machine(command: str, address: str) -> str:
    """Ports and servers that are ours; nobody else is called."""
    command = re.sub(r"(--m\w+_port)=\d+", lambda found: f"{found[1]}={free_port()}", command)
    command = re.sub(r"https?://[a-z.]*(collector:4318|example\.org)", address, command)
    return command.replace("mail -s", "true -s")


def test_what_is_not_run_is_still_written_somewhere() -> None:
    assert set(NOT_RUN) <= set(everything())


def test_every_extra_that_is_to_be_installed_exists() -> None:
    known = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    asked = [extra for one in everything() for extra in re.findall(rf"{INSTALLS}.*\[(.*)\]", one)]
    assert len(asked) >= 4
    assert set(asked) <= set(known)


def test_every_target_that_is_to_be_made_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in everything():
        if command.startswith(MAKES):
            assert f"\n{command.split()[1]}:" in makefile
