"""The framework of a program, from its imports: real source files, nothing of them is run."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from faultrun.frameworks.detect import UnreadableSource, detect, find_module, read_imports
from faultrun.model.spec.run_spec import Framework

Write = Callable[[str, str], Path]

EXPLODES = "raise SystemExit('this file was run')\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(EXPLODES + text)
        return path

    return make


def framework_of(program: Path) -> Framework:
    return detect(program, [program.parent])


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("import mindspore as ms\n", Framework.MINDSPORE),
        ("from mindspore.communication import init\n", Framework.MINDSPORE),
        ("from mindformers import Trainer\n", Framework.MINDSPORE),
        ("import torch.nn as nn\n", Framework.TORCH),
        ("from transformers import Trainer\n", Framework.TORCH),
        ("import accelerate\n", Framework.TORCH),
        ("import deepspeed\n", Framework.TORCH),
        ("from transformers import AutoTokenizer\nimport mindspore\n", Framework.MINDSPORE),
        ("from transformers import AutoTokenizer\nimport tensorflow\n", Framework.TENSORFLOW),
        ("def main():\n    import torch\n", Framework.TORCH),
        ("try:\n    from lightning import Trainer\nexcept ImportError:\n    pass\n", Framework.TORCH),
        ("import tensorflow as tf\n", Framework.TENSORFLOW),
        ("import npu_bridge\n", Framework.TENSORFLOW),
        ("import numpy, torchlike, mindspore_helpers\n", Framework.PLAIN),
        ("text = 'import torch'  # import torch\n", Framework.PLAIN),
        ("", Framework.PLAIN),
    ],
)
def test_the_framework_is_the_one_that_is_imported(write: Write, text: str, framework: Framework) -> None:
    assert framework_of(write("train.py", text)) is framework


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("import mindspore\nimport torch\nimport torch.distributed as dist\n", Framework.TORCH),
        ("import mindspore\nimport torch\ntorch.distributed.init_process_group()\n", Framework.TORCH),
        ("import torch\nimport mindspore as ms\nms.communication.init()\n", Framework.MINDSPORE),
        ("import tensorflow\nfrom torch.nn.parallel import DistributedDataParallel\n", Framework.TORCH),
        ("import torch\nimport mindspore\n", Framework.MINDSPORE),
        ("import tensorflow\nimport torch\n", Framework.TORCH),
    ],
)
def test_of_two_frameworks_the_one_whose_processes_talk_to_each_other_trains(
    write: Write, text: str, framework: Framework
) -> None:
    assert framework_of(write("train.py", text)) is framework


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("model.py", "import model\n"),
        ("src/net.py", "from src.net import Net\n"),
        ("src/net.py", "from src import net\n"),
        ("src/__init__.py", "import src\n"),
        ("src/__init__.py", "from src.missing import x\n"),
        ("net.py", "from .net import Net\n"),
        ("net.py", "from . import net\n"),
    ],
)
def test_local_modules_are_followed(write: Write, name: str, line: str) -> None:
    write(name, "import mindspore\n")
    assert framework_of(write("train.py", line)) is Framework.MINDSPORE


def test_local_modules_are_followed_one_level_only(write: Write) -> None:
    write("one.py", "import two\n")
    write("two.py", "import torch\n")
    assert framework_of(write("train.py", "import one\n")) is Framework.PLAIN
    assert framework_of(write("one.py", "import two\n")) is Framework.TORCH


def test_distributed_training_in_a_local_module_outweighs_a_bare_import_in_the_script(write: Write) -> None:
    write("engine.py", "from mindspore.communication import init\n")
    write("broken.py", "def :\n")
    program = write("train.py", "import torch\nimport broken, engine\n")
    assert framework_of(program) is Framework.MINDSPORE


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"import torch\ndef :\n", "(line 2)"),
        (b"\x00", "null bytes"),
        (b"import torch\n" + b"#" * (4 << 20), "larger than 4 MiB"),
        (b"# coding: klingon\nimport torch\n", "unknown encoding"),
    ],
)
def test_a_file_that_python_cannot_read_is_plain_and_who_asks_hears_why(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(content)
    assert framework_of(path) is Framework.PLAIN
    with pytest.raises(UnreadableSource, match=re.escape(reason)):
        read_imports(path)


def test_source_in_another_encoding_and_with_odd_escapes_is_read_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes("# coding: latin-1\nimport torch\nname = 'Grüße \\d'\n".encode("latin-1"))
    assert framework_of(path) is Framework.TORCH


def test_a_module_is_found_as_python_finds_it_and_never_imported(write: Write, tmp_path: Path) -> None:
    module = write("pack/train.py", "")
    write("pack/__init__.py", "")
    main = write("pack/__main__.py", "")
    loose = write("space/inner/job.py", "")
    search = [str(tmp_path), *sys.path]
    assert find_module("pack.train", search) == module
    assert find_module("pack", search) == main
    assert find_module("space.inner.job", search) == loose
    assert find_module("json.tool", search) is not None
    assert find_module("pytest", search) is not None
    assert "pack" not in sys.modules


@pytest.mark.parametrize("name", ["none", "pack.none", "json", "sys", "", ".", "pack.", "train.py"])
def test_what_python_would_not_run_as_a_module_is_not_found(write: Write, tmp_path: Path, name: str) -> None:
    write("pack/__init__.py", "")
    write("train.py", "")
    assert find_module(name, [str(tmp_path), *sys.path]) is None


def test_the_working_directory_comes_before_the_import_path(write: Write, tmp_path: Path) -> None:
    mine = write("json/tool.py", "")
    write("json/__init__.py", "")
    assert find_module("json.tool", [str(tmp_path), *sys.path]) == mine
