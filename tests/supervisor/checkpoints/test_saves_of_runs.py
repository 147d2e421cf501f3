"""What a run knows of files that another one saved in its folder while it was away."""

import os
from pathlib import Path

import pytest

from faultrun.checkpoints.catalog import Catalog
from faultrun.model.observed.saves import SavesSeen, SeenSave
from faultrun.supervisor.checkpoints import saves_of_runs
from faultrun.supervisor.checkpoints.other_runs import OtherRuns
from faultrun.supervisor.checkpoints.saves_of_runs import SavesOfRuns, end_lists
from support.checkpoints.ckpt_bytes import ckpt, save


class Folder:
    def __init__(self, place: Path) -> None:
        self.root = str(place / "ckpt")

    def run(self, name: str, apart: str = "", script: str = "train.py") -> SavesOfRuns:
        """A life of a run that is alone here."""
        return SavesOfRuns((self.root,), OtherRuns((), name, apart=apart), script)

    def saved(self, *names: str) -> SavesSeen:
        for name in names:
            save(Path(self.root, name), ckpt(1, 1))
        return SavesSeen(saves=tuple(SeenSave(files=(f"{self.root}/{name}",)) for name in names))

    def order(self, run: SavesOfRuns) -> list[str] | None:
        if (order := run.order(Catalog((self.root,), settle_s=0.0).listed(), SavesSeen())) is None:
            return None
        files = (path for path in sorted(order, key=order.__getitem__) if path.endswith(".ckpt"))
        return [Path(path).name for path in files]

    def not_of(self, run: SavesOfRuns, resumed: str = "") -> dict[str, str]:
        found = run.of_others(Catalog((self.root,), settle_s=0.0), resumed)
        return {Path(entry.path).name: whose for entry, whose in found.items()}

    def of(self, run: SavesOfRuns) -> set[str]:
        return {Path(entry.path).name for entry in run.ours(Catalog((self.root,), settle_s=0.0))}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_what_another_run_wrote_is_its_own_for_whoever_comes_later_and_for_itself(folder: Folder) -> None:
    folder.run("mine").note(folder.saved("net-1_1.ckpt"))
    folder.run("another", "x").note(folder.saved("net-1_2.ckpt", "sub/net-1_3.ckpt"))
    theirs = {"net-1_2.ckpt": "run another", "net-1_3.ckpt": "run another"}
    assert folder.not_of(folder.run("mine")) == theirs
    assert folder.not_of(folder.run("another", "x")) == {"net-1_1.ckpt": "run mine"}
    assert folder.not_of(folder.run("mine"), f"{folder.root}/net-1_2.ckpt") == {"net-1_3.ckpt": "run another"}


def test_a_file_belongs_to_who_wrote_it_last(folder: Folder) -> None:
    folder.run("mine").note(folder.saved("net-1_1.ckpt"))
    folder.run("another").note(folder.saved("net-1_1.ckpt"))
    assert folder.not_of(folder.run("mine")) == {"net-1_1.ckpt": "run another"}
    (again := folder.run("mine")).note(folder.saved("net-1_1.ckpt"))
    assert folder.not_of(again) == folder.not_of(folder.run("mine")) == {}
    os.utime(f"{folder.root}/net-1_1.ckpt")
    assert folder.not_of(folder.run("another")) == {"net-1_1.ckpt": "run mine"}, "it was the last"


def test_where_another_run_lives_nobody_knows_who_wrote(folder: Folder) -> None:
    folder.saved("net-1_0.ckpt")
    beside = OtherRuns((folder.root,), "beside")
    beside.others()
    SavesOfRuns((folder.root,), OtherRuns((folder.root,), "mine"), "").note(folder.saved("net-1_1.ckpt"))
    assert folder.not_of(folder.run("later")) == {}


def test_the_next_supervisor_knows_in_which_order_files_were_written(folder: Folder) -> None:
    assert folder.order(folder.run("mine")) is None
    for name in ("net-1_1.ckpt", "net-1_2.ckpt", "net-1_3.ckpt", "net-1_1.ckpt"):
        folder.run("mine").note(folder.saved(name))
    assert folder.order(folder.run("mine")) == ["net-1_2.ckpt", "net-1_3.ckpt", "net-1_1.ckpt"]
    folder.saved("net-1_2.ckpt", "net-1_0.ckpt")
    unwatched = ["net-1_3.ckpt", "net-1_1.ckpt", "net-1_2.ckpt", "net-1_0.ckpt"]
    assert folder.order(folder.run("mine")) == unwatched
    folder.run("mine").note(SavesSeen(), whole=False)
    assert folder.order(folder.run("mine")) is None, "some may have been missed"


