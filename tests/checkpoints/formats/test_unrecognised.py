"""A folder that is not empty and holds nothing known is said, with what to try."""

from pathlib import Path

import pytest

from faultrun.checkpoints.formats.unrecognised import unknown_files
from faultrun.checkpoints.formats.user_pattern import Pattern
from faultrun.checkpoints.registry import builtin_formats
from support.checkpoints.catalogs import only
from support.checkpoints.torch_files import ZIP


def said(root: Path) -> str:
    return unknown_files([str(root)], builtin_formats())


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"weights")


def test_a_file_of_no_known_format_is_named_with_a_pattern_that_finds_it(tmp_path: Path) -> None:
    put(tmp_path, "out/state-500.bin")
    assert said(tmp_path) == (
        f"a file of no known format, state-500.bin, lies in {tmp_path}/out; if that is a checkpoint, try "
        r"--checkpoint_pattern='state\-(?P<step>\d+)\.bin' or a recipe (faultrun recipes)"
    )
    assert only(tmp_path, (Pattern(r"state\-(?P<step>\d+)\.bin"),)).global_step == 500


def test_of_several_the_largest_is_the_example(tmp_path: Path) -> None:
    put(tmp_path, "rl_model_1000_steps.zip", "replay_buffer")
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(100))
    assert said(tmp_path).startswith("3 files of no known format, such as pytorch_model.bin, lie in ")


@pytest.mark.parametrize("many", [(), ("one",), ("one", "two")])
def test_what_people_read_and_side_files_are_no_reason_to_say_anything(
    tmp_path: Path, many: tuple[str, ...]
) -> None:
    put(tmp_path, "worker_0.log", "config.json", "train.py", ".hidden", "optimizer.pt", "loss.png", "x.tmp")
    put(tmp_path, "rank_0/random-state", "journal.jsonl", "incarnation_0/progress", "incarnation_0/signals_0")
    put(tmp_path, *(f"{one}/events.out.tfevents.17.host" for one in many))
    (tmp_path / "empty").touch()
    assert said(tmp_path) == ""
    assert said(tmp_path / "not there yet") == ""


def test_a_checkpoint_of_a_known_format_is_not_unknown(tmp_path: Path) -> None:
    (tmp_path / "epoch_3.pt").write_bytes(ZIP.read_bytes())
    assert said(tmp_path) == ""


def test_a_name_that_would_command_a_terminal_is_shown_harmless(tmp_path: Path) -> None:
    put(tmp_path, "a\x1b[31m7.bin")
    assert "\x1b" not in said(tmp_path)
