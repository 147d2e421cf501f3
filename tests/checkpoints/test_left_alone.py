"""What a new run leaves alone stays so under any name, and what is written anew does not; real files."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.verdict_cache import LEFT_ALONE
from faultrun.model.observed.saves import SavesSeen, SeenSave
from support.checkpoints.catalogs import catalog_of
from support.checkpoints.ckpt_bytes import ckpt, save

OLD = 9


def old_run(root: Path, *names: str) -> Catalog:
    """A folder with checkpoints of an older run, and the catalog of a new one that left them alone."""
    for name in names or ("net-1_1.ckpt",):
        save(root / "ckpt" / name, ckpt(OLD, 9))
    (root / "log").mkdir()
    catalog = reopened(root)
    catalog.leave_alone(catalog.scan().entries)
    return catalog


def reopened(root: Path) -> Catalog:
    return catalog_of(root / "ckpt", memory=root / "log/checkpoints.jsonl")


def offered(catalog: Catalog) -> set[tuple[str, int | None]]:
    """Name and epoch of whatever may be chosen; the old run's say epoch 9."""
    return {(Path(one.path).name, one.epoch) for one in catalog.scan().entries}


def moved(path: Path, root: Path) -> None:
    (root / "ckpt/old").mkdir()
    path.rename(root / "ckpt/old/net-1_1.ckpt")


def to_another_file_system(path: Path, root: Path) -> None:
    """As ``mv`` does it: a copy that keeps the time, and the end of the first."""
    shutil.copy2(path, root / "ckpt/kept-1_1.ckpt")
    path.unlink()


def folder_moved(path: Path, root: Path) -> None:
    path.parent.rename(root / "away")
    (root / "ckpt").mkdir()
    (root / "away").rename(root / "ckpt/backup")


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "nothing": lambda path, root: None,
    "renamed": lambda path, root: path.rename(root / "ckpt/prev-1_1.ckpt"),
    "moved": moved,
    "linked": lambda path, root: os.link(path, root / "ckpt/before-1_1.ckpt"),
    "moved far": to_another_file_system,
    "the folder moved": folder_moved,
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_old_checkpoint_is_left_alone_under_any_name(tmp_path: Path, change: str) -> None:
    catalog = old_run(tmp_path)
    CHANGES[change](tmp_path / "ckpt/net-1_1.ckpt", tmp_path)
    assert offered(catalog) == set()
    assert offered(reopened(tmp_path)) == set(), "nor does the next supervisor take it"


@pytest.mark.parametrize("clock_s", [0.0, -3600.0, 3600.0])
def test_a_file_written_anew_is_this_runs_whatever_the_clock_says(tmp_path: Path, clock_s: float) -> None:
    catalog = old_run(tmp_path)
    path = tmp_path / "ckpt/net-1_1.ckpt"
    then_s = path.stat().st_mtime + clock_s + 0.001
    path.write_bytes(ckpt(1, 1))
    os.utime(path, (then_s, then_s))
    assert offered(catalog) == {("net-1_1.ckpt", 1)}
    assert offered(reopened(tmp_path)) == {("net-1_1.ckpt", 1)}


def test_a_list_that_cannot_be_kept_is_an_error_and_may_be_kept_later(tmp_path: Path) -> None:
    save(tmp_path / "ckpt/net-1_1.ckpt", ckpt(OLD, 9))
    catalog = reopened(tmp_path)
    with pytest.raises(OSError, match="No such file"):
        catalog.leave_alone(catalog.scan().entries)
    assert offered(catalog) == set(), "this process knows it in any case"
    (tmp_path / "log").mkdir()
    catalog.leave_alone(())
    assert offered(reopened(tmp_path)) == set()


@pytest.mark.long
def test_a_line_that_was_cut_takes_no_other_with_it(tmp_path: Path) -> None:
    old_run(tmp_path)
    kept = tmp_path / "log" / LEFT_ALONE
    whole = kept.read_bytes()
    for size in range(len(whole) - 1):
        kept.write_bytes(whole[:size])
        again = reopened(tmp_path)
        again.leave_alone(again.scan().entries)
        assert offered(reopened(tmp_path)) == set()


NAMES = ("last-1_1.ckpt", "prev-1_1.ckpt", "best-1_1.ckpt", "old/last-1_1.ckpt")
Deed = tuple[str, str, str]
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(
            ["rename", "link", "copy", "write", "write over", "cut", "remove", "next supervisor"]
        ),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=DEEDS, clock_s=st.sampled_from([0.0, -86400.0]))
def test_no_history_makes_an_old_checkpoint_new_or_a_new_one_old(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[Deed], clock_s: float
) -> None:
    """A file says whose it is by its epoch: 9 the old run's, from 10 on ours; cut files are ours, too."""
    root = tmp_path_factory.mktemp("history")
    catalog = old_run(root, NAMES[0], NAMES[2])
    (root / "ckpt/old").mkdir()
    ours: dict[str, bytes] = {}
    for number, (deed, one, other) in enumerate(deeds):
        catalog = done(root, catalog, deed, root / "ckpt" / one, root / "ckpt" / other, number, clock_s)
        found = {entry.path for entry in catalog.scan().entries}
        ours = {str(path): path.read_bytes() for path in (root / "ckpt").rglob("*.ckpt")}
        ours = {path: data for path, data in ours.items() if data != ckpt(OLD, 9) and data}
        assert found == set(ours), f"after {deed} of {one} to {other}"


