"""Asks ``faultrun adopt`` in a folder, and reads its answer as a program would."""

import json
import os
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from faultrun.cli.adopt.command import adopt
from faultrun.errors import FaultrunError

_OPEN = ("# checkpoint_dir: ", "# resume_arg: ")


def asked(folder: Path, *words: str) -> Result:
    """Run the verb in ``folder``."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        return CliRunner().invoke(adopt, words, standalone_mode=False)
    finally:
        os.chdir(before)


def adopted(folder: Path, *words: str) -> dict[str, Any]:
    """What it found; written over what is there."""
    told = asked(folder, "--force", "--json", *words)
    assert told.exception is None, told.exception
    found = json.loads(told.stdout)
    assert isinstance(found, dict)
    return found


def refused(folder: Path, *words: str) -> FaultrunError:
    """The error that it ends with."""
    told = asked(folder, *words)
    assert isinstance(told.exception, FaultrunError), (told.exception, told.output)
    lines = str(told.exception).splitlines()
    assert len(lines) == 3, lines
    return told.exception


def written(folder: Path, **files: str) -> Path:
    """Files of ``folder`` by name, with ``__`` for the dot."""
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(text, encoding="utf-8")
    return folder


def left_open(folder: Path) -> dict[str, str]:
    """The options that ``faultrun.yaml`` leaves to a person, and the value that stands there for each."""
    lines = (folder / "faultrun.yaml").read_text(encoding="utf-8").splitlines()
    rows = "\n".join(line.removeprefix("# ") for line in lines if line.startswith(_OPEN))
    found = yaml.safe_load(rows) or {}
    assert isinstance(found, dict)
    return found
