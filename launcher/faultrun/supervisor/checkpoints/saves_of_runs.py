"""Which run saved which file of a checkpoint folder: most files do not say.

Each run lists the files that it was seen to write while no other was there, in the hidden folder beside the
checkpoints, so that one that was away meanwhile does not take them for its own. A file is known by its name
and time.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.formats.faultrun_manifest import beside
from faultrun.files import replace_whole
from faultrun.model.checkpoint import Entry
from faultrun.model.observed.saves import SavesSeen
from faultrun.supervisor.checkpoints.other_runs import OtherRuns

_PREFIX = ".saves."
_TIDY_AFTER = 1000
"""So many lines are added before those of files that are gone are dropped."""


class SavesOfRuns:
    """The lists beside ``roots``, ours under our name among ``neighbours``. Call it from one thread.

    What cannot be written or read is not known: then files are taken as they were without lists.
    """

    def __init__(self, roots: Sequence[str], neighbours: OtherRuns) -> None:
        self._neighbours, name = neighbours, f"{_PREFIX}{neighbours.name}"
        self._lists = {os.path.realpath(root): beside(root) / name for root in roots}
        self._own = {root: dict(_lines(path)) for root, path in self._lists.items()}
        self._added = dict.fromkeys(self._lists, _TIDY_AFTER)

    def note(self, seen: SavesSeen) -> None:
        """Our run has written these, unless another one that saves there has."""
        if self._neighbours.others():
            return
        files = (*seen.past, *(path for one in seen.saves for path in (*one.paths, *one.ranks)))
        for root, found in self._by_root(files).items():
            own = self._own[root]
            if not (new := {name: mtime_ns for name, mtime_ns in found if own.get(name) != mtime_ns}):
                continue
            own.update(new)
            self._added[root] += len(new)
            if self._added[root] > _TIDY_AFTER:
                there = self._by_root(f"{root}/{name}" for name in own).get(root, [])
                self._own[root], self._added[root], new = dict(there), 0, dict(there)
            with suppress(OSError):
                self._write(root, new, anew=self._added[root] == 0)

    def of_others(self, catalog: Catalog, resumed: str) -> dict[Entry, str]:
        """Checkpoints but ``resumed`` that do not say whose they are and another run wrote, with its name."""
        silent = (one for one in catalog.scan().entries if not one.run_id and one.path != resumed)
        found = {one: self._writer_of(catalog.files_of(one)) for one in silent}
        return {one: whose for one, whose in found.items() if whose}

    def _writer_of(self, files: Iterable[str]) -> str:
        """The other run, in words, that wrote one of ``files``; "" if none is known to."""
        for root, found in self._by_root(files).items():
            if set(found) & self._own[root].items():
                return ""
            for path in self._lists[root].parent.glob(f"{_PREFIX}*"):
                if path != self._lists[root] and set(found) & dict(_lines(path)).items():
                    return f"run {path.name.removeprefix(_PREFIX).partition('@')[0]}"
        return ""

    def _by_root(self, files: Iterable[str]) -> dict[str, list[tuple[str, int]]]:
        """Names below each root, and times, of those that are there."""
        found: dict[str, list[tuple[str, int]]] = {}
        for file in files:
            folder, _, name = file.rpartition("/")
            path = f"{os.path.realpath(folder)}/{name}"
            root = next((one for one in self._lists if path.startswith(f"{one}/")), None)
            with suppress(OSError):
                if root is not None:
                    found.setdefault(root, []).append((path[len(root) + 1 :], Path(path).stat().st_mtime_ns))
        return found

    def _write(self, root: str, times: dict[str, int], *, anew: bool) -> None:
        text = "".join(f"{json.dumps(one)}\n" for one in times.items()).encode()
        path = self._lists[root]
        path.parent.mkdir(exist_ok=True)
        if anew:
            replace_whole(path, text)
            return
        with path.open("ab") as file:
            file.write(text)


def _lines(path: Path) -> Iterator[tuple[str, int]]:
    with suppress(OSError):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError, TypeError):
                name, mtime_ns = json.loads(line)
                yield str(name), int(mtime_ns)
