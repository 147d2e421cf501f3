"""A dead worker's own note, in torch's format or broken, and what is concluded from it."""

import json
import os
from pathlib import Path

import pytest

from faultrun.core.diagnosis.signature_table import ROWS
from faultrun.model.exits import Exited, Signaled
from faultrun.model.observed.evidence import Raised
from faultrun.workers.logs.death_evidence import death_note, error_note
from support.machine.scripts import ended

STACK = 'Traceback (most recent call last):\n  File "t.py", line 4, in f\n    g()\nValueError: x\n'
FAILED = Exited(code=1)


def note_of(folder: Path, content: object) -> Path:
    path = folder / "error_0.json"
    path.write_text(json.dumps(content))
    os.utime(path, ns=(0, 5_000_000_000))
    return path


def test_a_note_gives_the_exception_its_frame_and_the_moment_of_the_file(tmp_path: Path) -> None:
    content = {
        "message": {"message": "ValueError: x", "extraInfo": {"py_callstack": STACK, "timestamp": "1"}}
    }
    raised = error_note(note_of(tmp_path, content), lambda ns: ns / 1e9)
    assert raised == Raised(kind="ValueError", message="x", frame="t.py:4 in f", at_s=5.0)


@pytest.mark.parametrize(
    ("content", "raised"),
    [
        ({"message": "Signal 11 received"}, Raised(kind="Signal 11 received")),
        ({"message": {"message": "OSError: a: b\nmore"}}, Raised(kind="OSError", message="a: b")),
        ({"message": {"message": "E: x", "extraInfo": {"py_callstack": 5}}}, Raised(kind="E", message="x")),
        ({}, None),
        ([1], None),
        ({"message": 3}, None),
    ],
)
def test_other_forms_of_notes(tmp_path: Path, content: object, raised: Raised | None) -> None:
    assert error_note(note_of(tmp_path, content), None) == raised


def test_a_broken_or_missing_note_is_none(tmp_path: Path) -> None:
    (tmp_path / "torn").write_text('{"message": {"mes')
    assert error_note(tmp_path / "torn", None) is None
    assert error_note(tmp_path / "missing", None) is None
    assert error_note(None, None) is None


def test_without_a_note_the_log_tells_and_a_killed_worker_has_raised_nothing(tmp_path: Path) -> None:
    log = tmp_path / "worker_0.log"
    log.write_text(f"step: 3\n{STACK}")
    assert death_note(0, [log], None, FAILED, ROWS).raised == Raised(
        kind="ValueError", message="x", frame="t.py:4 in f"
    )
    assert death_note(0, [log], None, Signaled(signum=9), ROWS).raised is None
    assert death_note(0, [log], None, Exited(code=0), ROWS).raised is None


def test_who_noted_an_exception_and_was_aborted_at_its_end_failed_by_the_exception(tmp_path: Path) -> None:
    words = {"message": "OSError: [Errno 28] No space left on device", "extraInfo": {"py_callstack": STACK}}
    note = note_of(tmp_path, {"message": words})
    found = death_note(0, [], note, Signaled(signum=6), ROWS)
    assert found.raised is not None
    assert found.finding is not None
    assert found.finding.name == "disk-full"
    assert death_note(0, [], note, Signaled(signum=9), ROWS).raised is None
    assert death_note(0, [], tmp_path / "none", Signaled(signum=6), ROWS).raised is None


def test_the_words_before_a_rotation_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "w.log.1").write_text("Traceback (most recent call last):\n")
    (tmp_path / "w.log").write_text('  File "t.py", line 4, in f\nValueError: x\n')
    found = death_note(0, [tmp_path / "w.log.1", tmp_path / "w.log"], None, FAILED)
    assert found.raised is not None
    assert found.raised.kind == "ValueError"


@pytest.mark.torch
@pytest.mark.slow
def test_the_note_that_torchs_record_writes_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    code = (
        f"import os; os.environ['TORCHELASTIC_ERROR_FILE'] = {str(path)!r}\n"
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    raise OSError(28, 'No space left on device')\nmain()\n"
    )
    assert ended(code, timeout_s=120).returncode == 1
    found = death_note(0, [], path, FAILED, ROWS, lambda ns: ns / 1e9)
    assert found.raised is not None
    assert (found.raised.kind, found.raised.frame) == ("OSError", "<string>:5 in main")
    assert found.finding is not None
    assert found.finding.name == "disk-full"
