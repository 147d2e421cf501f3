"""Where things are in the checkout, for tests that read files of it."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DOCS = ROOT / "docs"
DATA = TESTS / "data"
GOLDEN = TESTS / "golden"
