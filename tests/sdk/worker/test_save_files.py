"""Files of the SDK, as the catalog reads them."""

import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.checkpoint import Entry, Kind, Verdict
from faultrun.sdk.session import ResumePoint, Session
from faultrun.sdk.worker.save_files import Folder, Position, Saved, SaveWriter, Sink, numbered
from support.checkpoints.catalogs import catalog_of

SESSION = Session(rank=2, world_size=4, run_id="run-1", incarnation=3, node="here")


def writer_in(directory: Path, keep: int = 2, session: Session = SESSION) -> SaveWriter:
    return SaveWriter(Folder(directory=directory, keep=keep), session)


def save(writer: SaveWriter, step: int, content: bytes = b"state", kind: Kind = Kind.GASP) -> Saved:
    names = numbered(writer.folder.path / "rank_2" / f"gasp-step_{step}.pt")
    return writer.save(names, Position(step, 1, step), lambda sink: sink.write(content), kind)


def listed(path: str) -> tuple[Entry, Verdict]:
    """What the catalog says of a file, and whether it is whole."""
    catalog = catalog_of(Path(path).parent)
    (entry,) = [one for one in catalog.scan().entries if one.path == path]
    return entry, catalog.verify(entry)


def test_the_catalog_reads_what_the_sdk_writes(tmp_path: Path) -> None:
    saved = save(writer_in(tmp_path), 55)
    entry, verdict = listed(saved.path)
    assert (entry.global_step, entry.epoch, entry.step_in_epoch) == (55, 1, 55)
    assert (entry.rank, entry.world_size, entry.run_id, entry.incarnation) == (2, 4, "run-1", 3)
    assert entry.replica_group == (0, 1, 2, 3)
    assert verdict.whole
    assert verdict.digest == saved.digest


def test_a_save_is_of_the_life_in_which_it_was_begun(tmp_path: Path) -> None:
    """The main thread has a copy taken, and goes on: it may have made a step in the next life since."""
    session = replace(SESSION, trained_in=2)
    names = numbered(tmp_path / "rank_2" / "gasp-step_55.pt")

    def fill(sink: Sink) -> None:
        sink.write(b"state")
        session.trained_in = 3

    saved = writer_in(tmp_path, session=session).save(names, Position(55, 1, 55), fill)
    assert listed(saved.path)[0].incarnation == 2


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    saved = save(writer_in(tmp_path), 55, b"a" * 1000)
    path = Path(saved.path)
    path.write_bytes(path.read_bytes()[:500] + b"b" + path.read_bytes()[501:])
    assert not listed(saved.path)[1].whole


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    first, second = save(writer, 7, b"one"), save(writer, 7, b"two")
    assert Path(first.path).read_bytes() == b"one"
    assert Path(second.path).name == "gasp-step_7.1.pt"
    assert Path(second.path).read_bytes() == b"two"


def test_a_failing_writer_leaves_nothing_and_touches_nothing(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    before = save(writer, 6)

    def fail(sink: Sink) -> None:
        sink.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        writer.save(numbered(tmp_path / "rank_2" / "gasp-step_7.pt"), Position(7), fail)
    names = sorted(path.name for path in (tmp_path / "rank_2").iterdir())
    assert names == ["gasp-step_6.pt", "gasp-step_6.pt.manifest.json"]
    assert listed(before.path)[1].whole


def test_a_writer_that_wants_a_name_gets_one_with_the_right_suffix(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    seen: list[str] = []

    def fill(path: str) -> None:
        seen.append(path)
        Path(path).write_bytes(b"x" * 3_000_000)

    saved = writer.save_by_path(numbered(tmp_path / "net-1_2_breakpoint.ckpt"), Position(2), fill)
    assert seen[0].endswith(".ckpt")
    assert saved.size_bytes == 3_000_000
    assert listed(saved.path)[1].whole


def test_older_gasps_of_this_run_and_rank_go_and_nothing_else_does(tmp_path: Path) -> None:
    session = Session(
        rank=2,
        world_size=4,
        run_id="run-1",
        point=ResumePoint(
            path=str(tmp_path / "rank_2" / "gasp-step_1.pt"), step=1, epoch=1, reason="fault", incarnation=1
        ),
    )
    writer = writer_in(tmp_path, session=session)
    other_run = writer_in(tmp_path, session=Session(rank=2, world_size=4, run_id="run-2"))
    save(other_run, 100)
    save(writer, 50, kind=Kind.PERIODIC)
    newest = [save(writer, step) for step in (1, 2, 3, 4)][-1]
    left_over = tmp_path / "rank_2" / ".tmp.rank2_99999.gasp-step_9.pt"
    left_over.write_bytes(b"half")
    writer.prune(newest)
    kept = {path.name for path in (tmp_path / "rank_2").glob("*.pt")}
    assert kept == {f"gasp-step_{step}.pt" for step in (1, 3, 4, 50, 100)}
    assert not left_over.exists()


def test_the_manifest_comes_last(tmp_path: Path) -> None:
    saved = save(writer_in(tmp_path), 5)
    manifest = Path(saved.path + ".manifest.json")
    assert manifest.stat().st_mtime_ns >= Path(saved.path).stat().st_mtime_ns
    assert json.loads(manifest.read_text())["path"] == Path(saved.path).name
    assert 0 < saved.took_s < time.monotonic()


@given(
    gasps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(0, 9)), min_size=1, max_size=8
    ),
    resumed=st.integers(0, 7),
    keep=st.integers(1, 3),
)
def test_whatever_the_clock_says_the_newest_save_and_the_one_resumed_from_stay(
    gasps: list[tuple[int, int, int]], resumed: int, keep: int
) -> None:
    """Lives follow one another, each may go back some steps; the clock says anything."""
    gasps = sorted(gasps, key=lambda gasp: gasp[0])
    with tempfile.TemporaryDirectory() as folder:
        saves = []
        for life, step, at_s in gasps:
            session = Session(rank=2, world_size=4, run_id="run-1", incarnation=life)
            saved = save(writer_in(Path(folder), session=session), step)
            for path in (saved.path, f"{saved.path}.manifest.json"):
                os.utime(path, (at_s, at_s))
            saves.append(saved)
        newest, begun_from = saves[-1], saves[resumed % len(saves)]
        point = ResumePoint(
            path=begun_from.path, step=begun_from.step, epoch=1, reason="fault", incarnation=3
        )
        session = Session(rank=2, world_size=4, run_id="run-1", incarnation=3, point=point)
        writer_in(Path(folder), keep, session).prune(newest)
        left = {str(path) for path in Path(folder).rglob("*.pt")}
        assert {newest.path, begun_from.path} <= left
        assert len(left) <= keep + 1
        dropped = [gasp for gasp, saved in zip(gasps, saves, strict=True) if saved.path not in left]
        others = [
            gasp
            for gasp, saved in zip(gasps, saves, strict=True)
            if saved.path in left - {newest.path, begun_from.path}
        ]
        assert (
            not dropped or not others or max(gasp[:2] for gasp in dropped) <= min(gasp[:2] for gasp in others)
        )


def test_a_directory_stays_where_it_was_when_the_script_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = SaveWriter(Folder(directory="ckpt"), SESSION)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Path(save(writer, 3).path).parent == tmp_path / "ckpt" / "rank_2"
