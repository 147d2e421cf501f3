"""``make test``: the whole suite in two halves, side by side: one needs one processor, the other waits a lot.

Words on the command line go to both (``-x``, ``--durations=30``). Plain ``pytest`` runs the same, in turn.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALONE = ("core", "supervisor", "contracts", "edges")
"""Folders whose tests compute in their own process, or start one that does."""
NO_TESTS = 5  # pytest's exit code, when ``-k`` leaves none


def main(words: Sequence[str]) -> int:
    """Run both; the real jobs are seen as they go, the others at the end. 1 when a test failed."""
    began = time.monotonic()
    jobs = sorted({test.parent.name for test in ROOT.glob("tests/*/test_*.py")} - set(ALONE))
    sys.stdout.write(f"{' '.join(jobs)}; beside them, shown at the end: {' '.join(ALONE)}\n")
    sys.stdout.flush()
    with tempfile.TemporaryFile("w+") as output:
        beside = subprocess.Popen(command(ALONE, words), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            codes = {subprocess.run(command(jobs, words), cwd=ROOT, check=False).returncode, beside.wait()}
        finally:
            beside.kill()
            beside.wait()
        output.seek(0)
        sys.stdout.write(output.read())
    passed = 0 in codes and codes <= {0, NO_TESTS}
    sys.stdout.write(f"the suite {'passed' if passed else 'FAILED'}; {time.monotonic() - began:.0f} s\n")
    return 0 if passed else 1


def command(folders: Sequence[str], words: Sequence[str]) -> list[str]:
    """A pytest of these folders, which remembers its failures in a place of its own."""
    cache = f"cache_dir=.pytest_cache/{folders[0]}"
    return [sys.executable, "-m", "pytest", "-o", cache, *words, *(f"tests/{name}" for name in folders)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
