"""Phrases that readers stumbled over do not come back, neither in messages nor on the pages."""

import pytest

from support.places import ROOT

RIDDLES = (
    *("; ... says it", "nothing says that another start would end otherwise", "first failure; rank"),
    *("from the beginning: no checkpoint", "a recovery point shall be written"),
    *("DIR of the run, as it printed", "no rank reported a save", "starts count as training"),
    *("most of a recovery is", "as a known training code needs them", "first bytes back", "Put together."),
    *("neighbour of the narrator", "whoever looks at a run", "no hand-over", "begin as at first"),
    *("nobody is replaced", "is no --checkpoint_dir:", "before given back for"),
    *("the command is another one", "workers start as they did first", "nobody said how far training was"),
    *("as torchrun has it", "it is of a larger world than", "Who knows how long the slowest honest pause"),
)


@pytest.mark.parametrize("phrase", RIDDLES)
def test_a_phrase_that_nobody_understood_is_gone(phrase: str) -> None:
    folders = (ROOT / "launcher", ROOT / "docs", ROOT / "templates", ROOT / "examples")
    files = [file for folder in folders for kind in ("*.py", "*.md", "*.yaml") for file in folder.rglob(kind)]
    assert len(files) > 200
    texts = {
        file: " ".join(file.read_text(encoding="utf-8").split()) for file in [*files, ROOT / "README.md"]
    }
    assert [str(file) for file, text in texts.items() if phrase in text] == []
