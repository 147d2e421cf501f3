"""Files of torch.save: whole ones are proved, cut or changed ones are refused, and nothing in them runs."""

import contextlib
import os
import pickle
import shutil
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.checkpoints.format import Claim, Unreadable
from faultrun.checkpoints.formats.torch.saved_file import TORCH_FILE
from faultrun.model.checkpoint import Depth, Kind, Verdict
from support.checkpoints.entries import entry_of, listing_of
from support.checkpoints.torch_files import LEGACY, NO_CHECKSUMS, ZIP, Bomb, read, refused, verify


def claims(folder: Path) -> dict[str, Claim]:
    return {claim.members[0]: claim for claim in TORCH_FILE.claim(listing_of(folder))}


# --- whole files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [ZIP, LEGACY], ids=["zip", "legacy"])
def test_epoch_and_step_are_read_from_the_top_of_the_state_dict(path: Path) -> None:
    entry = read(path)
    assert (entry.epoch, entry.global_step, entry.step_in_epoch) == (3, 1215, None)


def test_a_whole_archive_is_proved_by_its_checksums() -> None:
    verdict = verify(ZIP)
    assert verdict == Verdict(
        whole=True, why="12 records, 6 storages complete, all checksums right", depth=Depth.CHECKSUM
    )


def test_the_structure_alone_is_not_called_a_checksum() -> None:
    assert verify(ZIP, Depth.STRUCTURE).depth is Depth.STRUCTURE


def test_an_archive_written_without_checksums_is_whole_by_structure_only() -> None:
    verdict = verify(NO_CHECKSUMS)
    assert (verdict.whole, verdict.depth) == (True, Depth.STRUCTURE)
    assert "without checksums" in verdict.why
    assert read(NO_CHECKSUMS).global_step == 4


def test_a_whole_legacy_file_is_whole_by_structure_only() -> None:
    verdict = verify(LEGACY)
    assert (verdict.whole, verdict.depth) == (True, Depth.STRUCTURE)
    assert verdict.why == "6 storages complete; this layout has no checksums"


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [ZIP, LEGACY], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "name", ["model_5", "ckpt_5.tar", "epoch.5", "last", "net.model", "ckpt.pt.bak", "a.old"]
)
def test_a_file_under_any_name_is_known_by_how_it_begins(path: Path, name: str, tmp_path: Path) -> None:
    for other in ("latest", "history", "data.tar", "index.5", "optimizer"):
        (tmp_path / other).write_bytes(b"not of torch.save" * 99)
    for copy in (name, ".hidden", "rng.pkl"):
        shutil.copy(path, tmp_path / copy)
    assert set(claims(tmp_path)) == {name}