def test_the_list_of_a_run_that_goes_on_for_long_holds_what_is_there(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saves_of_runs, "_TIDY_AFTER", 3)
    run = folder.run("mine")
    for number in range(20):
        run.note(folder.saved(f"net-1_{number}.ckpt"))
        Path(folder.root, f"net-1_{number - 1}.ckpt").unlink(missing_ok=True)
    (path,) = Path(folder.root).parent.glob(".ckpt.faultrun/.saves.mine@")
    assert path.read_bytes().count(b"\n") <= 6
    assert folder.not_of(folder.run("another")) == {"net-1_19.ckpt": "run mine"}


def test_what_a_run_of_that_name_and_script_wrote_is_gone_on_with_until_it_has_ended_well(
    folder: Folder,
) -> None:
    folder.run("mine", "first").note(folder.saved("net-1_1.ckpt"))
    folder.run("another").note(folder.saved("net-1_2.ckpt"))
    folder.saved("net-1_3.ckpt")
    again = folder.run("mine", "second")
    assert folder.of(again) == {"net-1_1.ckpt"}
    assert folder.not_of(again) == {"net-1_2.ckpt": "run another"}
    assert folder.of(folder.run("mine", "second", script="evaluate.py")) == set()
    assert end_lists((folder.root,), "mine", "evaluate.py") == []
    again.note(folder.saved("net-1_4.ckpt"))
    assert folder.of(folder.run("mine", "third")) == {"net-1_1.ckpt", "net-1_4.ckpt"}
    assert end_lists((folder.root,), "mine", "train.py") == []
    assert folder.of(folder.run("mine", "third")) == set()
    assert set(folder.not_of(folder.run("mine", "third"))) == {"net-1_1.ckpt", "net-1_2.ckpt", "net-1_4.ckpt"}


def test_what_a_run_wrote_before_it_trained_is_no_save_of_another(folder: Folder) -> None:
    early = folder.saved("net-1_1.ckpt").saves[0].files
    (mine := folder.run("mine")).note(SavesSeen(prepared=early))
    assert (folder.of(mine), folder.order(mine), folder.not_of(mine)) == (set(), None, {})
    assert folder.not_of(folder.run("another")) == {"net-1_1.ckpt": "run mine"}
    mine.note(SavesSeen(saves=(SeenSave(files=early),)))
    assert (folder.of(mine), folder.order(mine)) == ({"net-1_1.ckpt"}, ["net-1_1.ckpt"])
    os.utime(f"{folder.root}/net-1_1.ckpt")
    assert folder.order(mine) is None, "no save has its time"
    mine.note(folder.saved("net-1_0.ckpt"))
    os.utime(early[0])
    mine.note(SavesSeen(prepared=early))
    assert folder.order(mine) == ["net-1_1.ckpt", "net-1_0.ckpt"], "it is older, whatever its time is"


def test_what_a_run_of_that_name_may_have_missed_is_not_gone_on_with(folder: Folder) -> None:
    first = folder.run("mine", "first")
    first.note(folder.saved("net-1_1.ckpt"))
    first.note(SavesSeen(), whole=False)
    assert folder.of(folder.run("mine", "second")) == set()


def test_a_list_that_is_torn_or_cannot_be_written_hides_nothing(folder: Folder) -> None:
    folder.run("another").note(folder.saved("net-1_1.ckpt"))
    (path,) = Path(folder.root).parent.glob(".ckpt.faultrun/.saves.another@")
    path.write_bytes(path.read_bytes() + b'["net-1')
    assert folder.not_of(folder.run("mine")) == {"net-1_1.ckpt": "run another"}
    path.unlink()
    path.mkdir()
    folder.run("another").note(folder.saved("net-1_2.ckpt"))
    assert folder.not_of(folder.run("mine")) == {}


def test_what_one_save_is_made_of_is_known_to_the_next_supervisor_until_the_end(folder: Folder) -> None:
    """A journal is older by seconds, and what it does not know yet was written later."""
    one, other = (folder.saved(*(f"net{number}-1_{rank}.ckpt" for rank in (1, 2))).saves for number in (1, 2))
    before, both = SavesSeen(saves=one, prepared=("x",)), SavesSeen(saves=(*one, *other), opened="net")
    folder.run("mine").note(both)
    for run in (folder.run("mine"), folder.run("mine", "with another log_dir")):
        assert run.last_seen(before) == SavesSeen(saves=both.saves, prepared=("x",), opened="net")
    for run, known in ((folder.run("mine"), SavesSeen(saves=(*both.saves, *one))), (folder.run("x"), before)):
        assert run.last_seen(known) == known
    (second := folder.run("mine", "with another log_dir")).note(third := folder.saved("net3-1_1.ckpt"))
    assert folder.run("mine").last_seen(before).saves == third.saves, "that was the last one that lived"
    second.note(SavesSeen(saves=(SeenSave(files=("gone.ckpt",)),)))
    assert folder.run("mine").last_seen(before).saves == both.saves, "nothing of that is left"
    end_lists((folder.root,), "mine", "train.py")
    assert folder.run("mine").last_seen(before) == before
