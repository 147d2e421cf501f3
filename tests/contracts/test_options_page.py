"""docs/options.md and the tables of the code say the same."""

from docs.options_page import page

from support.places import DOCS

PAGE = DOCS / "options.md"


def test_the_page_of_options_is_made_from_the_code() -> None:
    again = "python docs/options_page.py > docs/options.md"
    assert PAGE.read_text() == page(), f"write it anew: {again}"
