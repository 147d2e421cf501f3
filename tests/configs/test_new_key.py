"""A key that is added because it was misspelt is asked about; one that is new is not."""

from pathlib import Path

import pytest

from faultrun.configs.apply import check
from faultrun.configs.target import doubtful_keys
from faultrun.model.spec.run_spec import Rewrite

TEXTS = {
    "a.yaml": "pre_trained: ''\nhas_trained_epoch: 1\nmodel:\n  load_path: x\n",
    "a.json": '{"pre_trained": "", "has_trained_epoch": 1, "model": {"load_path": "x"}}\n',
    "a.toml": 'pre_trained = ""\nhas_trained_epoch = 1\n[model]\nload_path = "x"\n',
    "a.env": "pre_trained=\nhas_trained_epoch=1\nload_path=x\n",
}


def doubts(folder: Path, name: str, key: str) -> list[str]:
    file = folder / name
    file.write_text(TEXTS[name])
    return doubtful_keys(check([Rewrite(file=str(file), key=key)], originals=folder / "original"))


@pytest.mark.parametrize("name", TEXTS)
def test_a_key_beside_one_of_nearly_its_name_is_asked_about(tmp_path: Path, name: str) -> None:
    said = f"pre_trainde is a new key in {tmp_path / name}; did you mean pre_trained?"
    assert doubts(tmp_path, name, "pre_trainde") == [said]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("key", ["pre_trained", "resume_from", "has_trained_step"])
def test_a_key_that_is_there_or_new_is_not(tmp_path: Path, name: str, key: str) -> None:
    assert doubts(tmp_path, name, key) == []


def test_the_last_part_of_a_key_counts(tmp_path: Path) -> None:
    assert doubts(tmp_path, "a.yaml", "model.load_pth") == [
        f"model.load_pth is a new key in {tmp_path / 'a.yaml'}; did you mean load_path?"
    ]
