"""The one command of an example's README, and the example copied to where it may be run."""

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from examples.launched import FAULTRUN, ROOT

_LEFT_BY_RUNS = (
    "faultrun_log", "__pycache__", "output", "checkpoints", "ttp_checkpoints", "model_dir", "rank_*", "*.ckpt"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A copy of an example's folder. ``command`` is its README's, run by this Python."""

    folder: Path
    command: tuple[str, ...]

    def changed_lines(self, name: str) -> dict[str, str]:
        """What was changed in a file since it was copied: the new line by the old one."""
        before = (ROOT / "examples" / self.folder.name / name).read_text(encoding="utf-8").splitlines()
        after = (self.folder / name).read_text(encoding="utf-8").splitlines()
        assert len(before) == len(after), f"lines of {name} came or went"
        return {old: new for old, new in zip(before, after, strict=True) if old != new}

    def is_as_it_was(self, name: str) -> bool:
        """Whether a file has its first bytes."""
        return (self.folder / name).read_bytes() == (ROOT / "examples" / self.folder.name / name).read_bytes()


def documented(name: str, where: Path) -> Example:
    """Copy ``examples/<name>`` into ``where``, and read the command that its README gives."""
    folder = where / name
    shutil.copytree(ROOT / "examples" / name, folder, ignore=shutil.ignore_patterns(*_LEFT_BY_RUNS))
    words = shlex.split(_command((folder / "README.md").read_text(encoding="utf-8")))
    at = words.index("faultrun")
    variables = ("env", *words[:at]) if at else ()
    return Example(folder=folder, command=(*variables, *FAULTRUN, *words[at + 1 :]))


def _command(readme: str) -> str:
    """The line of the first block that starts faultrun, continued lines joined."""
    block = readme.split("```")[1]
    lines = block.replace("\\\n", " ").splitlines()
    return next(line for line in lines if "faultrun --recipe" in line)
