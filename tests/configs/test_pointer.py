"""What a training code notes of its newest checkpoint is made to name the chosen one."""

from pathlib import Path

import pytest

from faultrun.configs.originals import restore
from faultrun.configs.pointer import point
from faultrun.core.template import Values
from faultrun.errors import ConfigError
from faultrun.model.spec.run_spec import Pointer

LATEST = (Pointer(name="latest", template="{checkpoint_name}"),)


def chosen(step: int | None) -> Values:
    return Values(checkpoint=f"ckpt/global_step{step}", run_id="r", incarnation=1, global_step=step)


@pytest.fixture
def latest(here: Path) -> Path:
    (here / "ckpt").mkdir()
    return here / "ckpt" / "latest"


def test_it_names_the_checkpoint_to_the_byte_and_keeps_its_mode(latest: Path, originals: Path) -> None:
    latest.write_text("global_step20")
    latest.chmod(0o640)
    (result,) = point(LATEST, chosen(10), originals=originals)
    assert latest.read_bytes() == b"global_step10"
    assert latest.stat().st_mode & 0o777 == 0o640
    assert [(one.before, one.after) for one in result.changes] == [("global_step20", "global_step10")]
    assert [one.name for one in latest.parent.iterdir()] == ["latest"]


def test_a_missing_one_is_made_and_taken_away_again_when_somebody_asks(latest: Path, originals: Path) -> None:
    latest.parent.chmod(0o750)
    point(LATEST, chosen(10), originals=originals)
    assert (latest.read_bytes(), latest.stat().st_mode & 0o777) == (b"global_step10", 0o640)
    assert restore(originals, [str(latest)]) == {str(latest): True}
    assert not latest.exists()
    assert restore(originals, [str(latest)]) == {str(latest): False}


def test_one_that_is_right_is_not_touched(latest: Path, originals: Path) -> None:
    latest.write_text("global_step10")
    before = latest.stat().st_ctime_ns
    assert point(LATEST, chosen(10), originals=originals) == ()
    assert latest.stat().st_ctime_ns == before
    assert not originals.exists()


def test_megatrons_holds_the_number_alone(latest: Path, originals: Path) -> None:
    tracker = Pointer(name="latest_checkpointed_iteration.txt", template="{global_step}")
    point((tracker,), chosen(10), originals=originals)
    assert latest.with_name(tracker.name).read_bytes() == b"10"


def test_no_run_gives_it_back(latest: Path, originals: Path) -> None:
    latest.write_text("global_step20")
    point(LATEST, chosen(10), originals=originals)
    assert restore(originals) == {}
    latest.write_text("global_step30")
    assert restore(originals) == {}
    assert latest.read_text() == "global_step30"


def test_what_training_wrote_since_is_newer_than_any_original(latest: Path, originals: Path) -> None:
    latest.write_text("global_step20")
    point(LATEST, chosen(10), originals=originals)
    latest.write_text("global_step30")
    with pytest.raises(ConfigError, match="changed by another program"):
        restore(originals, [str(latest)])
    point(LATEST, chosen(10), originals=originals)
    assert restore(originals, [str(latest)]) == {str(latest): True}
    assert latest.read_text() == "global_step30"
    assert len([one for one in originals.iterdir() if one.name.endswith("latest")]) == 1


def test_two_restarts_from_one_checkpoint_keep_what_was_there_first(latest: Path, originals: Path) -> None:
    latest.write_text("global_step30")
    point(LATEST, chosen(20), originals=originals)
    point(LATEST, chosen(10), originals=originals)
    restore(originals, [str(latest)])
    assert latest.read_text() == "global_step30"


def test_an_unknown_step_is_told_and_nothing_is_written(latest: Path, originals: Path) -> None:
    latest.write_text("20")
    with pytest.raises(ConfigError, match="global_step"):
        point((Pointer(name="latest", template="{global_step}"),), chosen(None), originals=originals)
    assert latest.read_text() == "20"


def test_a_folder_of_its_name_is_an_error_for_people(latest: Path, originals: Path) -> None:
    latest.mkdir()
    with pytest.raises(ConfigError, match="is a directory"):
        point(LATEST, chosen(10), originals=originals)
