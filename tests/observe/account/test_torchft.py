"""What torchft said of a run's recoveries: in the report and beside the cards, under its own name."""

import json
from pathlib import Path

from benchmarks.harness.long_journal import Shape, write_journal
from click.testing import CliRunner

from faultrun.cli.incident import incident
from faultrun.cli.report import account_of, report
from faultrun.core.torchft_events import TORCHFT_MARK
from faultrun.journal.lines import moment
from faultrun.observe.account.torchft import told_by_torchft


def test_the_report_has_it_in_a_part_of_its_own_and_the_card_of_an_incident_what_followed(
    tmp_path: Path,
) -> None:
    of_run(tmp_path)
    account = account_of(tmp_path)
    began = moment(account.began_utc)
    assert began is not None
    at_s = began.timestamp() + account.faults[1].at_s
    says(tmp_path, 0, 0, "failure_detected", t=at_s + 0.1, step=7, error="<b>reset</b> by peer")
    says(tmp_path, 0, 0, "recovered", t=at_s + 1, step=7, links_s=0.2, restore_s=0.5, total_s=0.8)
    says(tmp_path, 1, 3, "process_start", t=at_s + 0.2, host="a", uid="b")
    says(tmp_path, 1, 3, "recovered", t=at_s + 1, step=7, total_s=0.9)
    with (tmp_path / "incarnation_0/worker_0.log").open("ab") as file:
        file.write(b"\xff\x00" * 3000 + TORCHFT_MARK.encode() + b"{\n" + TORCHFT_MARK.encode())
    called(report, tmp_path)
    told = json.loads((tmp_path / "report.json").read_text())["torchft"]
    assert told["events"] == {"failure_detected": 1, "process_start": 1, "recovered": 2}
    assert [(one["incident"], one["rank"], one.get("took_s")) for one in told["recoveries"]] == [
        (2, 0, None),
        (2, 0, 0.8),
        (2, 3, 0.9),
    ]
    assert "none of it" in told["text"]
    page = (tmp_path / "report.html").read_text()
    assert "What torchft said itself" in page
    assert "&lt;b&gt;reset" in page
    assert "| 2 | 0 | recovered | 7 | 800 ms |" in (tmp_path / "report.md").read_text()
    (tmp_path / "incident_2.txt").write_text("incident 2  rank 1 of 4 exited with code 1\n")
    assert called(incident, tmp_path, "2").split("\n")[1:] == [
        "  torchft   rank 0 noticed a failure at step 7: <b>reset</b> by peer",
        "            rank 3 began",
        "            rank 0 recovered at step 7 in 800 ms (links 200 ms, state 500 ms)",
        "            rank 3 recovered at step 7 in 900 ms",
        "",
    ]


def test_of_another_run_no_log_is_read_and_of_long_logs_the_newest_bytes(tmp_path: Path) -> None:
    of_run(tmp_path, exit_codes="usual")
    says(tmp_path, 0, 0, "training_done", t=1, step=1)
    assert told_by_torchft(tmp_path, record("usual")).events == ()
    for number in range(40):
        says(tmp_path, 0, 0, "recovered", t=2 + number, step=number)
    size = (tmp_path / "incarnation_0/worker_0.log").stat().st_size
    told = told_by_torchft(tmp_path, record("torchft"), size // 2)
    assert [one.step for one in told.events] == list(range(40 - len(told.events), 40))
    assert 15 < len(told.events) <= 20
    assert told.unread_bytes == size - size // 2


def of_run(folder: Path, exit_codes: str = "torchft") -> None:
    write_journal(folder / "journal.jsonl", Shape(events=400, workers=4, incidents=3))
    (folder / "run.json").write_text(json.dumps(record(exit_codes)))


def record(exit_codes: str) -> dict[str, object]:
    return {"run_id": "r", "spec": {"supervision": {"policy": {"exit_codes": exit_codes}}}}


def says(folder: Path, incarnation: int, rank: int, event: str, **fields: object) -> None:
    log = folder / f"incarnation_{incarnation}" / f"worker_{rank}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("a") as file:
        file.write(f"INFO:torchft:{TORCHFT_MARK}{json.dumps({'event': event, **fields})}\nstep 1\n")


def called(verb: object, folder: Path, *words: str) -> str:
    done = CliRunner().invoke(verb, [*words, "--log_dir", str(folder)], standalone_mode=False)  # type: ignore[arg-type]
    assert done.exception is None, done.exception
    return done.output
