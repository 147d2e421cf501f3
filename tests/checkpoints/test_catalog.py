"""The catalog: what is listed, and what plug-ins may break."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.format import Claim, Listing, Look
from faultrun.checkpoints.formats.user_pattern import Pattern
from faultrun.checkpoints.names import is_unfinished, place_of, rank_of_directory
from faultrun.checkpoints.registry import GROUP, Registry, builtin_formats
from faultrun.core.recovery.choose import Chosen, NoneUsable
from faultrun.core.recovery.need import Need, World
from faultrun.errors import UsageError
from faultrun.model.checkpoint import Depth, Entry, Verdict
from support.checkpoints.catalogs import MINDSPORE, catalog_of, judge, only, reasons, survey_of
from support.checkpoints.ckpt_bytes import ckpt, save


def test_a_missing_root_is_no_error_and_an_unlistable_one_is_reported(tmp_path: Path) -> None:
    assert catalog_of(tmp_path / "absent").scan().entries == ()
    assert catalog_of(tmp_path / "absent").scan().refused == ()


def test_a_root_may_be_one_file(tmp_path: Path) -> None:
    path = save(tmp_path / "net-1_2.ckpt", ckpt(1, 2))
    save(tmp_path / "net-1_3.ckpt", ckpt(1, 3))
    catalog = Catalog([str(path)], registry=Registry(formats=MINDSPORE))
    assert [entry.path for entry in catalog.scan().entries] == [str(path)]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else")
def test_a_root_may_be_one_file_in_a_folder_that_cannot_be_listed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        path = save(Path(folder) / "net-1_2.ckpt", ckpt(1, 2))
        os.seteuid(65534)
        try:
            scan = Catalog([str(path)], registry=Registry(formats=MINDSPORE)).scan()
        finally:
            os.seteuid(0)
    assert [(one.path, one.why) for one in scan.refused] == [
        (str(path), "cannot be listed: Permission denied")
    ]


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
    assert isinstance(found.choice, NoneUsable)
    assert "no verdicts today" in found.choice.refused[0].why


class Mistaken(Broken):
    """Fails where it has to compare."""

    def read(self, entry: Entry) -> Entry:
        return entry

    def verify(self, entry: Entry, look: Look) -> Verdict:
        return Verdict(whole=True, why="all is there", depth=Depth.STRUCTURE)

    def reconcile(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        raise RuntimeError("no order today")


def test_a_plug_in_that_cannot_say_which_is_the_newest_offers_none(tmp_path: Path) -> None:
    save(tmp_path / "net-1_2.ckpt", ckpt(1, 2))
    save(tmp_path / "sub/claim.me", b"x")
    formats = (Mistaken(), *MINDSPORE)
    assert isinstance(survey_of(tmp_path, formats=formats).choice, Chosen)
    verdict = judge(tmp_path, "sub/claim.me", formats=formats)
    assert (verdict.whole, "no order today" in verdict.why) == (False, True)


@pytest.mark.long
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
    assert is_unfinished(name) == unfinished


def test_the_need_of_a_survey_reaches_the_choice(tmp_path: Path) -> None:
    for rank in range(2):
        save(tmp_path / f"rank_{rank}/net-1_{2 - rank}.ckpt", ckpt(1, 2 - rank))
    groups = (frozenset({0}), frozenset({1}))
    assert isinstance(survey_of(tmp_path, Need(world=World(size=2, groups=groups))).choice, NoneUsable)
