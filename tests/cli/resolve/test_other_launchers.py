"""Another launcher as SCRIPT, or inside of it: what to write instead is said."""

from pathlib import Path

import pytest

from faultrun.model.spec.run_spec import Framework
from support.asking import plan, refusal


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (
            "python -m torch.distributed.run --nproc_per_node=2 SCRIPT --lr 1",
            "faultrun --nproc_per_node=2 SCRIPT --lr 1",
        ),
        (
            "python3 -u -m torch.distributed.launch --nproc_per_node 4 SCRIPT",
            "faultrun --nproc_per_node 4 SCRIPT",
        ),
        ("-m torch.distributed.run --standalone SCRIPT", "faultrun --standalone SCRIPT"),
    ],
)
def test_torchrun_as_a_module_is_told_the_line_to_use(script: str, words: str, instead: str) -> None:
    (note,) = (
        one
        for one in plan("--worker_num=1", *words.replace("SCRIPT", script).split()).notes
        if "in its place" in one
    )
    assert note == (
        "torchrun would start its own workers in each worker; give faultrun in its place: "
        + instead.replace("SCRIPT", script)
    )


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("torchrun --nproc-per-node=2 SCRIPT", "faultrun --nproc-per-node=2 SCRIPT"),
        ("msrun --worker_num=8 SCRIPT", "faultrun --worker_num=8 SCRIPT"),
        (
            "accelerate launch --num_processes 2 --mixed_precision no SCRIPT -x",
            "faultrun --worker_num=2 SCRIPT -x",
        ),
        ("accelerate launch SCRIPT", "faultrun SCRIPT"),
        ("deepspeed --num_gpus=4 SCRIPT --deepspeed", "faultrun --worker_num=4 SCRIPT --deepspeed"),
        ("mpirun -np 4 python SCRIPT", "faultrun --worker_num=4 SCRIPT"),
    ],
)
def test_a_launcher_that_is_not_there_is_refused_with_that_line_and_one_that_is_gets_a_note(
    script: str, words: str, instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = words.replace("SCRIPT", script).split()
    expected = instead.replace("SCRIPT", script)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal(*typed).hint.endswith(f"in its place: {expected}")
    (tmp_path / typed[0]).write_text("#!/bin/sh\n")
    (tmp_path / typed[0]).chmod(0o755)
    assert any(note.endswith(f"in its place: {expected}") for note in plan("--worker_num=1", *typed).notes)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("torchrun --nproc_per_node=2 train.py", "torchrun"),
        ("OMP_NUM_THREADS=1 python -m torch.distributed.launch train.py", "torch.distributed.launch"),
        ("cd x && accelerate  launch train.py", "accelerate launch"),
    ],
)
def test_one_inside_of_a_shell_script_is_pointed_out_there(tmp_path: Path, line: str, name: str) -> None:
    shell = tmp_path / "run.sh"
    shell.write_text(f"# msrun\n{line}\n")
    told = f"{shell} starts {name}, whose workers faultrun cannot see: write faultrun in its place"
    assert told in plan("--worker_num=1", "bash", str(shell)).notes
    assert any(
        f"the command starts {name}" in note for note in plan("--worker_num=1", "bash", "-c", line).notes
    )


def test_words_that_only_look_like_a_launcher_are_left_alone(script: str, tmp_path: Path) -> None:
    shell = tmp_path / "run.sh"
    shell.write_text(f"echo see torchrun.md\npip install deepspeed\npython {script} --name torchrun\n")
    for words in (
        ("bash", str(shell)),
        (script, "torchrun"),
        ("python", script, "-m", "torch.distributed.run"),
    ):
        notes = plan("--worker_num=1", *words).notes
        assert not any("in its place" in note or "cannot see" in note for note in notes), words


def test_the_framework_is_found_behind_a_cd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "train_it.py").write_text("import torch\n")
    monkeypatch.chdir(tmp_path)
    shell = tmp_path / "run.sh"
    for code in (
        "cd d/e && python train_it.py",
        "cd d/e; $PYTHON train_it.py",
        'cd "$(dirname "$0")/d/e" && python -u train_it.py',
        "pushd . \ncd ${BASE}/d/e\nS=train_it.py\nexec python $S --x 1",
    ):
        assert plan("--worker_num=1", "bash", "-c", code).spec.framework is Framework.TORCH, code
        shell.write_text(f"#!/bin/bash\n{code}\n")
        assert plan("--worker_num=1", "bash", str(shell)).spec.framework is Framework.TORCH, code
