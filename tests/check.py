"""``make check``: format, lint, layers, nouns, types of the launcher, and tests, in half a minute.

All pure tests run whole. Of the others those run whose file reaches a changed module within two imports, the
cheapest first, until the time is used; what is left out is named. Changed is what differs from the merge base
with ``main`` (``origin/main`` where there is one), the working tree included.

What starts faultrun as a process is marked ``slow`` and belongs to ``make test``.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
LAUNCHER = ROOT / "launcher"
BIN = Path(sys.executable).parent

QUIET: dict[str, list[str | Path]] = {
    "format": [BIN / "ruff", "format", "--check", "."],
    "lint": [BIN / "ruff", "check", "."],
    "layers": [BIN / "lint-imports"],
    "nouns": [sys.executable, TESTS / "nouns.py"],
    "ratchet": [sys.executable, TESTS / "ratchet.py"],
    "results": [sys.executable, TESTS / "dated.py"],
    "types": [BIN / "mypy", LAUNCHER / "faultrun"],
}
PURE = (
    *("core", "text", "manifests", "journal", "nodes/protocol", "configs/editors"),
    *("cli/options", "observe/account", "observe/card", "observe/report", "observe/status"),
)
"""Rooms whose tests start nothing and wait for nobody."""
SECONDS = 30.0
SECONDS_A_BYTE = 1e-5
RESERVE_S = 3.0
"""For the end of the last test, and of pytest."""
ONE_EXAMPLE_IN = "20"
"""Of the examples that a property test asks for; ``make test`` draws one in four, ``make test-all`` all."""

_IMPORTS = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+([\w.]+)(?:[ \t]+import[ \t]+(\([^)]*\)|.*))?", re.MULTILINE
)


def main() -> int:
    began = time.monotonic()
    parts = [Part(name, command) for name, command in QUIET.items()]
    reaching = sorted(tests_that_reach(changed_files()) - pure_files())
    for number, half in enumerate(halves(sorted(pure_files()))):
        extra = reaching[number::2]
        environ = {"CHECK_UNTIL": str(began + SECONDS - RESERVE_S), "CHECK_EXTRA": os.pathsep.join(extra)}
        parts.append(Part(f"tests {number + 1}", tests(half, extra), environ))
    for part in parts:
        part.thread.join()
        print(f"{part.name:<8} {'ok' if part.code == 0 else 'FAILED':<7} {part.seconds:4.1f} s")  # noqa: T201
    for part in parts:
        if part.code != 0 or part.name.startswith(("tests", "ratchet", "results")):
            print(part.output)  # noqa: T201
    print(f"{time.monotonic() - began:.0f} s; {len(reaching)} files reach a change")  # noqa: T201
    return int(any(part.code != 0 for part in parts))


class Part:
    """One command, from now on; its output and how many seconds it took once ``thread`` has ended."""

    def __init__(self, name: str, command: list[str | Path], environ: dict[str, str] | None = None) -> None:
        self.name = name
        self.code = -1
        self.output = ""
        self.seconds = 0.0
        self._command = command
        self._environ = {**os.environ, "EXAMPLES_ONE_IN": ONE_EXAMPLE_IN, **(environ or {})}
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        done = subprocess.run(
            self._command,
            cwd=ROOT,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.code, self.output = done.returncode, done.stdout
        self.seconds = time.monotonic() - began


def tests(half: Iterable[str], extra: Iterable[str]) -> list[str | Path]:
    """Half of the pure ones, and what reaches a change, in one process."""
    options = ("-q", "-m", "not slow and not long and not exhaustive", "-p", "no:xdist")
    return [sys.executable, "-m", "pytest", *options, *half, *extra]


def pure_files() -> set[str]:
    """Paths from the root of the checkout, as ``tests_that_reach`` gives them."""
    rooms = {path for room in PURE for path in (TESTS / room).rglob("test_*.py")}
    return {_named(path) for path in rooms | {TESTS / "nodes" / "test_view.py"}}


def halves(files: list[str]) -> tuple[list[str], list[str]]:
    """Two parts that take about as long, by the seconds of the runs before; where none are known by size."""
    known: dict[str, float] = {}
    with suppress(OSError, ValueError):
        known = json.loads(
            (ROOT / ".pytest_cache" / "v" / "faultrun" / f"seconds_one_in_{ONE_EXAMPLE_IN}").read_bytes()
        )
    costs = {file: known.get(file, (ROOT / file).stat().st_size * SECONDS_A_BYTE) for file in files}
    parts: tuple[list[str], list[str]] = ([], [])
    sums = [0.0, 0.0]
    for file in sorted(files, key=lambda one: -costs[one]):
        at = sums.index(min(sums))
        parts[at].append(file)
        sums[at] += costs[file]
    return parts


def changed_files() -> set[Path]:
    """What differs from the merge base; new files, too. On ``main`` itself what is committed is not new."""
    base = next(filter(None, (_git("merge-base", "HEAD", one) for one in ("origin/main", "main"))), "HEAD")
    told = _git("diff", "--name-only", base) + "\n" + _git("ls-files", "--others", "--exclude-standard")
    return {ROOT / name for name in told.split("\n") if name.endswith(".py")}


def tests_that_reach(changed: set[Path]) -> set[str]:
    """Test files that changed, or import a changed module, or a module that imports one."""
    if not changed:
        return set()
    imported: dict[Path, set[Path]] = {}

    def imports(path: Path) -> set[Path]:
        if path not in imported:
            imported[path] = {found for name in _names_in(path) for found in _files_of(name)}
        return imported[path]

    def reaches(path: Path) -> bool:
        first = imports(path)
        return path in changed or bool(changed & first) or any(changed & imports(one) for one in first)

    return {_named(path) for path in TESTS.rglob("test_*.py") if reaches(path)}


def _names_in(path: Path) -> Iterable[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return
    for found in _IMPORTS.finditer(text):
        yield found[1]
        for name in re.findall(r"\w+", found[2] or ""):
            yield f"{found[1]}.{name}"


def _files_of(name: str) -> Iterable[Path]:
    place = name.replace(".", "/")
    for root in (LAUNCHER, TESTS, ROOT):
        for path in (root / f"{place}.py", root / place / "__init__.py"):
            if path.is_file():
                yield path


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
