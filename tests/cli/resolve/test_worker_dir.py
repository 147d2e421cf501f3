"""``--worker_dir``: a folder for each worker, and what words mean in there."""

from pathlib import Path

import pytest

from faultrun.errors import UsageError
from support.asking import plan, refusal


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("train.py", "conf/a.yaml", "data/x.bin", "run.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("import torch\n" if name.endswith(".py") else "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_script_and_arguments_that_are_files_mean_what_they_mean_here(here: Path) -> None:
    words = (
        "--config=conf/a.yaml",
        "conf/a.yaml",
        "./data",
        "--mode",
        "data",
        "--out=new",
        "/etc/hosts",
        "-x",
    )
    settled = plan("--worker_num=2", "--worker_dir=run_{rank}", "train.py", *words)
    command = settled.spec.command
    assert command.prefix[1:] == ("-u", f"{here}/train.py")
    assert command.script_args == (
        f"--config={here}/conf/a.yaml", f"{here}/conf/a.yaml", f"{here}/data", "--mode", "data", "--out=new",
        "/etc/hosts", "-x",
    )  # fmt: skip
    assert f"--worker_dir: --config=conf/a.yaml conf/a.yaml ./data as seen from {here}" in settled.notes
    identity = settled.spec.identity
    assert [identity.folder_of(rank, rank, 0) for rank in range(2)] == [f"{here}/run_0", f"{here}/run_1"]


def test_interpreters_shells_and_commands_are_found_from_there_too(here: Path) -> None:
    (here / "run.sh").chmod(0o755)
    for words, prefix in (
        (("bash", "run.sh"), ("bash", f"{here}/run.sh")),
        (("./run.sh",), (f"{here}/run.sh",)),
        (("sleep", "1"), ("sleep",)),
        (("python", "-X", "dev", "train.py"), ("python", "-X", "dev", f"{here}/train.py")),
    ):
        assert plan("--worker_num=1", "--worker_dir=w", *words).spec.command.prefix == prefix


def test_a_module_is_still_found_where_faultrun_is_started(here: Path) -> None:
    spec = plan("--worker_num=1", "--worker_dir=w", "-m", "train", environ={"PYTHONPATH": "/lib/mine"}).spec
    assert dict(spec.environment)["PYTHONPATH"] == f"{here}:/lib/mine"
    assert "PYTHONPATH" not in dict(plan("--worker_num=1", "-m", "train").spec.environment)


def test_checkpoints_are_looked_for_from_here_once_for_each_rank(here: Path) -> None:
    dirs = ("--checkpoint_dir=ck", "--checkpoint_dir=run_{rank}/out")
    spec = plan("--worker_num=2", "--worker_dir=run_{rank}", *dirs, "train.py").spec
    assert spec.recovery.checkpoint_dirs == (f"{here}/ck", f"{here}/run_0/out", f"{here}/run_1/out")
    spec = plan("--worker_num=2", *dirs, "train.py").spec
    assert spec.recovery.checkpoint_dirs == ("ck", "run_0/out", "run_1/out")


def test_a_recipes_folder_lies_in_each_workers_and_one_that_is_given_here(here: Path) -> None:
    given = ("--worker_num=2", "--recipe=transformers", "--worker_dir=w_{local_rank}")
    settled = plan(*given, "train.py", "--output_dir=out")
    assert settled.spec.recovery.checkpoint_dirs == (f"{here}/w_0/out", f"{here}/w_1/out")
    assert any("give the script an absolute path" in note for note in settled.notes)
    (here / "old").mkdir()
    moved = plan(*given, "train.py", "--output_dir=./old")
    assert moved.spec.recovery.checkpoint_dirs == (f"{here}/old",), "the script is given it so, too"
    assert not any("absolute path" in note for note in moved.notes)
    named = plan(*given, "--checkpoint_dir=out", "train.py", "--output_dir=out")
    assert named.spec.recovery.checkpoint_dirs == (f"{here}/out",)
    (here / "mine.yaml").write_text("summary: s\ncheckpoint_dir: 'ck/rank_{rank}'\n")
    own = plan("--worker_num=2", "--recipe=./mine.yaml", "--worker_dir=w_{rank}", "train.py")
    assert own.spec.recovery.checkpoint_dirs == (f"{here}/w_0/ck/rank_0", f"{here}/w_1/ck/rank_1")


def test_without_the_option_nothing_is_changed() -> None:
    settled = plan("--worker_num=1", "train.py", "conf/a.yaml")
    assert settled.spec.command.prefix[-1] == "train.py"
    assert settled.spec.command.script_args == ("conf/a.yaml",)
    assert settled.spec.identity.folder_of(0, 0, 0) is None


def test_a_word_that_is_no_field_and_a_file_in_the_way_are_refused() -> None:
    assert "{rnak} is none of" in refusal("--worker_dir=run_{rnak}", "train.py").because
    error = refusal("--worker_num=2", "--worker_dir=train.py/{rank}", "train.py")
    assert isinstance(error, UsageError)
    assert "train.py is a file" in error.because
