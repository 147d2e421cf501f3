"""Format, lint, layers, nouns and types of all that is in the checkout."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT

BIN = Path(sys.executable).parent
EXAMPLES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("examples/[0-9]*/**/*.py"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "mypy").exists(), reason="the tools of make setup are not here"),
]


def run(*command: str) -> None:
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "command",
    [("ruff", "format", "--check", "."), ("ruff", "check", "."), ("lint-imports",), ("mypy",)],
    ids=["format", "lint", "layers", "types"],
)
def test_all_of_it_passes(command: tuple[str, ...]) -> None:
    run(*command)


def test_every_public_noun_has_one_definition() -> None:
    run("python", "tests/nouns.py")


def test_types_of_each_example() -> None:
    """All their scripts have the same name, so that mypy must see them one by one; one process, one start."""
    program = (
        "import sys, mypy.api\n"
        "results = [mypy.api.run([path]) for path in sys.argv[1:]]\n"
        "print(*(text for text, _, code in results if code), sep='')\n"
        "sys.exit(max(code for *_, code in results))"
    )
    run("python", "-c", program, *EXAMPLES)
