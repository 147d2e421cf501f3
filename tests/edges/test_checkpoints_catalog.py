"""The catalog: what is listed, what is read twice, what is remembered, what plug-ins may break."""

import gc
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.format import Claim, Listing, Look
from faultrun.checkpoints.generic import Pattern
from faultrun.checkpoints.names import is_unfinished_name, place_of, rank_of_directory
from faultrun.checkpoints.registry import GROUP, Registry, builtin_formats
from faultrun.core.recover import Chosen, Need, NothingWhole
from faultrun.errors import UsageError
from faultrun.model.checkpoint import Depth, Entry, Verdict
from support.catalogs import MINDSPORE, catalog_of, judge, only, reasons, survey_of
from support.ckpt_bytes import ckpt, save


class Counting:
    """A real format that counts how often it is asked to open something."""

    name = "counting"

    def __init__(self) -> None:
        self.headers: list[str] = []
        self.verified: list[str] = []

    def claim(self, listing: Listing) -> Iterator[Claim]:
        for name in listing.files:
            if name.endswith(".bin"):
                yield Claim(path=listing.join(name), members=(name,))

    def read(self, entry: Entry) -> Entry:
        self.headers.append(Path(entry.path).name)
        return replace(
            entry, global_step=int(Path(entry.path).read_text() or 0), rank=3, replica_group=(3, 1)
        )

    def verify(self, entry: Entry, look: Look) -> Verdict:
        self.verified.append(Path(entry.path).name)
        return Verdict(whole=True, why="counted", depth=Depth.CHECKSUM, digest="sha256:00")


def counting(root: Path, one: Counting, memory: Path | None = None) -> Catalog:
    return catalog_of(root, (one,), memory=memory)


