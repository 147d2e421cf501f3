"""``--signatures``: a file of rows, or an error that says which row is wrong."""

from pathlib import Path

import pytest

from faultrun.cli.options.signature_file import signature_rows
from faultrun.errors import ConfigError
from faultrun.model.observed.evidence import FaultClass, Row


def rows(folder: Path, text: str) -> tuple[Row, ...]:
    path = folder / "rows.yaml"
    path.write_text(text)
    return signature_rows(str(path))


def test_rows_are_read_and_what_is_left_out_is_filled_in(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, "- {name: a, class: resource, pattern: 'x+'}")
    assert (row.name, row.fault_class, row.says, row.hint) == ("a", FaultClass.RESOURCE, "a", "")


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("a: b", "it is not a list of rows"),
        ("- [", "it is not YAML"),
        ("- 3", "row 1 is not a mapping of texts"),
        ("- {name: a, class: resource, pattern: x}\n- {name: b}", "row 2 lacks class, pattern"),
        ("- {name: a, class: bad, pattern: x}", "row 1: class 'bad' is none of unknown, deterministic"),
        ("- {name: a, class: resource, pattern: '('}", "row 1: a: '(' is not a regular expression"),
        ("- {name: a, class: resource, pattern: x, colour: red}", "row 1 has unknown keys: colour"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, because: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rows(tmp_path, text)
    assert caught.value.because.startswith(because)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        signature_rows(str(tmp_path / "missing.yaml"))
