"""How the house is laid out: no circle of imports, no crowded folder, public names where they were."""

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import grimp
import pytest

from ratchet import measured
from support.places import ROOT, TESTS

PACKAGE = ROOT / "launcher" / "faultrun"
MOST_MODULES = 15
MOST_TESTS = 25

PUBLIC = {
    "faultrun.checkpoints.format": ("Claim", "Foreign", "Format", "Listing", "Look", "Unreadable"),
    "faultrun.checkpoints.reading": ("opened",),
    "faultrun.model.checkpoint": ("Depth", "Entry", "Kind", "Verdict"),
    "faultrun.sdk": (
        *("Folder", "MemoryFault", "MemoryFaultKind", "RecoveryPoint", "WorkPhase", "done", "is_newcomer"),
        *("on_peer_lost", "phase", "resume", "should_stop", "start", "step", "updating"),
    ),
    "faultrun.sdk.session": ("read_session",),
    "faultrun.testing": ("from_environment",),
    "faultrun.sdk.accelerate": ("AccelerateGuard", "Folder", "protect"),
    "faultrun.sdk.lightning": ("DyingGasp", "Folder", "protect"),
    "faultrun.sdk.mindspore": (
        *("DyingGasp", "ExceptionCheckpoint", "OptTFTWrapper", "RestoreStrategyGenerator"),
        *("SharedBatches", "TFTRegister"),
    ),
    "faultrun.sdk.torch": ("Folder", "Guard", "init_process_group", "protect"),
    "faultrun.sdk.transformers": ("DyingGasp",),
    "faultrun.testing.emulated_npu": ("install", "uce"),
}
"""What scripts and plug-ins of users import: ``docs/`` tells of it, so that it stays where it is."""
NEEDS = {
    "faultrun.sdk.accelerate": "accelerate",
    "faultrun.sdk.lightning": "lightning",
    "faultrun.sdk.mindspore": "mindspore",
    "faultrun.sdk.torch": "torch",
    "faultrun.sdk.transformers": "transformers",
    "faultrun.testing.emulated_npu": "torch",
}


def test_no_import_leads_back_to_where_it_began() -> None:
    """All imports count: those for types and those inside of functions, too."""
    graph = grimp.build_graph("faultrun", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert list(circles(imports)) == []


def circles(imports: Mapping[str, set[str]]) -> Iterator[frozenset[str]]:
    """Strongly connected modules, by Tarjan's algorithm; each circle whole."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> Iterator[frozenset[str]]:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for other in sorted(imports[module]):
            if other not in number:
                yield from visit(other)
            if other in path:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            circle = path[path.index(module) :]
            del path[path.index(module) :]
            if len(circle) > 1:
                yield frozenset(circle)

    for module in sorted(imports):
        if module not in number:
            yield from visit(module)


def test_a_circle_is_found_wherever_one_looks_from() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert list(circles(arrows)) == [frozenset("bc")]


@pytest.mark.parametrize(
    ("root", "pattern", "most"),
    [(PACKAGE, "*.py", MOST_MODULES), (TESTS, "*.py", MOST_TESTS)],
    ids=["launcher", "tests"],
)
def test_no_folder_holds_more_than_a_reader_keeps_in_mind(root: Path, pattern: str, most: int) -> None:
    folders = {path.parent for path in root.rglob(pattern)}
    sizes = {
        str(folder.relative_to(ROOT)): sum(path.name != "__init__.py" for path in folder.glob(pattern))
        for folder in folders
    }
    assert {folder: size for folder, size in sizes.items() if size > most} == {}


def test_there_is_no_more_of_it_than_was_agreed() -> None:
    assert [one for one in measured() if one[1] > one[2]] == []


@pytest.mark.parametrize("module", [name for name in PUBLIC if name not in NEEDS])
def test_what_users_import_is_where_it_was(module: str) -> None:
    assert [name for name in PUBLIC[module] if not hasattr(import_module(module), name)] == []


@pytest.mark.slow
@pytest.mark.parametrize("module", sorted(NEEDS))
def test_what_users_import_beside_a_framework_is_where_it_was(module: str) -> None:
    if find_spec(NEEDS[module]) is None:
        pytest.skip(f"{NEEDS[module]} is not installed")
    assert [name for name in PUBLIC[module] if not hasattr(import_module(module), name)] == []


def test_the_tour_is_an_afternoon_through_files_that_there_are() -> None:
    page = (ROOT / "launcher" / "DESIGN.md").read_text(encoding="utf-8")
    tour = page.partition("## The tour")[2].partition("\n## ")[0]
    files = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \|", tour, re.MULTILINE)
    lines = sum(len((PACKAGE / file).read_text(encoding="utf-8").splitlines()) for file in files)
    assert 5 < len(files) <= 14
    assert lines <= 3600


def test_what_a_tour_names_in_a_file_is_there() -> None:
    page = (ROOT / "launcher" / "DESIGN.md").read_text(encoding="utf-8")
    tours = page.partition("## The tour")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \w+ \| `([\w/]+\.py)` \| (.+) \|$", tours, re.MULTILINE)
    named = {(file, name) for file, says in rows for name in re.findall(r"`([a-z_]\w*)`", says)}
    assert len(rows) == 23
    assert {one for one in named if one[1] not in (PACKAGE / one[0]).read_text(encoding="utf-8")} == set()


DECISIONS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "decisions").glob("*.md"))


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "launcher/DESIGN.md", *DECISIONS])
def test_a_file_that_these_pages_name_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {one for one in re.findall(r"`([\w/]+/\w+\.py)`", text) if not re.search(r"[A-Z]", one)}
    assert page in DECISIONS or len(named) > 10
    assert {one for one in named if not any((root / one).exists() for root in (PACKAGE, ROOT))} == set()


def test_the_design_is_read_at_one_sitting_and_leads_to_every_decision() -> None:
    text = (ROOT / "launcher" / "DESIGN.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert {page for page in DECISIONS if f"(../{page})" not in text} == set()


@pytest.mark.parametrize("page", [page for page in DECISIONS if not page.endswith("README.md")])
def test_a_decision_has_a_date_a_problem_and_what_was_decided(page: str) -> None:
    whole = re.compile(r"[^\n]+\n\n\*2026-\d\d-\d\d\*\n\n.*\*\*Problem\.\*\*.*\*\*Decision\.\*\*", re.DOTALL)
    entries = re.split(r"^## ", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert [one[:80] for one in entries if not one.startswith("A sketch") and not whole.match(one)] == []