def test_nothing_is_read_twice_by_one_process(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    one = Counting()
    catalog = counting(tmp_path, one)
    (entry,) = catalog.scan().entries
    assert catalog.scan().entries == (entry,)
    assert catalog.verify(entry) == catalog.verify(entry)
    assert (one.headers, one.verified) == (["a.bin"], ["a.bin"])


def test_nothing_is_read_again_by_the_next_process(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    memory = tmp_path / "log/checkpoints.jsonl"
    memory.parent.mkdir()
    first = counting(tmp_path, Counting(), memory)
    (entry,) = first.scan().entries
    verdict = first.verify(entry)
    second = Counting()
    again = counting(tmp_path, second, memory)
    assert again.scan().entries == (entry,)
    assert again.verify(entry) == verdict
    assert (second.headers, second.verified) == ([], [])


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    one = Counting()
    catalog = counting(tmp_path, one)
    catalog.verify(catalog.scan().entries[0])
    save(tmp_path / "new", b"2").replace(tmp_path / "a.bin")
    (entry,) = catalog.scan().entries
    assert entry.global_step == 2
    catalog.verify(entry)
    assert (one.headers, one.verified) == (["a.bin"] * 2, ["a.bin"] * 2)


def test_a_torn_memory_costs_time_and_nothing_else(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    memory = tmp_path / "checkpoints.jsonl"
    catalog = counting(tmp_path, Counting(), memory)
    catalog.verify(catalog.scan().entries[0])
    lines = memory.read_bytes()
    for size in range(len(lines)):
        memory.write_bytes(lines[:size] + b"\n{]\n[1]\n" + b'{"s":["x"]}\n' + b"\xff\n")
        again = counting(tmp_path, Counting(), memory)
        (entry,) = again.scan().entries
        assert (entry.global_step, entry.rank) == (1, 3)
        assert again.verify(entry).whole


def test_a_memory_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", b"1")
    catalog = counting(tmp_path, Counting(), tmp_path / "absent/checkpoints.jsonl")
    assert catalog.verify(catalog.scan().entries[0]).whole


def test_an_answer_that_may_change_is_not_remembered(tmp_path: Path) -> None:
    memory = tmp_path / "checkpoints.jsonl"
    save(tmp_path / "net-1_1.ckpt", ckpt(None, None))
    lone = catalog_of(tmp_path, memory=memory)
    assert not lone.verify(lone.scan().entries[0]).whole
    save(tmp_path / "net-1_2.ckpt", ckpt(None, None))
    now = catalog_of(tmp_path, memory=memory)
    assert all(now.verify(entry).whole for entry in now.scan().entries)


def test_the_memory_holds_no_more_than_one_line_for_each_thing_learned(tmp_path: Path) -> None:
    memory = tmp_path / "checkpoints.jsonl"
    save(tmp_path / "a.bin", b"1")
    for _ in range(3):
        catalog = counting(tmp_path, Counting(), memory)
        catalog.verify(catalog.scan().entries[0])
    lines = [json.loads(line) for line in memory.read_text().splitlines()]
    assert len(lines) == 2


def test_a_memory_that_has_grown_long_keeps_what_is_there_and_what_is_left_alone(tmp_path: Path) -> None:
    memory = tmp_path / "log/checkpoints.jsonl"
    memory.parent.mkdir()
    old, new = save(tmp_path / "old.bin", b"1"), save(tmp_path / "new.bin", b"2")
    first = counting(tmp_path, Counting(), memory)
    for entry in first.scan().entries:
        first.verify(entry)
    first.leave_alone(entry for entry in first.scan().entries if entry.path == str(old))
    learned = memory.read_text()
    first.tidy(first.scan())
    assert memory.read_text() == learned, "short as it is, it is left as it is"
    gone = "".join(learned.replace("new.bin", f"gone{number}.bin") for number in range(1000))
    gone = gone.replace(f'"s":[{new.stat().st_ino},', '"s":[1,')
    memory.write_text(gone + learned)
    again = counting(tmp_path, Counting(), memory)
    again.tidy(again.scan())
    assert len(memory.read_text().splitlines()) == 5
    asked = Counting()
    third = counting(tmp_path, asked, memory)
    (entry,) = third.scan().entries
    assert entry.path == str(new)
    assert third.verify(entry).whole
    assert (asked.headers, asked.verified) == ([], [])


def test_files_that_are_gone_take_no_room_in_a_long_run(tmp_path: Path) -> None:
    catalog = counting(tmp_path, Counting(), tmp_path / "memory.jsonl")
    held_bytes = []
    tracemalloc.start()
    for life in range(6):
        paths = [save(tmp_path / f"{life}-{number}.bin", b"1") for number in range(50)]
        for entry in catalog.scan().entries:
            catalog.verify(entry)
        for path in paths:
            path.unlink()
        catalog.tidy(catalog.scan())
        gc.collect()
        ours = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(True, "*/faultrun/checkpoints/*")]
        )
        held_bytes.append(sum(trace.size for trace in ours.traces))
    tracemalloc.stop()
    assert held_bytes[-1] - held_bytes[1] < 200 * 50, "fifty bytes a file"


def test_a_file_that_changes_between_listing_and_verifying_is_still_being_written(tmp_path: Path) -> None:
    path = save(tmp_path / "a.bin", b"1")
    catalog = counting(tmp_path, Counting())
    (entry,) = catalog.scan().entries
    path.write_bytes(b"12")
    verdict = catalog.verify(entry)
    assert (verdict.whole, verdict.provisional) == (False, True)
    assert "still being written" in verdict.why
    path.unlink()
    assert not catalog.verify(entry).whole


def test_a_missing_root_is_no_error_and_an_unlistable_one_is_reported(tmp_path: Path) -> None:
    assert catalog_of(tmp_path / "absent").scan().entries == ()
    assert catalog_of(tmp_path / "absent").scan().refused == ()


def test_a_root_may_be_one_file(tmp_path: Path) -> None:
    path = save(tmp_path / "net-1_2.ckpt", ckpt(1, 2))
    save(tmp_path / "net-1_3.ckpt", ckpt(1, 3))
    catalog = Catalog([str(path)], registry=Registry(formats=MINDSPORE))
    assert [entry.path for entry in catalog.scan().entries] == [str(path)]


def test_the_same_root_twice_and_a_root_within_a_root_list_each_file_once(tmp_path: Path) -> None:
    save(tmp_path / "rank_0/net-1_2.ckpt", ckpt(1, 2))
    roots = [str(tmp_path), str(tmp_path), str(tmp_path / "rank_0")]
    assert len(Catalog(roots, registry=Registry(formats=MINDSPORE)).scan().entries) == 1


def test_pipes_sockets_and_hidden_directories_are_not_touched(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "net-1_1.ckpt")
    save(tmp_path / ".trash/net-1_2.ckpt", ckpt(1, 2))
    scan = catalog_of(tmp_path).scan()
    assert (scan.entries, scan.refused) == ((), ())


def test_two_formats_may_claim_one_name_and_the_bytes_decide(tmp_path: Path) -> None:
    """``.ckpt`` is MindSpore's and Lightning's."""
    save(tmp_path / "a.ckpt", b"PK\x03\x04 not MindSpore's")
    anything = Pattern(r".*\.ckpt")
    assert only(tmp_path, (*MINDSPORE, anything)).format == "pattern"
    assert "does not begin with a MindSpore record" in judge(tmp_path, "a.ckpt").why


class Broken:
    """A plug-in that fails wherever it is called."""

    name = "broken"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        if "claim.me" in listing.files:
            yield Claim(path=listing.join("claim.me"), members=("claim.me",))
            return
        raise RuntimeError("no claims today")

    def read(self, entry: Entry) -> Entry:
        raise RuntimeError("no headers today")

    def verify(self, entry: Entry, look: Look) -> Verdict:
        raise RuntimeError("no verdicts today")


def test_a_plug_in_that_raises_is_reported_and_hides_nothing(tmp_path: Path) -> None:
    save(tmp_path / "net-1_2.ckpt", ckpt(1, 2))
    save(tmp_path / "sub/claim.me", b"x")
    formats = (Broken(), *MINDSPORE)
    found = survey_of(tmp_path, formats=formats)
    assert isinstance(found.choice, Chosen)
    assert reasons(found, tmp_path) == {".": "the format broken failed here: RuntimeError: no claims today"}
    verdict = judge(tmp_path, "sub/claim.me", formats=formats)
    assert verdict.why == "the format broken failed on it: RuntimeError: no headers today"


class Liar(Broken):
    """Fails only when it has to prove something."""

    def read(self, entry: Entry) -> Entry:
        return entry


def test_a_plug_in_that_cannot_verify_proves_nothing(tmp_path: Path) -> None:
    save(tmp_path / "claim.me", b"x")
    found = survey_of(tmp_path, formats=(Liar(),))
    assert isinstance(found.choice, NothingWhole)
    assert "no verdicts today" in found.choice.refused[0].why


def test_formats_of_installed_packages_are_found_and_broken_ones_named(tmp_path: Path) -> None:
    """Real entry points of a real (if tiny) installed distribution, seen by a fresh interpreter."""
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\ngood = faultrun_plugin_of_tests:FORMAT\nbad = faultrun_plugin_of_tests:NOT_A_FORMAT\n"
        "gone = no_such_module_at_all:FORMAT\n"
    )
    (tmp_path / "faultrun_plugin_of_tests.py").write_text(
        "class F:\n    name = 'mine'\n    def claim(self, listing): return ()\n"
        "    def read(self, entry): return entry\n    def verify(self, entry, look): raise ValueError\n"
        "FORMAT = F()\nNOT_A_FORMAT = 1\n"
    )
    ask = (
        "import json; from faultrun.checkpoints.registry import load_registry; found = load_registry();"
        "print(json.dumps([[one.name for one in found.formats], sorted(found.broken)]))"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    told = subprocess.run(
        [sys.executable, "-c", ask], env={"PYTHONPATH": path}, stdout=subprocess.PIPE, check=True, timeout=60
    )
    names, broken = json.loads(told.stdout)
    assert "mine" in names
    assert len(broken) == 2
    assert "bad (faultrun_plugin_of_tests:NOT_A_FORMAT) left out: TypeError: it has no name" in broken[0]
    assert "gone (no_such_module_at_all:FORMAT) left out: ModuleNotFoundError" in broken[1]


def test_formats_have_different_names() -> None:
    names = [one.name for one in builtin_formats()]
    assert len(names) == len(set(names))


def test_a_sidecar_digest_is_compared(tmp_path: Path) -> None:
    import hashlib

    path = save(tmp_path / "net-1_2.ckpt", ckpt(1, 2))
    sidecar = tmp_path / "net-1_2.ckpt.sha256"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    sidecar.write_text(f"{digest}  net-1_2.ckpt\n")
    assert judge(tmp_path, "net-1_2.ckpt").why == "matches its .sha256"
    sidecar.write_text(f"{'0' * 64} *some/where/net-1_2.ckpt\n")
    assert judge(tmp_path, "net-1_2.ckpt").why == "its bytes do not match its .sha256"
    for garbled in ("", digest[:40], "what?", f"{'0' * 64}  other.ckpt\n"):
        sidecar.write_text(garbled)
        assert judge(tmp_path, "net-1_2.ckpt").why == "5 records, the appended ones included"


def test_a_pattern_reads_rank_epoch_and_step_from_names(tmp_path: Path) -> None:
    save(tmp_path / "run-e3-s120-r1.state", b"x" * 10)
    pattern = Pattern(r"run-e(?P<epoch>\d+)-s(?P<step>\d+)-r(?P<rank>\d+)\.state")
    entry = only(tmp_path, (pattern,))
    assert (entry.epoch, entry.global_step, entry.rank) == (3, 120, 1)


def test_a_pattern_with_a_slash_sees_the_path(tmp_path: Path) -> None:
    save(tmp_path / "step_50/rank_2/weights.npz", b"x" * 10)
    entry = only(tmp_path, (Pattern(r"step_(?P<step>\d+)/.*/weights\.npz"),))
    assert (entry.global_step, entry.rank) == (50, 2)


def test_a_pattern_file_shorter_than_its_siblings_is_refused(tmp_path: Path) -> None:
    for step, size in ((1, 100), (2, 100), (3, 60)):
        save(tmp_path / f"s{step}.npz", b"x" * size)
    found = survey_of(tmp_path, formats=(Pattern(r"s(?P<step>\d+)\.npz"),))
    assert isinstance(found.choice, Chosen)
    assert found.choice.point.global_step == 2
    assert reasons(found, tmp_path) == {"s3.npz": "has 60 bytes, its siblings have 100"}


@pytest.mark.parametrize("expression", ["(", r"(?P<loss>\d+)"])
def test_a_bad_pattern_is_the_users_mistake(expression: str) -> None:
    with pytest.raises(UsageError):
        Pattern(expression)


@pytest.mark.parametrize(
    ("directory", "rank"),
    [("/a/rank_3", 3), ("/a/rank3", 3), ("/a/ckpt_12", 12), ("/a/rank_3/weights", 3), ("/a/step_3", None),
     ("/rank_1/a/b", None), ("/a/frank_3", None), ("/a/device7", 7)],
)  # fmt: skip
def test_ranks_in_directory_names(directory: str, rank: int | None) -> None:
    assert rank_of_directory(directory) == rank


def test_places_forget_ranks_and_steps_only() -> None:
    assert place_of("/run7/rank_3/step_100") == place_of("/run7/rank_5/step_200")
    assert place_of("/run7/rank_3") != place_of("/run8/rank_3")
    assert place_of("/x/ttp_saved_checkpoints-step_5") == place_of("/x/ttp_saved_checkpoints-step_6")


@pytest.mark.parametrize(
    ("name", "unfinished"),
    [("a.tmp", True), ("a.ckpt.tmp", True), ("a.pt.tmp.1234", True), ("a.part", True), ("a.incomplete", True),
     (".a.ckpt.swp", True), (".nfs0000beef", True), ("a~", True), ("a.ckpt", False), ("template.ckpt", False),
     ("departed.ckpt", False), ("a_tmp", True)],
)  # fmt: skip
def test_names_that_writers_use_before_the_final_rename(name: str, unfinished: bool) -> None:
    assert is_unfinished_name(name) == unfinished


def test_the_need_of_a_survey_reaches_the_choice(tmp_path: Path) -> None:
    for rank in range(2):
        save(tmp_path / f"rank_{rank}/net-1_{2 - rank}.ckpt", ckpt(1, 2 - rank))
    groups = (frozenset({0}), frozenset({1}))
    assert isinstance(survey_of(tmp_path, Need(world_size=2, groups=groups)).choice, NothingWhole)
