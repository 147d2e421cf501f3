"""Standbys of the codes that people train with: what takes their seconds is imported before their turn."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultrun.frameworks.top_imports import top_imports
from faultrun.model.exits import Exited
from support.lightly import lightly
from support.machine.installed import need
from support.machine.standby_stage import Stage, hears, status_of
from support.places import TESTS

pytestmark = [pytest.mark.slow, pytest.mark.torch]

SUPPORT = TESTS / "support"
TELLS = """
import json, os, sys
early = set(sys.modules)
{imports}
if __name__ == "__main__":
    print(json.dumps({{
        "early": sorted(set({wanted!r}) & early),
        "port": os.environ["MASTER_PORT"],
    }}))
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.mark.parametrize(
    ("package", "imports", "wanted"),
    [
        (
            "transformers",
            "from transformers import GPT2LMHeadModel, Trainer, TrainingArguments",
            ["transformers.models.gpt2.modeling_gpt2", "transformers.trainer"],
        ),
        ("accelerate", "from accelerate import Accelerator", ["accelerate.accelerator"]),
        ("lightning", "import lightning as L", ["lightning.pytorch.trainer.trainer"]),
    ],
)
def test_the_slow_part_is_imported_before_and_nothing_shows(
    stage: Stage, package: str, imports: str, wanted: list[str]
) -> None:
    need(package)
    script = stage.folder / "train.py"
    script.write_text(TELLS.format(imports=imports, wanted=wanted))
    light = lightly(SUPPORT)
    found = top_imports(script, (stage.folder,))
    before = stage.launch(str(script), RANK="1", MASTER_PORT="1", **light)
    standby = stage.standby(before, "torch", *found.statements, sets=found.sets)
    said = hears(standby)
    assert (said["kind"], said["plain"]) == ("ready", "")
    after = stage.launch(str(script), RANK="1", MASTER_PORT="2", **light)
    assert standby.hand_over(after, (), None)
    assert hears(standby) == {"kind": "taken"}
    assert status_of(standby.process) == Exited(code=0)
    told = json.loads((stage.folder / "out").read_text().splitlines()[-1])
    stage.runs(stage.launch(str(script), out="fresh", RANK="1", MASTER_PORT="2", **light))
    fresh = json.loads((stage.folder / "fresh").read_text().splitlines()[-1])
    assert told == {**fresh, "early": wanted}
    assert fresh["early"] == []
