"""The page of a report: light, true, safe, and legible for eyes, ears, keyboards and paper."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.harness.long_journal import Shape, write_journal
from hypothesis import given
from hypothesis import strategies as st

from faultrun.cli.report import account_of
from faultrun.journal.logdir import read_record
from faultrun.model.printable import printable
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.report.document import document
from faultrun.observe.report.pages import html
from faultrun.observe.report.words import shown, shown_incidents
from support.stories.report_documents import ADDED, as_json, of_story

_LIGHT = 150_000
_ALLOWED = {
    "a", "b", "body", "br", "caption", "circle", "code", "data", "dd", "defs", "desc", "details", "div",
    "dl", "dt", "footer", "h1", "h2", "h3", "head", "header", "html", "li", "line", "link", "main",
    "meta", "ol", "p", "path", "pattern", "rect", "section", "span", "style", "summary", "svg", "table",
    "tbody", "td", "text", "th", "thead", "title", "tr", "ul",
}  # fmt: skip


def of_run(folder: Path, *, events: int = 400, workers: int = 4, incidents: int = 5) -> dict[str, Any]:
    """The document as report.json has it."""
    write_journal(folder / "journal.jsonl", Shape(events=events, workers=workers, incidents=incidents))
    return as_json(document(account_of(folder), read_record(folder)))


def parsed(page: str) -> ElementTree.Element:
    """Stricter than HTML: every tag is closed in its order, every attribute is quoted."""
    assert page.startswith("<!doctype html>\n")
    return ElementTree.fromstring(page.removeprefix("<!doctype html>"))


def words_of(element: ElementTree.Element) -> str:
    return "".join(element.itertext())


def rows_of(page: ElementTree.Element, section: str) -> list[list[str]]:
    """The body of the first table of a section, cell by cell."""
    (found,) = [one for one in page.iter("section") if one.get("aria-labelledby") == section]
    body = next(found.iter("tbody"))
    return [[words_of(cell) for cell in row] for row in body]


@pytest.mark.long
def test_a_page_is_light_whether_nothing_happened_or_much(tmp_path: Path) -> None:
    assert len(html(as_json(document(Accountant().account(), {})))) < 20_000
    assert len(html(of_run(tmp_path))) < 50_000
    assert len(html(of_run(tmp_path, events=30_000, workers=300, incidents=80))) < _LIGHT


@pytest.mark.slow
def test_a_page_of_ten_thousand_incidents_is_light_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    data = of_run(tmp_path, events=0, workers=4, incidents=10_000)
    assert data["incidents_total"] == len(data["incidents"]) == 10_000
    page = html(data)
    assert len(page) < _LIGHT
    assert len(rows_of(parsed(page), "incidents")) <= 30
    for words in ("costliest and the 10 newest of 10,000", "report.json", "journal.jsonl", "10,001 lives"):
        assert words in page


@pytest.mark.long
def test_every_number_in_the_page_is_that_of_the_document(tmp_path: Path) -> None:
    for data in (of_run(tmp_path), of_run(tmp_path, events=3000, incidents=60), of_story()):
        page = parsed(html(data))
        marked = list(page.iter("data"))
        assert len(marked) > 10
        for one in marked:
            path = one.attrib["data-of"]
            value: Any = data
            for name in path.split("."):
                value = value[name]
            assert one.attrib["value"] == ("" if value is None else str(value))
            unit = "_s" if path.startswith("spent.") else path
            assert words_of(one) == shown(unit, value)
        for cells, fault in zip(
            rows_of(page, "incidents"), shown_incidents(data["incidents"])[0], strict=True
        ):
            number, at, who, what, step, lost, recovery, then = cells
            assert (number, who, what, then) == (
                str(fault["number"]), f"rank {fault['rank']}", fault["what"], fault["resume"] or fault["end"]
            )  # fmt: skip
            assert at == fault["at_utc"][5:19].replace("T", " ")
            assert step == f"{fault['step']:,} → {fault['resumed_step']:,}"
            assert (lost, recovery) == (f"{fault['lost_steps']:,}", shown("_s", fault["recovery_s"]))
        counts = [int(cells[1]) for cells in rows_of(page, "causes")]
        assert sum(counts) == data["incidents_total"]


def test_the_stages_of_a_recovery_sum_to_it(tmp_path: Path) -> None:
    for data in (of_run(tmp_path), of_story()):
        for fault in data["incidents"]:
            assert sum(fault["stages"].values()) == pytest.approx(fault["recovery_s"], abs=0.01)
        assert sum(data["recovery"]["stages"].values()) == pytest.approx(
            sum(fault["recovery_s"] for fault in data["incidents"]) / len(data["incidents"]), abs=0.01
        )


def replaced(value: Any, word: str) -> Any:
    """The document with ``word`` for every text of a stranger."""
    match value:
        case dict():
            return {
                key: word if key in _STRANGERS and isinstance(one, str) else replaced(one, word)
                for key, one in value.items()
            }
        case list():
            return [replaced(one, word) for one in value]
        case _:
            return value


_STRANGERS = ("run_id", "command", "framework", "version", "why", "what", "because", "hint", "resume", "end",
              "resumed_from", "cause", "text", "last_utc", "note")  # fmt: skip
_STORY = of_story() | ADDED


@given(st.text(st.characters(codec="utf-8", exclude_characters="\ufffe\uffff"), min_size=1))
def test_nothing_that_anybody_said_is_markup(word: str) -> None:
    page = html(replaced(_STORY, word))
    tree = parsed(page)
    assert {element.tag for element in tree.iter()} <= _ALLOWED
    for element in tree.iter():
        assert not [name for name in element.attrib if name.startswith(("on", "srcdoc"))]
    assert words_of(next(tree.iter("h1"))) == printable(word)


@pytest.mark.parametrize(
    "evil", ["</title><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "]]>&amp;"]
)
def test_a_last_log_line_of_markup_is_shown_as_it_was_said(evil: str) -> None:
    page = html(replaced(_STORY, evil))
    assert "<script" not in page
    assert "<img" not in page
    assert evil in words_of(parsed(page))


def test_the_page_fetches_and_runs_nothing(tmp_path: Path) -> None:
    page = html(of_run(tmp_path))
    tree = parsed(page)
    policy = [one.get("content") for one in tree.iter("meta") if one.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    urls = [value for one in tree.iter() for name, value in one.attrib.items() if name in ("src", "href")]
    assert urls == ["data:,"]
    assert not re.findall(r"https?:|//[a-z]|@import|url\((?!#)", page)
    assert "script" not in {one.tag for one in tree.iter()}


def test_headings_landmarks_and_pictures_can_be_told_by_a_screen_reader(tmp_path: Path) -> None:
    for data in (of_run(tmp_path), of_story(), as_json(document(Accountant().account(), {}))):
        tree = parsed(html(data))
        assert tree.get("lang") == "en"
        body = tree.find("body")
        assert body is not None
        assert [one.tag for one in body] == ["header", "main", "footer"]
        levels = [int(one.tag[1]) for one in tree.iter() if re.fullmatch("h[1-6]", one.tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(below - above <= 1 for above, below in pairwise(levels))
        ids = [one.attrib["id"] for one in tree.iter() if "id" in one.attrib]
        assert len(ids) == len(set(ids))
        named = [
            one.attrib["aria-labelledby"].split() for one in tree.iter() if "aria-labelledby" in one.attrib
        ]
        assert {name for names in named for name in names} <= set(ids)
        assert all(one.get("aria-labelledby") for one in tree.iter("section"))
        assert not [one for one in tree.iter() if "tabindex" in one.attrib]
        for details in tree.iter("details"):
            assert details[0].tag == "summary"
        for head in tree.iter("th"):
            assert head.get("scope") in ("col", "row")
        for drawn in outer_pictures(tree):
            alternative = drawn.get("aria-label") or drawn.get("aria-labelledby")
            assert drawn.get("aria-hidden") == "true" or (drawn.get("role") == "img" and alternative)


def outer_pictures(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    for one in element:
        if one.tag == "svg":
            yield one
        else:
            yield from outer_pictures(one)


def test_a_goodput_that_nobody_knows_is_called_unknown_with_the_reason() -> None:
    data = of_story() | {"productive_share": None, "productive_unknown": "the script reports no steps"}
    (tile,) = [one for one in parsed(html(data)).iter("div") if "goodput" in words_of(one)]
    assert "unknown" in words_of(tile)
    assert "the script reports no steps" in words_of(tile)
    assert "%" not in words_of(tile)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("the run ended", ["none", "training did not go on"]),
        ("running again", ["unknown", "not known when training went on"]),
    ],
)
def test_a_recovery_that_never_came_is_told_from_one_that_nobody_saw(end: str, said: list[str]) -> None:
    data = of_story()
    data["recovery"] = {**data["recovery"], "median_s": None}
    data["incidents"] = [{**one, "end": end, "recovery_s": None} for one in data["incidents"]]
    page = parsed(html(data))
    (tile,) = [one for one in page.iter("div") if words_of(one).startswith("recovery")]
    assert [words_of(one) for one in tile.iter("dd")] == said
    (bar,) = [one for one in page.iter("svg") if one.get("class") == "bar"]
    assert bar.attrib["aria-label"].endswith("unknown") == (said[0] == "unknown")


def test_a_part_that_is_new_in_the_document_is_on_the_page() -> None:
    added = {
        "text": "saved 3 h",
        "left_out": {},
        "start_s": 61.0,
        "share": 0.25,
        "here": {"waiting_s": 2.0, "again_s": 0.5},
        "by_hand": {"waiting_s": 600.0, "again_s": 90.0, "saved_hours": 1.5},
        "each": [{"faults": [1, 2], "hang": True, "here": {"total_s": 2.5}}],
    }
    page = html(of_story() | {"savings": added, "hidden": {"text": "", "n": 1}, "nodes_total": 3})
    (section,) = [one for one in parsed(page).iter("section") if one.get("aria-labelledby") == "of-savings"]
    text = " ".join(words_of(section).split())
    assert text.startswith("What it saved you saved 3 h waiting")
    assert text.count("start1 min 1 s share25.0 %") == 1
    tables = [
        [[words_of(cell) for cell in row] for row in table.iter("tr")] for table in section.iter("table")
    ]
    assert tables == [
        [
            ["", "waiting", "again", "saved hours"],
            ["here", "2 s", "500 ms", ""],
            ["by hand", "10 min", "1 min 30 s", "1.5"],
        ],
        [["faults", "hang", "here total"], ["1, 2", "yes", "2.5 s"]],
    ]
    assert "of-hidden" not in page
    assert "nodes" in page


@pytest.mark.long
def test_one_journal_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    of_run(tmp_path)
    made = []
    for seed in ("1", "2"):
        words = ("report", "--quiet", "--log_dir", str(tmp_path))
        environ = {**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC{seed}"}
        subprocess.run([sys.executable, "-m", "faultrun", *words], env=environ, timeout=60, check=True)
        made.append([(tmp_path / name).read_bytes() for name in ("report.html", "report.json", "report.md")])
    assert made[0] == made[1]


_MODULES = """
import sys
from faultrun.cli.report import report
report.main(["--quiet", "--log_dir", sys.argv[1]], standalone_mode=False)
print(sorted({"numpy", "matplotlib", "pandas", "torch", "rich"} & set(sys.modules)))
"""


@pytest.mark.long
def test_a_report_is_written_without_importing_anything_heavy(tmp_path: Path) -> None:
    of_run(tmp_path)
    words = (sys.executable, "-c", _MODULES, str(tmp_path))
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert (tmp_path / "report.html").stat().st_size < 50_000