def test_names_say_rank_step_and_kind(tmp_path: Path) -> None:
    for name in (
        "rank_3/model_best.pth.tar",
        "rank0/model_best.pth.tar",
        "run/checkpoint_rank7_step_20.pt",
        "run/epoch=3-step=1215.ckpt",
        "run/epoch_4.pth",
        "run/mp_rank_00_model_states.pt",
        "run/resnet-1_2_breakpoint.pt",
        "run/saving.pt.tmp",
        "run/notes.txt",
        "run/lenet-1_1875.ckpt",
        "run/last.ckpt",
        "run/bestiary.pt",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    best = claims(tmp_path / "rank_3")["model_best.pth.tar"]
    assert (best.rank, best.kind) == (3, Kind.BEST)
    assert claims(tmp_path / "rank0")["model_best.pth.tar"].rank == 0
    run = claims(tmp_path / "run")
    assert (run["checkpoint_rank7_step_20.pt"].rank, run["checkpoint_rank7_step_20.pt"].global_step) == (
        7,
        20,
    )
    assert (run["epoch=3-step=1215.ckpt"].epoch, run["epoch=3-step=1215.ckpt"].global_step) == (3, 1215)
    assert (run["epoch_4.pth"].epoch, run["epoch_4.pth"].global_step) == (4, None)
    assert run["mp_rank_00_model_states.pt"].rank is None
    assert run["resnet-1_2_breakpoint.pt"].kind is Kind.GASP
    assert run["bestiary.pt"].kind is Kind.PERIODIC
    assert not {"saving.pt.tmp", "notes.txt", "lenet-1_1875.ckpt"} & set(run)


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("path", [ZIP, LEGACY, NO_CHECKSUMS], ids=["zip", "legacy", "no checksums"])
def test_every_cut_of_a_file_is_refused(path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pt"
    shutil.copy(path, cut)
    for length in range(path.stat().st_size - 1, -1, -1):
        os.truncate(cut, length)
        assert refused(cut)


@pytest.mark.parametrize("path", [ZIP, LEGACY], ids=["zip", "legacy"])
def test_a_file_with_something_after_its_end_is_refused(path: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.pt"
    longer.write_bytes(path.read_bytes() + b"\0")
    assert refused(longer)


def test_every_changed_byte_of_a_storage_is_noticed(tmp_path: Path) -> None:
    changed = tmp_path / "changed.pt"
    whole = ZIP.read_bytes()
    with zipfile.ZipFile(ZIP) as archive:
        info = archive.getinfo("zip/data/0")
        content = archive.read(info)
    start = whole.index(content, info.header_offset)
    for at in range(start, start + len(content)):
        changed.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        assert refused(changed) == "the checksum of its record zip/data/0 is wrong"


def test_a_storage_that_is_missing_or_too_short_is_named(tmp_path: Path) -> None:
    for broken, why in (
        (None, "its storage 1 is missing"),
        (b"\0" * 3, "its storage 1 has 3 bytes, 6 are needed"),
    ):
        path = tmp_path / "broken.pt"
        with zipfile.ZipFile(ZIP) as whole, zipfile.ZipFile(path, "w") as target:
            for name in whole.namelist():
                content = broken if name == "zip/data/1" else whole.read(name)
                if content is not None:
                    target.writestr(name, content)
        assert refused(path) == why


def test_an_archive_stored_inside_another_does_not_make_a_cut_file_whole(tmp_path: Path) -> None:
    """The beginning of this file, up to the end of the inner archive, ends as a whole archive does."""
    outer = tmp_path / "outer.pt"
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("outer/inner", ZIP.read_bytes())
        archive.writestr("outer/version", "3\n")
    data = outer.read_bytes()
    cut = tmp_path / "cut.pt"
    cut.write_bytes(data[: data.index(ZIP.read_bytes()) + ZIP.stat().st_size])
    assert zipfile.is_zipfile(cut), "a zip program is deceived"
    assert "does not fit to its place" in refused(cut)


def test_an_empty_file_a_directory_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.pt").touch()
    (tmp_path / "folder.pt").mkdir()
    os.mkfifo(tmp_path / "pipe.pt")
    assert refused(tmp_path / "empty.pt") == "it is empty"
    assert refused(tmp_path / "folder.pt")
    assert refused(tmp_path / "pipe.pt") == "is not a regular file"


def test_other_archives_and_other_pickles_are_refused(tmp_path: Path) -> None:
    jar = tmp_path / "jar.pt"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"x" * 1000)
    assert "compressed" in refused(jar)
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("a/b", b"x")
        archive.writestr("../../etc/passwd", b"x")
    assert "is not in a" in refused(jar)
    (tmp_path / "text.pt").write_text("epoch: 3")
    assert refused(tmp_path / "text.pt") == "it does not start as a file of torch.save does"


def test_a_malicious_file_is_read_and_verified_but_not_run(tmp_path: Path) -> None:
    program = pickle.dumps({"epoch": 1, "step": 7, "model": Bomb(tmp_path / "ran")}, protocol=2)
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("bomb/data.pkl", program)
        archive.writestr("bomb/version", "3\n")
    assert read(path).global_step == 7
    assert verify(path).whole
    assert not (tmp_path / "ran").exists()
    pickle.loads(program)  # noqa: S301 - proves that the program was a live one
    assert (tmp_path / "ran").exists()


# --- hostile archives ----------------------------------------------------------------------------


def archive_of(entries: list[tuple[bytes, int, int, int]], body: bytes, count: int | None = None) -> bytes:
    """A zip file of directory entries (name, size, crc, offset) over a given body."""
    directory = b"".join(
        struct.pack(
            "<4s6H3L5H2L", b"PK\x01\x02", 0, 0, 0, 0, 0, 0, crc, size, size, len(name), 0, 0, 0, 0, 0, offset
        )
        + name
        for name, size, crc, offset in entries
    )
    shown = len(entries) if count is None else count
    return (
        body
        + directory
        + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, shown, shown, len(directory), len(body), 0)
    )


def local(name: bytes, content: bytes) -> bytes:
    return struct.pack("<4s5H3L2H", b"PK\x03\x04", 0, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name + content


PICKLE = b"\x80\x02}."
BODY = local(b"a/data.pkl", PICKLE) + local(b"a/version", b"3\n")
SECOND = len(local(b"a/data.pkl", PICKLE))
GOOD = [(b"a/data.pkl", 4, zlib.crc32(PICKLE), 0), (b"a/version", 2, zlib.crc32(b"3\n"), SECOND)]


def test_the_handmade_archive_is_whole_before_it_is_bent(tmp_path: Path) -> None:
    path = tmp_path / "good.pt"
    path.write_bytes(archive_of(GOOD, BODY))
    assert verify(path).depth is Depth.CHECKSUM


HOSTILE = {
    "two records share their bytes": (archive_of([*GOOD, (b"a/data/0", 2, 1, SECOND)], BODY), "overlaps"),
    "a record longer than the file": (archive_of([(b"a/data.pkl", 2**31, 1, 0), GOOD[1]], BODY), "runs into"),
    "a record that runs into the directory": (
        archive_of([GOOD[0], (b"a/version", 3, zlib.crc32(b"3\n"), SECOND)], BODY), "runs into"),
    "a record after the end": (archive_of([GOOD[0], (b"a/version", 2, 1, 2**31)], BODY), "needed"),
    "the same name twice": (archive_of([GOOD[0], GOOD[0]], BODY), "two records"),
    "more records announced than are": (archive_of(GOOD, BODY, count=3), "lists 2 records, its end 3"),
    "sixty-five thousand records announced": (archive_of(GOOD, BODY, count=0xFFFF), "lists 2"),
    "no record at all": (archive_of([], b"PK\x03\x04"), "empty archive"),
    "a name that is no text": (archive_of([(b"a/\xff", 0, 0, 0)], BODY), "no UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    data, why = HOSTILE[name]
    path = tmp_path / "hostile.pt"
    path.write_bytes(data)
    assert why in refused(path)


def test_a_directory_of_a_million_records_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "many.pt"
    size, count = 64 << 20, 1_000_000
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, size, 1)
    with path.open("wb") as file:
        file.write(b"PK\x03\x04")
        file.seek(size)
        file.write(end64 + locator + end)
    tracemalloc.start()
    assert "are no checkpoint's" in refused(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def mutated(data: bytes) -> st.SearchStrategy[bytes]:
    places = st.integers(0, len(data))
    swaps = st.lists(st.tuples(places, st.binary(max_size=5), st.integers(0, 5)), min_size=1, max_size=3)

    def apply(edits: list[tuple[int, bytes, int]]) -> bytes:
        changed = data
        for at, text, dropped in edits:
            changed = changed[:at] + text + changed[at + dropped :]
        return changed

    return swaps.map(apply)


@given(data=st.binary(max_size=100) | mutated(ZIP.read_bytes()) | mutated(LEGACY.read_bytes()))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_whole_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.pt"
    path.write_bytes(data)
    with contextlib.suppress(Unreadable):
        TORCH_FILE.read(entry_of(path))
    with contextlib.suppress(Unreadable):
        assert verify(path).why


@pytest.mark.long
def test_a_pickle_with_too_many_instructions_does_not_make_an_archive_torn(tmp_path: Path) -> None:
    path = tmp_path / "long.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("long/data.pkl", b"\x80\x02](" + b"N" * 1_600_000 + b"e.")
        archive.writestr("long/version", "3\n")
    assert read(path).global_step is None
    verdict = verify(path)
    assert verdict.whole
    assert "storages not compared" in verdict.why
