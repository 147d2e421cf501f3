"""What runs of ours set is given back key by key, whoever edited the file since; files of every format."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.configs.apply import apply, take_back
from faultrun.configs.former import formers, note_of
from faultrun.configs.originals import restore
from faultrun.model.edit import Setting
from support.checkpoints.config_files import one

FILES = {
    "a.yaml": ("lr: 1\npre: ''  # here\nlast: 2\n", "lr: 1\nlast: 2\n", "{}seed: 3\n"),
    "flow.yaml": ("{lr: 1, pre: ~, last: 2}\n", "{lr: 1, last: 2}\n", "# mine\n{}"),
    "a.json": ('{\n  "lr": 1,\n  "pre": null\n}\n', '{\n  "lr": 1\n}\n', "{}\n"),
    "a.toml": ('pre = ""\nlr = 1\n', "lr = 1\n", "{}# mine\n"),
    "a.ini": ("[t]\npre = none\nlr = 1\n", "[t]\nlr = 1\n", "{}; mine\n"),
    "a.env": ("PRE=''\nLR=1\n", "LR=1\n", "{}SEED=3\n"),
    "a.sh": ('#!/bin/sh\nPRE=""\nLR=1\n', "#!/bin/sh\nPRE=\n", "{}echo $PRE\n"),
    "a.py": ("PRE = None\nlr = 1\n", "PRE = f()\n", "# mine\n{}"),
}
KEYS = {"a.ini": "t.pre", "a.env": "PRE", "a.sh": "PRE", "a.py": "PRE"}


def setting(file: Path, value: str) -> list[Setting]:
    return one(file, KEYS.get(file.name, "pre"), value)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("edited", [True, False])
def test_every_format_says_again_what_it_did(tmp_path: Path, name: str, there: bool, edited: bool) -> None:
    """Two runs have set it; the log_dir of neither is left."""
    text, without, edit = FILES[name]
    file, before = tmp_path / name, text if there else without
    file.write_text(before)
    for run, value in (("a", "/ckpt/5"), ("b", "/other/7"), ("a", "/ckpt/9")):
        apply(setting(file, value), originals=tmp_path / run / "original")
    if edited:
        file.write_text(edit.format(file.read_text()))
    shutil.rmtree(tmp_path / "a")
    assert take_back([file]) == (file,)
    assert file.read_text() == (edit.format(before) if edited else before)
    assert not note_of(file).exists()
    assert take_back([file]) == ()


@pytest.mark.parametrize("name", FILES)
def test_a_value_that_somebody_has_set_since_is_his(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(FILES[name][0])
    apply(setting(file, "/ckpt/5"), originals=tmp_path / "original")
    theirs = file.read_text().replace("/ckpt/5", "/pretrained")
    file.write_text(theirs)
    assert take_back([file]) == ()
    assert file.read_text() == theirs
    assert not note_of(file).exists()


@pytest.mark.parametrize("dump", [yaml.safe_dump, lambda held: yaml.safe_dump(held, default_style="'")])
def test_a_script_that_dumps_the_file_anew_spells_our_value_otherwise_and_it_is_ours(
    tmp_path: Path, dump: Callable[[object], str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("lr: 1\npre:\n")
    apply(setting(file, "/ckpt/5"), originals=tmp_path / "log" / "original")
    file.write_text(dump({**yaml.safe_load(file.read_text()), "seed": "3"}))
    assert take_back([file]) == (file,)
    assert yaml.safe_load(file.read_text())["pre"] is None


def test_a_copy_of_a_configuration_that_a_run_has_set_says_what_the_original_did(tmp_path: Path) -> None:
    file, copied, other = (tmp_path / name for name in ("a.yaml", "copied.yaml", "other.yaml"))
    file.write_text(FILES["a.yaml"][0])
    apply(setting(file, "/ckpt/5"), originals=tmp_path / "original")
    copied.write_text(file.read_text().replace("seed: 3", "seed: 4"))
    other.write_text(FILES["a.yaml"][0].replace("''", "/mine"))
    assert take_back([copied, other]) == (copied,)
    assert copied.read_text() == FILES["a.yaml"][0]
    assert note_of(file).exists()


@pytest.mark.parametrize(("name", "text"), [("a.ini", "[t]\npre = \n"), ("a.yaml", "pre:\nlr: 1\n")])
def test_an_empty_value_is_empty_again(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    apply(setting(file, "/ckpt/5"), originals=tmp_path / "original")
    assert take_back([file]) == (file,)
    assert file.read_text().split() == text.split()


def test_what_one_run_keeps_as_the_original_is_not_what_another_wrote(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(FILES["a.yaml"][0])
    for run in "ab":
        apply(setting(file, f"/{run}/5"), originals=tmp_path / run)
    for run in "ba":
        restore(tmp_path / run)
        assert file.read_text() == FILES["a.yaml"][0]


def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("pre: 1\n")
    for text in ("", "[]", '{"keys": {"pre": {"ours": 3}}}', json.dumps({"keys": {"pre": {"x": 1}}})):
        note_of(file).write_text(text)
        assert formers(file) == {}
        assert take_back([file]) == ()


DEEDS = st.lists(
    st.sampled_from(["run a", "run b", "edit", "set", "a ends", "b ends", "a new run", "log_dirs lost"]),
    max_size=10,
)


@settings(max_examples=60, deadline=None)
@given(deeds=DEEDS, name=st.sampled_from(["a.yaml", "a.toml", "a.env"]))
def test_no_history_leaves_a_path_of_ours_or_takes_an_edit_away(deeds: list[str], name: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        file = folder / name
        file.write_text(FILES[name][0])
        expected = FILES[name][0]
        for number, deed in enumerate(deeds):
            match deed.split():
                case ["run", run]:
                    apply(setting(file, f"/ours/{run}{number}"), originals=folder / run)
                case ["edit"]:
                    file.write_text(file.read_text() + f"# {number}\n")
                    expected += f"# {number}\n"
                case ["set"]:
                    take_back([file])
                    apply(setting(file, "/theirs"), originals=folder / "c")
                    note_of(file).unlink(missing_ok=True)  # as if a person had written it
                    expected = file.read_text()
                case ["log_dirs", _]:
                    for run in "ab":
                        shutil.rmtree(folder / run, ignore_errors=True)
                case [run, "ends"]:
                    if (folder / run).exists() and note_of(file).exists():
                        restore(folder / run)
                case _:
                    take_back([file])
        take_back([file])
        assert file.read_text() == expected
