"""Two Trainers in one script, killed in the first and in the second: no bit of the result changes."""

import re
from pathlib import Path

import pytest

from examples.codes import faultrun, undisturbed
from examples.launched import launched
from support.machine.installed import need
from support.places import ROOT

need("transformers")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = ROOT / "tests" / "sdk" / "scripts" / "two_trainers.py"


def stages(text: str) -> dict[str, tuple[str, str]]:
    """From where each went on, and the digest of its result."""
    found = re.findall(r"^stage (\w+) from (\S+) digest (\w{8})$", text, re.MULTILINE)
    return {name: (begins_at, digest) for name, begins_at, digest in found}


def test_each_goes_on_from_its_own_checkpoint_and_ends_as_if_undisturbed(tmp_path: Path) -> None:
    (quiet := tmp_path / "quiet").mkdir()
    (killed := tmp_path / "killed").mkdir()
    whole = stages(undisturbed(SCRIPT, imports=("transformers.trainer",), cwd=quiet))
    assert [begins_at for begins_at, _ in whole.values()] == ["None", "None"]
    kill = "--kill=pretrain@7,finetune@3,finetune@17"
    with launched(*faultrun("--checkpoint_dir=out", SCRIPT, kill), cwd=killed) as run:
        assert run.wait_for_the_end(within_s=480) == 0
        second, third, last = (stages(run.output(life).text) for life in (1, 2, 3))
    out = killed / "out"
    assert second["pretrain"][0].endswith("checkpoint-7")
    assert third["pretrain"][0] == str(out / "pretrain" / "checkpoint-12")
    assert Path(killed, last["pretrain"][0]) == out / "pretrain" / "checkpoint-12"
    assert str(out / "finetune" / "_gasp") in last["finetune"][0]
    assert {name: digest for name, (_, digest) in last.items()} == {
        name: digest for name, (_, digest) in whole.items()
    }
