"""Where a rehearsed training saved, found among all that it wrote, where it was not said."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.registry import Registry
from faultrun.model.checkpoint import Entry
from faultrun.rehearse.outcome import Undisturbed

_MOST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSaves:
    """``folders`` as the training names them; ``times_s`` by the wall clock (Unix), in order."""

    folders: tuple[str, ...]
    paths: tuple[str, ...]
    times_s: tuple[float, ...]

    def known_to(self, part: Undisturbed, began_at: float) -> Undisturbed:
        """The undisturbed part with these saves, where it saw none itself."""
        if not self.paths or part.first_save_s is not None:
            return part
        first_s, last_s, count = self.times_s[0], self.times_s[-1], len(self.times_s)
        return replace(
            part,
            saves=self.paths,
            first_save_s=max(0.0, first_s - began_at),
            save_every_s=(last_s - first_s) / (count - 1) if count > 1 and last_s > first_s else None,
            elsewhere=self.folders,
        )


def find_saves(layers: Iterable[tuple[Path, str]], registry: Registry | None = None) -> FoundSaves:
    """Look through what was written; each of ``layers`` stands for the path beside it.

    What counts as a save is said by ``registry``.
    """
    found: list[tuple[str, Entry]] = []
    for layer, place in layers:
        if roots := tuple(map(str, _folders_with_files(layer))):
            prefix = place.rstrip("/")
            entries = Catalog(roots, settle_s=0.0, registry=registry).scan().entries
            found += [(f"{prefix}{one.path[len(str(layer)) :]}", one) for one in entries]
    found.sort(key=lambda one: one[1].mtime_ns)
    times_s = tuple(one.mtime_ns / 1e9 for _, one in found)
    folders = folders_of(path for path, _ in found)
    return FoundSaves(folders=folders, paths=tuple(path for path, _ in found), times_s=times_s)


def folders_of(paths: Iterable[str]) -> tuple[str, ...]:
    """The folders that ``paths`` lie in; one for all ranks where each has its own, and for a great many."""
    parents = {os.path.dirname(path.rstrip("/")) for path in paths}  # noqa: PTH120  texts, nothing is looked at
    tops = {
        os.path.dirname(one) if os.path.basename(one).startswith("rank") else one  # noqa: PTH119, PTH120
        for one in parents
    }
    tops -= {one for one in tops for other in tops if one != other and one.startswith(f"{other}/")}
    return (os.path.commonpath(tops),) if len(tops) > _MOST else tuple(sorted(tops))


def _folders_with_files(folder: Path) -> Iterator[Path]:
    """The outermost folders that hold a file; what a view has removed is a device there, and no file."""
    try:
        entries = sorted(os.scandir(folder), key=lambda one: one.name)
    except OSError:
        return
    if any(stat.S_ISREG(one.stat(follow_symlinks=False).st_mode) for one in entries):
        yield folder
        return
    for one in entries:
        if one.is_dir(follow_symlinks=False):
            yield from _folders_with_files(Path(one.path))
