"""``make check``: format, lint, types, layers and the fast tests, side by side; theirs is the last word."""

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
FAST: list[str | Path] = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-m",
    "not slow",
    "tests/core",
    "tests/supervisor",
    "tests/contracts",
    "tests/observe",
]


def main() -> int:
    began = time.monotonic()
    checks = {
        name: subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name, command in QUIET.items()
    }
    tests = subprocess.Popen(FAST, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    failed = []
    for name, process in checks.items():
        output, _ = process.communicate()
        verdict = "ok" if process.returncode == 0 else "FAILED"
        sys.stdout.write(f"{name:<8} {verdict}\n")
        if process.returncode != 0:
            failed.append(name)
            sys.stdout.write(output + "\n")
    output, _ = tests.communicate()
    sys.stdout.write(f"{time.monotonic() - began:.0f} s\n{output}")
    return 1 if failed or tests.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
