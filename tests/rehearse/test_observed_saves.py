from pathlib import Path

import pytest

from faultrun.checkpoints.formats.user_pattern import Pattern
from faultrun.checkpoints.registry import load_registry
from faultrun.rehearse.find_saves import find_saves, folders_of
from faultrun.rehearse.observed_saves import RehearsedSaves, tear
from faultrun.rehearse.outcome import Undisturbed


@pytest.fixture
def saves(tmp_path: Path) -> RehearsedSaves:
    (tmp_path / "old-step_9.pt").write_bytes(b"from before")
    return RehearsedSaves((str(tmp_path),))


def test_a_save_counts_once_two_looks_found_it_unchanged(tmp_path: Path, saves: RehearsedSaves) -> None:
    (tmp_path / "net-step_1.pt").write_bytes(b"half")
    assert not saves.look(1.0)
    (tmp_path / "net-step_1.pt").write_bytes(b"whole")
    assert not saves.look(2.0)
    assert saves.look(3.0)
    assert not saves.look(4.0)
    assert [Path(path).name for path in saves.paths] == ["net-step_1.pt"]
    assert saves.times_s == [3.0]
    assert saves.in_place == ""
    assert saves.every_s is None


def settled(saves: RehearsedSaves, at_s: float) -> None:
    saves.look(at_s)
    assert saves.look(at_s + 1)


def test_a_save_that_is_written_over_in_place_is_noticed(tmp_path: Path, saves: RehearsedSaves) -> None:
    last = tmp_path / "last.pt"
    last.write_bytes(b"step 1")
    settled(saves, 1.0)
    with last.open("wb") as file:
        file.write(b"step two")
    settled(saves, 3.0)
    assert saves.in_place == str(last)
    assert saves.every_s == 2.0


def test_a_save_that_takes_the_place_of_another_in_one_step_is_not_in_place(
    tmp_path: Path, saves: RehearsedSaves
) -> None:
    last = tmp_path / "last.pt"
    for at_s, data in ((1.0, b"step 1"), (3.0, b"step two")):
        (tmp_path / "new.tmp").write_bytes(data)
        (tmp_path / "new.tmp").replace(last)
        settled(saves, at_s)
    assert saves.in_place == ""
    assert saves.paths == (str(last),)


def test_a_save_that_was_removed_is_no_save_any_more(tmp_path: Path, saves: RehearsedSaves) -> None:
    (tmp_path / "a-step_1.pt").write_bytes(b"one")
    settled(saves, 1.0)
    (tmp_path / "a-step_1.pt").unlink()
    saves.look(3.0)
    assert saves.paths == ()


def test_a_name_that_only_the_users_pattern_knows_is_a_save(tmp_path: Path) -> None:
    registry = load_registry((Pattern(r"state-(?P<step>\d+)\.bin"),))
    plain, told = RehearsedSaves((str(tmp_path),)), RehearsedSaves((str(tmp_path),), registry)
    (tmp_path / "state-7.bin").write_bytes(b"weights")
    settled(told, 1.0)
    assert told.paths == (str(tmp_path / "state-7.bin"),)
    assert not (plain.look(1.0) or plain.look(2.0))
    assert find_saves([(tmp_path, "/job/out")], registry).paths == ("/job/out/state-7.bin",)
    assert find_saves([(tmp_path, "/job/out")]).paths == ()


def test_nothing_is_seen_where_nobody_says_where_to_look() -> None:
    saves = RehearsedSaves(())
    assert not saves.look(1.0)
    assert saves.paths == ()


def test_tearing_cuts_a_file_in_half_and_of_a_folder_the_largest(tmp_path: Path) -> None:
    (tmp_path / "file.pt").write_bytes(bytes(100))
    assert tear(str(tmp_path / "file.pt")) == str(tmp_path / "file.pt")
    assert (tmp_path / "file.pt").stat().st_size == 50
    folder = tmp_path / "step-3"
    (folder / "deep").mkdir(parents=True)
    (folder / "small").write_bytes(bytes(3))
    (folder / "deep" / "large").write_bytes(bytes(9))
    assert tear(str(folder)) == str(folder / "deep" / "large")
    assert tear(str(tmp_path / "model.ckpt-7")) == ""


def test_a_name_that_stands_for_several_files_is_torn_in_its_largest(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt-7.index").write_bytes(bytes(10))
    (tmp_path / "model.ckpt-7.data-00000-of-00001").write_bytes(bytes(100))
    assert tear(str(tmp_path / "model.ckpt-7")).endswith(".data-00000-of-00001")


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        (["/job/ckpt/a.pt", "/job/ckpt/b.pt"], ("/job/ckpt",)),
        (["/job/ckpt/rank_0/a.ckpt", "/job/ckpt/rank_1/a.ckpt"], ("/job/ckpt",)),
        (["/job/a.pt", "/job/ckpt/b.pt"], ("/job",)),
        (["/x/a.pt", "/y/b.pt"], ("/x", "/y")),
        ([f"/job/{number}/a.pt" for number in range(9)], ("/job",)),
        ([], ()),
    ],
)
def test_the_folders_of_saves_are_few(paths: list[str], folders: tuple[str, ...]) -> None:
    assert folders_of(paths) == folders


def test_saves_are_found_among_all_that_was_written_under_the_names_that_they_had(tmp_path: Path) -> None:
    layer = tmp_path / "layer_1" / "written"
    for name in ("home/job/train.log", "home/job/out/net-step_5.pt", "home/job/out/net-step_6.pt", "var/x"):
        (layer / name).parent.mkdir(parents=True, exist_ok=True)
        (layer / name).write_bytes(b"something")
    found = find_saves([(layer, "/data")])
    assert found.folders == ("/data/home/job/out",)
    assert sorted(found.paths) == [f"/data/home/job/out/net-step_{step}.pt" for step in (5, 6)]
    known = found.known_to(Undisturbed(trained_s=9.0), began_at=found.times_s[0] - 4)
    assert known.first_save_s == pytest.approx(4)
    assert known.elsewhere == found.folders
    assert find_saves([]).known_to(known, began_at=0.0) is known
