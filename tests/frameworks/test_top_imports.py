"""Which imports of a program its standbys do before its turn, read from the source."""

from pathlib import Path

import pytest

from faultrun.frameworks.top_imports import TopImports, top_imports


def read(folder: Path, code: str) -> TopImports:
    (folder / "train.py").write_text(code)
    return top_imports(folder / "train.py", (folder,))


def test_statements_are_kept_as_they_are_written_and_in_order(tmp_path: Path) -> None:
    code = (
        '"""Train."""\n'
        "from __future__ import annotations\n"
        "import os, sys, numpy as np\n"
        "import torch.nn.functional as F\n"
        "from transformers import (\n    Trainer,\n    TrainingArguments as Args,\n)\n"
        "from faultrun import sdk\n"
        "LR = 0.1\n"
        "def main():\n    import pandas\n"
        "if __name__ == '__main__':\n    import scipy\n    main()\n"
    )
    assert read(tmp_path, code).statements == (
        "import numpy",
        "import torch.nn.functional",
        "from transformers import Trainer, TrainingArguments as Args",
    )


def test_modules_beside_the_program_are_not_imported_but_what_they_import_is(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import timm\nfrom . import nothing\nfrom layers.deep import Deep\n")
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "__init__.py").write_text("import einops\n")
    (tmp_path / "layers" / "deep.py").write_text("import torch\nimport model\n")
    assert read(tmp_path, "from model import Net\nimport torch\nimport data\n").statements == (
        "import timm",
        "import einops",
        "import torch",
        "import data",
    )
    (tmp_path / "data").mkdir()
    assert "import data" not in read(tmp_path, "import data\n").statements


@pytest.mark.parametrize(
    "line",
    [
        "sys.path.insert(0, 'vendor')",
        "sys.path = ['vendor']",
        "torch.set_default_dtype(torch.float64)",
        "setup()",
        "if os.getenv('X'):\n    sys.path.append('vendor')",
    ],
)
def test_nothing_is_taken_behind_a_line_that_may_change_an_imports_meaning(tmp_path: Path, line: str) -> None:
    code = f"import torch\n{line}\nimport transformers\n"
    assert read(tmp_path, code).statements == ("import torch",)


@pytest.mark.parametrize("line", ["warnings.filterwarnings('ignore')", "logging.basicConfig()", "x = f(1)"])
def test_lines_that_no_import_cares_about_are_passed_over(tmp_path: Path, line: str) -> None:
    assert read(tmp_path, f"{line}\nimport transformers\n").statements == ("import transformers",)


def test_what_is_tried_is_tried_and_what_depends_on_something_is_left(tmp_path: Path) -> None:
    code = "try:\n    import apex\nexcept ImportError:\n    apex = None\nif True:\n    import wandb\n"
    assert read(tmp_path, code).statements == ("import apex",)


def test_variables_that_the_program_sets_are_told_and_unknown_ones_forbid_all(tmp_path: Path) -> None:
    code = "import os\nos.environ['HF_HOME'] = 'x'\nos.environ.setdefault('WANDB_MODE', 'off')\nimport peft\n"
    assert read(tmp_path, code) == TopImports(statements=("import peft",), sets=("HF_HOME", "WANDB_MODE"))
    assert read(tmp_path, f"{code}os.environ[name()] = 'x'\n") == TopImports()


def test_a_program_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert read(tmp_path, "this is no Python") == TopImports()
    assert top_imports(None, ()) == TopImports()


def test_what_weighs_more_is_estimated_to_need_more(tmp_path: Path) -> None:
    plain = read(tmp_path, "import torch\nimport torch.nn\n").estimate_bytes
    trainer = read(tmp_path, "import torch\nfrom transformers import Trainer\n").estimate_bytes
    assert plain == 0
    assert trainer >= 85 << 20
