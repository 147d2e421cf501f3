"""``faultrun.yaml`` in the folder of SCRIPT: when it is used, what it yields to, who may have written it."""

import os
from pathlib import Path

import pytest

from faultrun.cli.options.config_beside_script import config_beside
from faultrun.cli.options.settings import Settings, collect_for_run
from faultrun.errors import ConfigError
from support.asking import ask
from support.machine.scripts import faultrun


def settle_beside(*words: str, **environ: str) -> Settings:
    return collect_for_run(ask(*words), environ)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "code" / "train.py"
    path.parent.mkdir()
    path.write_text("print(1)\n")
    (path.parent / "faultrun.yaml").write_text("worker_num: 3\ncheckpoint_dir: ckpt\nmax_restarts: 1\n")
    return path


def test_it_is_used_and_named_with_what_is_taken_from_it(script: Path) -> None:
    settings = settle_beside("--max_restarts=9", str(script))
    assert (settings.worker_num, settings.max_restarts) == (3, 9)
    assert settings.notes == (
        f"options from {script.parent}/faultrun.yaml: worker_num, checkpoint_dir  "
        "(--config=none leaves them out)",
    )
    assert settings.where(Settings.worker_num) == f"{script.parent}/faultrun.yaml:1 worker_num"


def test_command_line_and_variables_and_another_config_win(script: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("worker_num: 5\n")
    assert settle_beside("--worker_num=2", str(script)).worker_num == 2
    assert settle_beside(str(script), FAULTRUN_WORKER_NUM="4").worker_num == 4
    settings = settle_beside(f"--config={other}", str(script))
    assert (settings.worker_num, settings.checkpoint_dir, settings.notes) == (5, (), ())
    assert settle_beside(str(script), FAULTRUN_CONFIG=str(other)).worker_num == 5


def test_none_switches_it_off(script: Path) -> None:
    for settings in (
        settle_beside("--config=none", str(script)),
        settle_beside(str(script), FAULTRUN_CONFIG="none"),
    ):
        assert (settings.worker_num, settings.notes) == (None, ())


def test_another_word_for_the_number_of_workers_does_not_contradict_it(script: Path) -> None:
    settings = settle_beside("--nproc-per-node=2", str(script))
    assert (settings.worker_num, settings.nproc_per_node) == (None, "2")


def test_only_the_scripts_own_folder_is_looked_into(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = script.parent / "below"
    below.mkdir()
    (below / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(script.parent)
    assert config_beside(("below/train.py",), module=False) == ""
    assert config_beside(("train.py",), module=False) == "faultrun.yaml"
    assert config_beside(("python", "-u", "train.py"), module=False) == "faultrun.yaml"
    assert config_beside(("train",), module=True) == str(script.parent / "faultrun.yaml")
    assert config_beside(("missing.py",), module=False) == ""
    assert config_beside((), module=False) == ""
    assert config_beside(("x" * 5000,), module=False) == ""


def test_a_link_to_a_regular_file_counts_as_a_mounted_config_map_is_one(script: Path) -> None:
    mounted = script.parent / "..data.yaml"
    (script.parent / "faultrun.yaml").rename(mounted)
    (script.parent / "faultrun.yaml").symlink_to(mounted)
    assert settle_beside(str(script)).worker_num == 3


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(script: Path, make: object) -> None:
    path = script.parent / "faultrun.yaml"
    path.unlink()
    assert callable(make)
    make(path)
    with pytest.raises(ConfigError) as caught:
        settle_beside(str(script))
    assert caught.value.because == "it is no regular file"
    assert "--config=none" in caught.value.hint
    assert settle_beside("--worker_num=2", "--config=none", str(script)).worker_num == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused(script: Path) -> None:
    os.chown(script.parent / "faultrun.yaml", 4711, 4711)
    with pytest.raises(ConfigError) as caught:
        settle_beside(str(script))
    assert "user 4711" in caught.value.because
    os.chown(script, 4711, 4711)
    assert settle_beside(str(script)).worker_num == 3, "who owns the script may say how it is run"


@pytest.mark.parametrize("content", ["services:\n  web: 1\n", "- 1\n", "a: [\n", "\x00"])
def test_one_that_is_broken_or_of_another_program_is_a_clear_error(script: Path, content: str) -> None:
    (script.parent / "faultrun.yaml").write_text(content)
    with pytest.raises(ConfigError) as caught:
        settle_beside(str(script))
    assert caught.value.exit_code == 78
    assert "faultrun.yaml" in caught.value.what


@pytest.mark.slow
def test_a_run_uses_it_and_says_so(script: Path) -> None:
    told = faultrun("--dry-run", "code/train.py", cwd=script.parent.parent)
    assert told.returncode == 0, told.stderr
    assert "options from code/faultrun.yaml: worker_num, checkpoint_dir, max_restarts" in told.stderr


def test_a_link_to_nothing_is_an_error_and_not_left_out(script: Path) -> None:
    config = script.parent / "faultrun.yaml"
    config.unlink()
    config.symlink_to("gone.yaml")
    with pytest.raises(ConfigError, match="a link to nothing") as raised:
        settle_beside(str(script))
    assert raised.value.exit_code == 78
    assert settle_beside("--config=none", str(script)).worker_num is None
    config.unlink()
    config.symlink_to("faultrun.yaml")
    with pytest.raises(ConfigError, match="a link to nothing"):
        settle_beside(str(script))