def done(
    root: Path, catalog: Catalog, deed: str, one: Path, other: Path, number: int, clock_s: float
) -> Catalog:
    """The history goes on by one deed, as far as it is possible."""
    match deed:
        case "next supervisor":
            return reopened(root)
        case "write":
            fresh = save(root / "fresh", ckpt(10 + number, 9))
            _dated(fresh, number, clock_s)
            fresh.replace(one)
        case "write over":
            one.write_bytes(ckpt(10 + number, 9))
            _dated(one, number, clock_s)
        case _ if not one.exists() or one == other:
            return catalog
        case "rename":
            one.replace(other)
        case "link":
            other.unlink(missing_ok=True)
            os.link(one, other)
        case "copy":
            if not (other.exists() and other.samefile(one)):  # cp refuses that, too
                shutil.copy2(one, other)
        case "cut":
            os.truncate(one, 20)
            _dated(one, number, clock_s)
        case _:
            one.unlink()
    return catalog


def _dated(path: Path, number: int, clock_s: float) -> None:
    """As a file server with a clock of its own, which ticks in seconds, would date it."""
    then_s = 1_700_000_000 + number + clock_s
    os.utime(path, (then_s, then_s))


def of_step(step: int, weight: float) -> bytes:
    """A safetensors file that tells its step."""
    tensor = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    head = json.dumps({"__metadata__": {"step": str(step)}, "w": tensor}).encode()
    return struct.pack("<Q", len(head)) + head + struct.pack("<f", weight)


def opened_again(root: Path) -> Catalog:
    return Catalog([str(root / "ckpt")], memory_path=str(root / "log/checkpoints.jsonl"), settle_s=0.0)


def stranger(root: Path, step: int) -> tuple[Catalog, Path]:
    """A folder with a checkpoint of an older run, and the catalog of a new one that left it alone."""
    path = save(root / "ckpt" / f"step_{step}.safetensors", of_step(step, 1.0))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    (root / "log").mkdir()
    catalog = opened_again(root)
    catalog.leave_alone(catalog.scan().entries)
    assert [one.path for one in catalog.scan().left_alone] == [str(path)]
    return catalog, path


def copied_back(path: Path) -> None:
    shutil.copy(path, path.parent.parent / "kept")
    (path.parent.parent / "kept").replace(path)


def copied_over(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def copied_beside(path: Path) -> None:
    path.rename(path.with_name(f"restored_{path.name}"))
    shutil.copy(path.with_name(f"restored_{path.name}"), path)


@pytest.mark.parametrize("deed", [Path.touch, copied_back, copied_over, copied_beside])
@pytest.mark.parametrize("reached", [0, 6, 69])
def test_what_is_in_a_file_tells_whose_it_is_and_not_its_time(
    tmp_path: Path, deed: Callable[[Path], object], reached: int
) -> None:
    """And it stays so once the run has come as far itself."""
    catalog, path = stranger(tmp_path, 70)
    deed(path)
    catalog.reached(reached)
    assert catalog.scan().entries == ()
    catalog.tidy(catalog.scan())
    for later in (catalog, opened_again(tmp_path)):
        later.reached(100)
        assert later.scan().entries == ()


@pytest.mark.parametrize(("reached", "weight"), [(10, 1.0), (15, 1.0), (None, 1.0), (0, 2.0)])
def test_a_training_that_is_repeated_writes_checkpoints_of_its_own(
    tmp_path: Path, reached: int | None, weight: float
) -> None:
    """Byte for byte those of the run before, where it has come as far; other bytes are its own anyway."""
    catalog, path = stranger(tmp_path, 10)
    path.write_bytes(of_step(10, weight))
    catalog.reached(reached)
    assert [one.global_step for one in catalog.scan().entries] == [10]


def test_a_list_of_a_version_before_knows_times_alone(tmp_path: Path) -> None:
    _, path = stranger(tmp_path, 70)
    left = tmp_path / "log" / LEFT_ALONE
    old = [{**json.loads(line), "digest": ""} for line in left.read_text().split()]
    left.write_text("".join(json.dumps(one) + "\n" for one in old))
    assert opened_again(tmp_path).scan().entries == ()
    path.touch()
    assert [one.path for one in opened_again(tmp_path).scan().entries] == [str(path)]


def test_a_file_that_was_still_being_copied_stays_a_strangers_when_it_is_complete(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    whole, file = bytes(range(256)) * 40, tmp_path / "ckpt/step_100.pt"
    file.write_bytes(whole[:4000])
    looking = opened_again(tmp_path)
    (tmp_path / "log").mkdir()
    looking.leave_alone(looking.scan().entries)
    with file.open("ab") as copy:
        copy.write(whole[4000:])
    assert [one.path for one in looking.scan().left_alone] == [str(file)]
    file.write_bytes(bytes(reversed(whole)))
    assert not looking.scan().left_alone


@pytest.mark.parametrize(("steps", "own"), [((70,), False), ((70, 80), True)])
def test_who_copies_an_old_save_here_is_no_part_of_the_run_unless_the_run_counts_otherwise(
    tmp_path: Path, steps: tuple[int, ...], own: bool
) -> None:
    """The run is at its step 16 by the log."""
    paths = [tmp_path / f"ckpt/step_{step}.pt" for step in steps]
    for path, step in zip(paths, steps, strict=True):
        save(path, bytes([step]) * 4000)
    (tmp_path / "log").mkdir()
    looking = opened_again(tmp_path)
    looking.leave_alone(looking.scan().entries)
    looking.reached(16)
    for path in paths:
        Path(shutil.copy(path, tmp_path / "copy")).rename(path)
    at = zip(paths, steps, strict=True)
    looking.seen = SavesSeen(saves=tuple(SeenSave(step=step - 64, files=(str(path),)) for path, step in at))
    assert bool(looking.scan().entries) is own
