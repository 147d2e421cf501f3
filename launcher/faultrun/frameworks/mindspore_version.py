"""Which MindSpore the workers will import, found without importing it; and what was proved with it."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from faultrun.model.spec import Command

PROVED: Mapping[str, str] = {
    "2.10.0": "benchmarks.campaigns.starts and tests/faults/test_ms_scheduler.py, on CPU, 1 to 8 workers",
}
"""Versions whose workers our own scheduler has served, and how that was shown."""

_ASK = "import importlib.metadata as m; print(m.version('mindspore'))"
_PATIENCE_S = 10.0


def installed_version(command: Command, our_python: str, import_path: Sequence[str]) -> str | None:
    """The version that the Python of ``command`` would import; None when it has none, or does not say.

    ``import_path`` is ours: a command that names no other Python (a shell
    script) is taken to use it.
    """
    python = _python_of(command)
    if python is None or Path(python).parent == Path(our_python).parent:
        return next((version for folder in import_path if (version := _in_folder(Path(folder)))), None)
    try:
        asked = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() or None


def _in_folder(folder: Path) -> str | None:
    """By the name of ``mindspore-<version>.dist-info``; ``importlib.metadata`` would cost PID 1 five MiB."""
    try:
        found = sorted(folder.glob("mindspore-*.dist-info"))
    except OSError:
        return None
    return found[0].name.removeprefix("mindspore-").removesuffix(".dist-info") if found else None


def _python_of(command: Command) -> str | None:
    program = shutil.which(command.prefix[0]) or ""
    return program if Path(program).name.startswith("python") else None
