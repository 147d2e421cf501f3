"""``make check``: format, lint, types, layers, nouns and the fast tests, all at once."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

QUIET: dict[str, list[str | Path]] = {
    "format": [BIN / "ruff", "format", "--check", "."],
    "lint": [BIN / "ruff", "check", "."],
    "types": [BIN / "mypy"],
    "layers": [BIN / "lint-imports"],
    "nouns": [sys.executable, ROOT / "tests" / "nouns.py"],
    # Every example's script has the same name, so that mypy must see them one by one.
    "examples": [
        sys.executable,
        "-c",
        "import sys, mypy.api\n"
        "results = [mypy.api.run([path]) for path in sys.argv[1:]]\n"
        "print(*(text for text, _, code in results if code), sep='')\n"
        "sys.exit(max(code for *_, code in results))",
        *sorted(ROOT.glob("examples/[0-9]*/**/*.py")),
    ],
}
JOBS = ("faults", "sdk", "examples")
"""Folders whose tests wait for real jobs: ``make test`` only, as all that is marked slow or long."""
ONE_EXAMPLE_IN = "20"
"""Of the examples that a property test asks for; ``make test`` draws all of them."""
FIRST_HALF = ("core", "supervisor", "workers", "journal", "contracts", "configs", "manifests")


def main() -> int:
    began = time.monotonic()
    checks = {name: _start(command) for name, command in QUIET.items()}
    halves = [_start(_tests(folders)) for folders in _halves()]
    failed = False
    for name, process in checks.items():
        output, _ = process.communicate()
        failed |= process.returncode != 0
        sys.stdout.write(f"{name:<8} {'ok' if process.returncode == 0 else 'FAILED'}\n")
        if process.returncode != 0:
            sys.stdout.write(output + "\n")
    outputs = [half.communicate()[0] for half in halves]
    sys.stdout.write(f"{time.monotonic() - began:.0f} s\n{''.join(outputs)}")
    return int(failed or any(half.returncode != 0 for half in halves))


def _start(command: list[str | Path]) -> "subprocess.Popen[str]":
    environ = {**os.environ, "EXAMPLES_ONE_IN": ONE_EXAMPLE_IN}
    return subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _halves() -> tuple[list[str], list[str]]:
    """Every other folder of tests, in two parts that take about as long."""
    tests = ROOT / "tests"
    folders = {path.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")} - set(JOBS)
    first = folders & set(FIRST_HALF)
    return sorted(first), sorted(folders - first)


def _tests(folders: list[str]) -> list[str | Path]:
    paths = [f"tests/{folder}" for folder in folders]
    return [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not long", "-p", "no:xdist", *paths]


if __name__ == "__main__":
    sys.exit(main())
