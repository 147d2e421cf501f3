"""What a save will need is tried before training begins, and refused there in words for people."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from faultrun.checkpoints.catalog import Catalog
from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.worker.death_note import write_note
from faultrun.sdk.worker.save_files import Folder, SaveWriter
from faultrun.sdk.worker.state_provider import preflight

SESSION = Session(rank=1, world_size=4, run_id="run-1")


def refused(folder: Folder, session: Session = SESSION) -> FaultrunError:
    with pytest.raises(FaultrunError) as error:
        preflight(SaveWriter(folder, session), "rank_1")
    return error.value


def test_a_tiny_save_is_made_and_nothing_of_it_is_left_or_was_ever_a_checkpoint(tmp_path: Path) -> None:
    shelf = SaveWriter(Folder(directory=str(tmp_path / "ck")), SESSION)
    preflight(shelf, "rank_1")
    assert list(tmp_path.rglob("*")) == [tmp_path / "ck", tmp_path / "ck" / "rank_1"]
    seen: list[Path] = []

    def look(place: Path) -> None:
        place.mkdir(parents=True)
        (place / "state").write_bytes(b"")
        seen.extend(Path(entry.path) for entry in Catalog((str(tmp_path),)).scan().entries)

    preflight(shelf, "rank_1", look)
    assert seen == []


@pytest.mark.parametrize(
    ("more", "because"),
    [
        ({"directory": 5}, "directory is 5, which is no path"),
        ({"keep": 0}, "the newest gasp is the one that is needed"),
        ({"replica_group": [1]}, "replica_group is [1]"),
        ({"replica_group": (1, 9)}, "this world has the ranks 0 to 3"),
        ({"replica_group": (0, 2)}, "does not hold this rank, 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, more: dict[str, Any], because: str) -> None:
    assert because in refused(Folder(**{"directory": tmp_path, **more})).because


def test_a_directory_that_is_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "ck").write_text("")
    error = refused(Folder(directory=tmp_path / "ck"))
    assert error.what == f"nothing can be saved in {tmp_path}/ck/rank_1"
    assert "Not a directory" in error.because


def test_a_file_system_without_rename_is_refused_for_good(tmp_path: Path) -> None:
    def without_rename(place: Path) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented", str(place), None, f"{place}.pt")

    with pytest.raises(FaultrunError) as error:
        preflight(SaveWriter(Folder(directory=tmp_path), SESSION), "rank_1", without_rename)
    assert "cannot rename" in error.value.because
    write_note(str(tmp_path / "note.json"), error.value, 0.0)
    assert "refused" in json.loads((tmp_path / "note.json").read_text())["message"]["extraInfo"]


def test_a_full_disk_is_said_and_training_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    preflight(SaveWriter(Folder(directory=tmp_path), SESSION), "rank_1", full)
    assert "(No space left on device); training goes on" in capsys.readouterr().err
