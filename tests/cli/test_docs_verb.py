"""``faultrun docs``: the pages as they are installed."""

import pytest

from faultrun.cli import app
from faultrun.cli.docs import pages
from faultrun.errors import UsageError


def read(*words: str) -> int:
    code: int = app.program().main(["docs", *words], "faultrun", standalone_mode=False)
    return code


def test_every_page_is_listed_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert read() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(pages())
    assert all(len(line.split()) > 1 for line in lines), lines


def test_a_page_is_printed_by_its_name_or_as_a_link_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("getting-started", "getting-started.md", "docs/getting-started.md"):
        assert read(name) == 0
        assert capsys.readouterr().out.startswith("# Getting started\n")


def test_a_page_that_does_not_exist_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError) as error:
        read("troubleshoot")
    assert error.value.hint == "faultrun docs troubleshooting"
    with pytest.raises(UsageError) as error:
        read("../README")
    assert error.value.what == "there is no page '../README'"
