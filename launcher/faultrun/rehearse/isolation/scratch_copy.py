"""A copy of the working directory to write to, where there is no private view; words that lead there.

Files are copied, so that a save in place meets the copy; large ones are linked, and ``landlock`` keeps
a program that writes through the link from doing it.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LARGE_BYTES, _MOST_BYTES = 128 << 20, 4 << 30
_MOST_ENTRIES = 50_000
_CONFIG_BYTES = 1 << 20
_LINKED = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__"})


@dataclass(slots=True)
class _Budget:
    left_bytes: int = _MOST_BYTES
    left_entries: int = _MOST_ENTRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchCopy:
    """``work`` stands for the working directory; ``places`` are real folders and what stands for them."""

    work: Path
    places: tuple[tuple[str, str], ...]

    def word(self, word: str) -> str:
        """A word of the command with paths led to the copy; behind the ``=`` of an option, too."""
        name, equals, value = word.partition("=")
        return f"{name}={self.path(value)}" if equals and name.startswith("-") else self.path(word)

    def path(self, path: str) -> str:
        """The path that stands for ``path``; itself where nothing does."""
        for real, copy in self.places:
            if path == real or path.startswith(f"{real}/"):
                return f"{copy}{path[len(real) :]}"
        return path


def copied(folder: Path, target: Path, words: Sequence[str], outputs: Iterable[str]) -> ScratchCopy:
    """Copy ``folder`` and the folders elsewhere that are written to, below ``target``. OSError: no room.

    ``outputs`` are folders that are written to; of the ``words`` of the command, those that name a folder
    which is small, or is not there yet, may be.
    """
    budget = _Budget()
    real = str(folder)
    places = {real: str(target / "work")}
    _copy(folder, target / "work", budget)
    for number, one in enumerate([*outputs, *_maybe_written(words)]):
        place = os.path.normpath(folder / one)
        if place in places or place.startswith(f"{real}/") or real.startswith(f"{place}/"):
            continue
        places[place] = str(target / f"place_{number}")
        if Path(place).is_dir():
            _copy(Path(place), Path(places[place]), budget)
    longest_first = sorted(places.items(), key=lambda one: -len(one[0]))
    copy = ScratchCopy(work=target / "work", places=tuple(longest_first))
    for word in words:
        _lead_config(copy, folder / word.rpartition("=")[2])
    return copy


def _maybe_written(words: Iterable[str]) -> Iterable[str]:
    for word in words:
        value = word.rpartition("=")[2] if word.startswith("-") else word
        path = Path(value)
        if path.is_absolute() and not os.path.isfile(path) and path.parent.is_dir():  # noqa: PTH113
            yield value


def _copy(folder: Path, target: Path, budget: _Budget) -> None:
    target.mkdir(parents=True)
    with suppress(PermissionError), os.scandir(folder) as found:
        for entry in found:
            budget.left_entries -= 1
            there = target / entry.name
            if entry.is_symlink():
                there.symlink_to(folder / Path(entry.path).readlink())
            elif entry.is_dir():
                if entry.name in _LINKED or budget.left_entries < 0 or str(target).startswith(entry.path):
                    there.symlink_to(entry.path)
                else:
                    _copy(Path(entry.path), there, budget)
            elif entry.is_file():
                size_bytes = entry.stat().st_size
                budget.left_bytes -= size_bytes
                if size_bytes > _LARGE_BYTES or budget.left_bytes < 0:
                    budget.left_bytes += size_bytes
                    there.symlink_to(entry.path)
                else:
                    with suppress(PermissionError):
                        shutil.copy2(entry.path, there)


def _lead_config(copy: ScratchCopy, config: Path) -> None:
    """Have a small file of text that the command names, and that was copied, name the copies."""
    there = Path(copy.path(os.path.normpath(config)))
    if there == config or there.is_symlink() or not os.path.isfile(there):  # noqa: PTH113  words may be long
        return
    if there.suffix in (".py", ".sh") or there.stat().st_size > _CONFIG_BYTES:
        return
    with suppress(UnicodeDecodeError, OSError):
        text = led = there.read_text(encoding="utf-8")
        for real, stand_in in copy.places:
            led = led.replace(f"{real}/", f"{stand_in}/")
        if led != text:
            there.write_text(led, encoding="utf-8")
