"""Report, status, cards, metrics and announcements of kept runs: every number is the journal's own.

The journals were written by real runs. ``support.stories.recount`` counts them anew without the product.
"""

import shutil
import tarfile
from pathlib import Path

import pytest

from support.places import DATA
from support.reporting.outlets import all_agree

JOURNALS = sorted((DATA / "journals").glob("*.jsonl"))
LOG_DIRS = sorted((DATA / "log_dirs").glob("*.tar.gz"))


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
def test_everybody_says_of_a_kept_journal_what_its_lines_say(journal: Path, tmp_path: Path) -> None:
    shutil.copy(journal, tmp_path / "journal.jsonl")
    all_agree(tmp_path)


@pytest.mark.parametrize("packed", LOG_DIRS, ids=lambda path: path.name.partition(".")[0])
def test_everybody_says_of_a_kept_run_what_its_files_say(packed: Path, tmp_path: Path) -> None:
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="tar")
    assert all_agree(tmp_path / "log").incidents > 0
