"""The one command of an example's README, and the example copied to where it may be run."""

import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from examples.launched import FAULTRUN, run_to_the_end
from support.places import ROOT

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

    def command_for(self, workers: int) -> tuple[str, ...]:
        """The README's with another number of workers, where fewer prove as much."""
        others = [word for word in self.command if not word.startswith("--worker_num=")]
        assert len(others) == len(self.command) - 1, "the README does not say how many"
        at = next(number for number, word in enumerate(self.command) if word.startswith("--worker_num="))
        return (*others[:at], f"--worker_num={workers}", *others[at:])

    @property
    def rewritten(self) -> dict[str, int]:
        """How many lines of which file a run has changed, as ``git diff --stat`` would say."""
        return changed_files(ROOT / "examples" / self.folder.name, self.folder)

    def is_restored(self) -> bool:
        """``faultrun config restore``; whether no file differs from the checkout's by a byte any more."""
        run_to_the_end(*FAULTRUN, "config", "restore", cwd=self.folder, within_s=60)
        return self.rewritten == {}


def changed_files(before: Path, after: Path) -> dict[str, int]:
    """Changed lines of each file that is in both folders; git must find as many new ones as old ones."""
    words = ("git", "diff", "--no-index", "--numstat", "--no-renames", "--diff-filter=M", "-z")
    found = subprocess.run([*words, before, after], capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode in (0, 1), found.stderr
    fields = found.stdout.split("\0")[:-1]  # counts, name before, name after
    changed = {}
    for counts, _, name in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        new, old = counts.split()
        assert new == old, f"lines came or went: {counts} {name}"
        changed[str(Path(name).relative_to(after))] = int(new)
    return changed


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
