"""The page says what the record says, and both come from one command."""

import json
from pathlib import Path

import pytest
from benchmarks.goodput import page
from benchmarks.goodput.__main__ import DOCS, RESULTS, arguments, rounded
from benchmarks.goodput.assumptions import Assumptions, read, shown
from benchmarks.goodput.recoveries import COLD, SPARE, STANDBYS, STAY, TORCHRUN, over_nodes
from benchmarks.goodput.recoveries import read as read_recoveries
from benchmarks.goodput.study import Study

COMMITTED = json.loads((RESULTS / "goodput.json").read_text(encoding="utf-8"))


def test_the_pages_are_made_of_the_record_beside_them() -> None:
    assert (RESULTS / "goodput.md").read_text(encoding="utf-8") == page.page(COMMITTED)
    docs = DOCS.read_text(encoding="utf-8")
    assert page.between_marks(docs, COMMITTED) == docs
    with pytest.raises(ValueError, match="goodput: begin"):
        page.between_marks("no marks", COMMITTED)


def test_the_record_is_of_the_assumptions_that_are_the_defaults() -> None:
    assert COMMITTED["assumed"] == rounded(
        {name: getattr(Assumptions(), name) for name in COMMITTED["assumed"]}
    )
    assert set(COMMITTED["assumed"]) == set(Assumptions.__dataclass_fields__)


def test_a_small_study_makes_a_whole_page_and_the_same_seed_the_same_one() -> None:
    def made() -> str:
        study = Study(
            assumed=Assumptions(days=0.5),
            measured=read_recoveries(RESULTS),
            over_nodes=over_nodes(RESULTS),
            sizes=(8, 1024),
            faults=5,
            seed=2,
        )
        return page.page(json.loads(json.dumps(study.record())))

    first = made()
    assert first == made()
    assert "nan" not in first
    tables = [lines for lines in first.split("\n\n") if lines.startswith("|")]
    assert len(tables) > 10
    assert all(
        len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1 for table in tables
    )


def test_recoveries_are_those_that_were_measured(tmp_path: Path) -> None:
    def record(name: str, **seconds: list[float]) -> None:
        samples = [
            {"case": "2 workers", "contender": contender, "metric": "first_step", "values": values}
            for contender, values in seconds.items()
        ]
        (tmp_path / name).write_text(json.dumps({"contenders": list(seconds), "samples": samples}))

    names = ("faultrun, standbys", "faultrun", "torchrun, unshared store", "ft_launcher", "shell loop")
    record("warm.json", **{name: [float(at), 0.5] for at, name in enumerate(names, start=1)})
    found = read_recoveries(tmp_path)
    assert found[TORCHRUN].samples_s == (0.5, 3.0)
    assert found[STAY] == found[STANDBYS]
    assert found[SPARE] == found[COLD]
    assert [found[TORCHRUN].drawn(draw) for draw in (0.0, 0.49, 0.51, 1.0)] == [0.5, 0.5, 3.0, 3.0]
    record(
        "stay.json", **{"faultrun, standbys": [9.0], "faultrun, survivors stay": [0.25], "torchrun": [4.0]}
    )
    assert read_recoveries(tmp_path)[STAY].samples_s == (0.25,)
    assert over_nodes(tmp_path)[TORCHRUN] == found[TORCHRUN]


def test_an_assumption_is_an_argument() -> None:
    asked, assumed = arguments(["--save_s=1s", "--node", "0.25", "--repair_s=168h", "--devices=8,16"])
    assert (assumed.save_s, assumed.node, assumed.repair_s) == (1.0, 0.25, 604_800.0)
    assert asked.devices == "8,16"
    for wrong in ("--node=0.99", "--save_s=soon", "--human=2"):
        with pytest.raises(SystemExit):
            arguments([wrong])


@pytest.mark.parametrize("name", sorted(Assumptions.__dataclass_fields__))
def test_what_is_shown_can_be_given_again(name: str) -> None:
    assert read(name, shown(name, getattr(Assumptions(), name))) == pytest.approx(
        getattr(Assumptions(), name), rel=1e-3
    )
