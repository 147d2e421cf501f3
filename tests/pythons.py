"""``make pythons``: what needs no framework, with every supported Python of this machine; one line each.

A virtual environment a version, ``.venv-3.x``, is made once and again when the requirements change.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
FAULT = "tests/faults/processes/test_killed_ranks.py::test_any_rank_may_be_killed_the_first_too"
QUICK = (
    "tests/core/phases/test_decide.py",
    "tests/journal/test_logdir.py",
    "tests/project/test_locks.py",
    FAULT,
)
NEEDS_EXTRAS = (
    "project/test_docs_run",
    "checkpoints/formats/mindspore/test_group_info",
    "manifests/test_render",
    "observe/outlets/test_prometheus",
    "cli/resolve/test_scheduler",
)
"""Tests of what an extra or a framework brings."""
JOBS = ("faults", "sdk", "examples")
"""Folders whose tests wait for real jobs."""
WHOLE = (
    "-m", "not slow", "tests", FAULT,
    *(f"--ignore=tests/{folder}" for folder in JOBS),
    *(f"--ignore=tests/{name}.py" for name in NEEDS_EXTRAS),
)  # fmt: skip
_LAST_LINES = 40


def main() -> int:
    """Say of each version: passed, FAILED with the end of its output, or not on this machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few tests and one killed rank")
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    asked = parser.parse_args()
    failed = False
    for version in asked.versions:
        python = interpreter(version)
        if python is None:
            sys.stdout.write(f"python {version}: not on this machine\n")
            continue
        began = time.monotonic()
        code, output = environment(version, python)
        if code == 0:
            code, output = outcome_of(version, QUICK if asked.quick else WHOLE)
        last = output.strip().splitlines()[-_LAST_LINES:]
        told = f"passed: {last[-1]}" if code == 0 else "\n".join(["FAILED", *last])
        sys.stdout.write(f"python {version} ({python}) in {time.monotonic() - began:.0f} s, {told}\n")
        failed = failed or code != 0
    return int(failed)


def interpreter(version: str) -> Path | None:
    """A Python of this version: on PATH, else the newest that pyenv has. None where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = sorted(
        pyenv.glob(f"{version}.*/bin/python"),
        key=lambda path: int(path.parts[-3].rpartition(".")[2]),
        reverse=True,
    )
    on_path = shutil.which(f"python{version}")
    return next(
        (path for path in (*map(Path, filter(None, [on_path])), *found) if _works(path, version)), None
    )


def environment(version: str, python: Path) -> tuple[int, str]:
    """Have ``.venv-3.x`` ready, with our requirements and no framework. How pip ended, and its words."""
    folder = _folder(version)
    wanted = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    stamp, digest = folder / ".ready", hashlib.sha256(wanted).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return 0, ""
    code, output = _run(str(python), "-m", "venv", "--clear", "--without-pip", str(folder))
    if code == 0:  # our own pip: unpacking one for each version takes as long as all that it installs
        pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install")
        quiet = ("--quiet", "--disable-pip-version-check", "--constraint", "constraints.txt")
        code, output = _run(*pip, *quiet, "--editable", ".", *TOOLS)
    if code == 0:
        stamp.write_text(digest)
    return code, output


def outcome_of(version: str, tests: tuple[str, ...]) -> tuple[int, str]:
    """Exit code and output of ``tests`` in the environment of that version."""
    options = ("-q", "-n", "2", "-p", "no:cacheprovider")
    return _run(str(_folder(version) / "bin" / "python"), "-m", "pytest", *options, *tests)


def _folder(version: str) -> Path:
    return ROOT / f".venv-{version}"


def _works(python: Path, version: str) -> bool:
    """A shim of pyenv is on PATH for versions that are not chosen, and then fails."""
    code, output = _run(str(python), "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])")
    return code == 0 and output.strip() == version


def _run(*command: str) -> tuple[int, str]:
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
