"""Checkpoints that MindSpore encrypted: not torn while their frames are complete, never whole unasked."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultrun.checkpoints.catalog import Catalog
from faultrun.cli.ckpt.command import ckpt as command
from faultrun.core.recovery.choose import Chosen, NoneUsable
from faultrun.core.recovery.need import Doubt, Need, World
from faultrun.errors import NoWholeCheckpoint
from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.events import NothingWhole, RecoveryPointChosen
from faultrun.model.spec.run_spec import Recovery
from faultrun.supervisor.checkpoints.finder import CheckpointFinder, FindAnswer
from faultrun.supervisor.reactor import RunClock
from support.checkpoints.catalogs import judge, survey_of
from support.checkpoints.ckpt_bytes import ckpt, save
from support.places import TESTS
from support.stories.specs import a_spec

DATA = TESTS / "data" / "mindspore"
MODES = ("AES-GCM", "AES-CBC", "SM4-CBC")
FRAME = (DATA / "AES-GCM.ckpt").read_bytes()
"""MindSpore 2.10: 256 float32 zeros, epoch_num and step_num, under a key of 16 bytes."""

TRUSTING = Need(world=World(size=1), doubt=Doubt(trust=True))


def encrypted(root: Path, name: str, data: bytes = FRAME) -> Path:
    return save(root / name, data)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("frames", [1, 3])
def test_complete_frames_are_neither_torn_nor_whole(tmp_path: Path, mode: str, frames: int) -> None:
    encrypted(tmp_path, "net-1_20.ckpt", (DATA / f"{mode}.ckpt").read_bytes() * frames)
    verdict = judge(tmp_path, "net-1_20.ckpt")
    assert (verdict.whole, verdict.unverifiable) == (False, True)
    assert verdict.why.startswith(f"cannot be verified: encrypted ({frames} complete frame")


@pytest.mark.parametrize("mode", MODES)
def test_every_cut_within_a_frame_is_torn_and_trust_does_not_help(tmp_path: Path, mode: str) -> None:
    data = (DATA / f"{mode}.ckpt").read_bytes()
    for size in (*range(1, 60), len(data) - 1, len(data) + 1, len(data) + 30):
        encrypted(tmp_path, "net-1_20.ckpt", (data * 2)[:size])
        verdict = judge(tmp_path, "net-1_20.ckpt")
        assert not verdict.whole
        assert not verdict.unverifiable, size
        assert isinstance(survey_of(tmp_path, TRUSTING).choice, NoneUsable)


def test_an_older_verified_file_is_taken_unless_somebody_trusts_the_newer(tmp_path: Path) -> None:
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10))
    encrypted(tmp_path, "net-1_20.ckpt")
    careful, trusting = survey_of(tmp_path).choice, survey_of(tmp_path, TRUSTING).choice
    assert isinstance(careful, Chosen)
    assert isinstance(trusting, Chosen)
    assert (Path(careful.point.path).name, careful.point.unverified) == ("net-1_10.ckpt", False)
    assert (Path(trusting.point.path).name, trusting.point.unverified) == ("net-1_20.ckpt", True)
    assert trusting.refused == ()
    assert trusting.point.position == "step 20 (epoch 1), unverified"


def test_a_verified_file_of_the_same_step_comes_first_even_for_who_trusts(tmp_path: Path) -> None:
    for rank in (0, 1):
        save(tmp_path / f"rank_{rank}/net-1_20.ckpt", FRAME if rank == 0 else ckpt(1, 20))
    save(tmp_path / "rank_0/net-1_20.ckpt", FRAME)
    choice = survey_of(tmp_path, replace(TRUSTING, world=World(size=2))).choice
    assert isinstance(choice, Chosen)
    assert [Path(file.path).parent.name for file in choice.point.files] == ["rank_1", "rank_1"]
    assert not choice.point.unverified


def test_a_digest_beside_it_verifies_it(tmp_path: Path) -> None:
    encrypted(tmp_path, "net-1_20.ckpt")
    digest = save(tmp_path / "net-1_20.ckpt.sha256", hashlib.sha256(FRAME).hexdigest().encode())
    assert judge(tmp_path, "net-1_20.ckpt").whole
    digest.write_text("0" * 64)
    verdict = judge(tmp_path, "net-1_20.ckpt")
    assert not (verdict.whole or verdict.unverifiable)


def survey(root: Path, *, trust: bool) -> FindAnswer:
    recovery = Recovery(checkpoint_dirs=(str(root),), trust=trust)
    catalog = Catalog((str(root),), settle_s=0.0)
    finder = CheckpointFinder(replace(a_spec(workers=2), recovery=recovery), catalog, RunClock())
    return finder.find(FindRecoveryPoint(incarnation=1, continuing=True, fault_at_s=0.0), 0.0)


def test_a_run_that_finds_nothing_else_ends_and_names_the_option_that_helps(tmp_path: Path) -> None:
    for step in (10, 20):
        encrypted(tmp_path, f"net-1_{step}.ckpt")
    answer = survey(tmp_path, trust=False)
    assert isinstance(answer, NothingWhole)
    what, because, hint = answer.why.splitlines()
    assert what == f"no checkpoint in {tmp_path} can be verified"
    assert because.startswith(
        "  because: 2 found, 2 of them not known to be torn, but nothing can prove them whole; "
    )
    assert because.endswith(
        "net-1_20.ckpt: cannot be verified: encrypted (1 complete frame; what is in them only its key shows)"
    )
    assert hint == "  try:     the same command with --trust, to resume from what cannot be verified"
    trusting = survey(tmp_path, trust=True)
    assert isinstance(trusting, RecoveryPointChosen)
    assert trusting.point is not None
    assert trusting.point.unverified


@pytest.mark.parametrize("verb", ["list", "verify", "choose"])
def test_every_verb_ends_with_65_unless_it_is_told_to_trust(tmp_path: Path, verb: str) -> None:
    encrypted(tmp_path, "net-1_20.ckpt")
    words = [verb, str(tmp_path)]
    if verb == "choose":
        with pytest.raises(NoWholeCheckpoint, match="--trust"):
            CliRunner().invoke(command, words, standalone_mode=False, catch_exceptions=False)
    else:
        told = CliRunner().invoke(command, words, standalone_mode=False)
        assert (told.return_value, "1 cannot be verified: --trust" in told.stdout) == (65, True)
        assert "  unverified  " in told.stdout
    told = CliRunner().invoke(command, [*words, "--trust"], standalone_mode=False)
    assert told.return_value == 0
    assert "unverified" in told.stdout
