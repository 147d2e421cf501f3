"""Which run saved which file of a checkpoint folder: most files do not say.

Each run lists the files that it was seen to write while no other was there, in the hidden folder beside the
checkpoints, in the order of the writing: so that one that was away meanwhile does not take them for its own,
and its own next supervisor knows which is the newest. A file is known by its name and time. A list names the
script, and says in the end that the run ended well: until then a run of that id and script goes on from it,
also with another log_dir. Beside each list lies what one save was seen to be made of.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.format import Stamp
from faultrun.checkpoints.formats.faultrun_manifest import beside
from faultrun.checkpoints.names import base_name
from faultrun.files import replace_whole
from faultrun.journal.codec import decode, encode
from faultrun.model.checkpoint import Entry
from faultrun.model.observed.saves import NOTHING_SEEN, SavesSeen, order_of
from faultrun.supervisor.checkpoints.other_runs import OtherRuns

_PREFIX, _SEEN = ".saves.", ".seen."
_MISSED = ""
"""Listed where saves may be missing: the kernel told of too many, or another run saved there, too."""
_EARLY = "/"
"""Before the name of what was written before a first step was told, such as weights that were fetched."""
_ENDED = b"null"
"""The line of a run that ended well."""
_TIDY_AFTER = 200
"""So many lines are added before those of files that are gone are dropped."""


class SavesKnown:
    """What was seen of the run's saves: nothing, where they are not watched."""

    @property
    def whole(self) -> bool:
        """Whether nothing can have been missed since the run's first start."""
        return False

    @property
    def began(self) -> bool:
        """Whether they are watched by now."""
        return False

    @property
    def early(self) -> Mapping[str, tuple[int | None, int | None]]:
        """The step and epoch that were told first after each file from before that; None: not told."""
        return {}

    def seen(self) -> SavesSeen:
        """The newest saves, and what is of none."""
        return NOTHING_SEEN


class SavesOfRuns:
    """The lists beside ``roots``, ours, of ``script``, under our name among ``neighbours``; for one thread.

    ``note`` may be called in any. What cannot be written or read is not known: then files are taken as they
    were without lists.
    """

    def __init__(self, roots: Sequence[str], neighbours: OtherRuns, script: str) -> None:
        self._neighbours, name = neighbours, f"{_PREFIX}{neighbours.name}"
        self._script = json.dumps(script).encode()
        self._roots = {os.path.realpath(root): str(Path(root).absolute()) for root in roots}
        self._lists = {os.path.realpath(root): beside(root) / name for root in roots}
        self._own = {root: _listed(path) for root, path in self._lists.items()}
        self._added = dict.fromkeys(self._lists, _TIDY_AFTER)
        self._noted, self._noting = NOTHING_SEEN, Lock()

    def note(self, seen: SavesSeen, *, whole: bool = True) -> None:
        """Our run has written these, unless another one that saves there has. ``whole``: none was missed."""
        with self._noting:
            self._list(seen, whole=whole)
            told, path = replace(seen, prepared=(), past=()), next(map(_seen_of, self._lists.values()), None)
            if path is not None and told != self._noted:
                self._noted = told
                with suppress(OSError):
                    path.parent.mkdir(exist_ok=True)
                    replace_whole(path, json.dumps(encode(told)).encode())

    def last_seen(self, known: SavesSeen) -> SavesSeen:
        """``known``, with the newest saves of this run: what its journal has of them is older by seconds."""
        found = dict[int, SavesSeen]()
        for root, path in [*self._lists.items()][:1]:
            for one in map(_seen_of, (path, *filter(self._goes_on, path.parent.glob(f"{_PREFIX}*")))):
                with suppress(OSError, ValueError):
                    told: SavesSeen = decode(json.loads(one.read_bytes()), SavesSeen)
                    files = {file for save in told.saves for file in (*save.paths, *save.ranks)}
                    files |= {f"{root}/{base_name(file)}" for file in files}  # it may be moved as a whole
                    if any(map(os.path.exists, files)):
                        found[one.stat().st_mtime_ns] = told
        newest = found[max(found)] if found else known
        newer = newest.saves[-1:] and newest.saves[-1] not in known.saves[:-1]
        return replace(known, saves=newest.saves, opened=newest.opened) if newer else known

    def _list(self, seen: SavesSeen, *, whole: bool) -> None:
        self._neighbours.others()
        for root in self._lists if self._neighbours.until_s or not whole else ():
            self._add(root, {_MISSED: 0})
        if not (whole and self._neighbours.alone):
            return
        files = (*seen.past, *(path for one in seen.saves for path in (*one.paths, *one.ranks)))
        for root, found in self._by_root(files).items():
            ours = [one for one in found if one[1] > self._neighbours.until_s * 1e9]
            self._add(root, dict(sorted(ours, key=lambda one: one[1])))  # of one look, by their times
        for root, found in self._by_root(seen.prepared).items():
            self._add(root, {f"{_EARLY}{name}": at_ns for name, at_ns in found})

    def _add(self, root: str, times: dict[str, int]) -> None:
        own = self._own[root]
        if not (new := {name: at_ns for name, at_ns in times.items() if own.get(name) != at_ns}):
            return
        for name, at_ns in new.items():
            own.pop(name, None)
            own[name] = at_ns
        self._added[root] += len(new)
        if anew := self._added[root] > _TIDY_AFTER:
            there = dict(self._by_root(f"{root}/{name}" for name in own).get(root, []))
            missed = {_MISSED: 0} if _MISSED in own else {}
            kept = {name: at_ns for name, at_ns in own.items() if name.removeprefix(_EARLY) in there}
            new = self._own[root] = missed | kept
            self._added[root] = 0
        with suppress(OSError):
            self._write(root, new, anew=anew)

    def order(self, there: Mapping[str, Stamp], seen: SavesSeen) -> dict[str, int] | None:
        """In which order our saves were written, by path; None where some are missing, or none is known.

        Files that were ``seen`` to be of one save stand together; early ones come first. What of ``there`` is
        newer than all of them was written while it was not watched.
        """
        names = {name for own in self._own.values() for name in own if not name.startswith(_EARLY)}
        if not names or _MISSED in names:
            return None
        own = [
            (at_ns, f"{self._roots[root]}/{name}")
            for root, listed in self._own.items()
            for name, at_ns in self._by_root(f"{root}/{one}" for one in listed if one in names).get(root, [])
            if listed.get(name) == at_ns
        ]
        if not own:  # all were written to, or touched, since: only contents tell whether by a later save
            return seen.order if seen.saves and seen.saves[-1].step is None else None
        newest_ns = max(own)[0]
        early = {
            f"{self._roots[root]}/{name}"
            for root, listed in self._own.items()
            for name, at_ns in self._by_root(f"{root}/{one.lstrip(_EARLY)}" for one in listed).get(root, [])
            if listed.get(f"{_EARLY}{name}") == at_ns != listed.get(name)
        }
        unseen = there.keys() - early
        later = [(at_ns, path) for path in unseen if (at_ns := there[path].mtime_ns) > newest_ns]
        ordered = own if len(self._own) == 1 else sorted(own)
        saves = {path: nth for nth, one in enumerate(seen.saves) for path in (*one.paths, *one.ranks)}
        items: dict[str | int, tuple[str, ...]] = {_EARLY: tuple(early)}
        for _, path in (*ordered, *sorted(later)):
            one = saves.get(path, path)
            items[one] = (*items.pop(one, ()), path)
        turns = iter(sorted(one for one in items if isinstance(one, int)))
        return order_of(items[next(turns) if isinstance(one, int) else one] for one in items)

    def of_others(self, catalog: Catalog, resumed: str) -> dict[Entry, str]:
        """Checkpoints but ``resumed`` that do not say whose they are and another run wrote, with its name."""
        return {one: who for one, who in self._writers(catalog) if who and one.path != resumed}

    def ours(self, catalog: Catalog) -> set[Entry]:
        """Checkpoints that do not say whose they are and this run wrote, or one that it goes on with."""
        return {one for one, who in self._writers(catalog) if who == ""}

    def certain(self, catalog: Catalog) -> set[str]:
        """Checkpoints with all files as we wrote them while no other run was here; none while one is."""
        scan = catalog.scan().entries if self._neighbours.alone else ()
        found = ((one.path, self._by_root(catalog.files_of(one))) for one in scan)
        return {
            path
            for path, by_root in found
            if by_root and all(self._own[root].items() >= {*files} for root, files in by_root.items())
        }

    def _writers(self, catalog: Catalog) -> Iterator[tuple[Entry, str | None]]:
        """Who wrote each checkpoint that does not say so: "" we, None if unknown, else the run in words.

        What was written over since, and is on no list, was written by the run that wrote that name last, just
        before its end.
        """
        lists = {root: sorted(self._lists_of(root), key=lambda one: one[0]) for root in self._lists}
        for entry in catalog.scan().entries:
            if not entry.run_id:
                found = self._by_root(catalog.files_of(entry)).items()
                listed = [(who, dict(files), its) for root, files in found for who, its in lists[root]]
                who = (one for one, files, its in listed if files.items() & its.items())
                over = [(its[name], one) for one, files, its in listed for name in files.keys() & its.keys()]
                yield entry, next(who, max(over)[1] if over else None)

    def _lists_of(self, root: str) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Each list beside ``root``, with the run in words; "" for ours.

        Ours is also one of our id and script that has not ended well, and is whole. Its process is gone, and
        its log_dir may be.
        """
        yield "", self._own[root]
        for path in self._lists[root].parent.glob(f"{_PREFIX}*"):
            if path != self._lists[root]:
                name, listed = path.name.removeprefix(_PREFIX), _listed(path)
                goes_on = _MISSED not in listed and self._goes_on(path)
                wrote = {one.removeprefix(_EARLY): at_ns for one, at_ns in listed.items()}
                yield ("", listed) if goes_on else (f"run {name.partition('@')[0]}", wrote)

    def _goes_on(self, path: Path) -> bool:
        """Whether we go on with the run of the list ``path``, which had another log_dir."""
        name = path.name.removeprefix(_PREFIX)
        gone = self._neighbours.is_namesake(name) and name not in self._neighbours.namesakes
        return gone and _is_open(path, self._script)

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
            replace_whole(path, self._script + b"\n" + text)
            return
        with path.open("ab") as file:
            file.write(text)


def end_lists(roots: Iterable[str], run_id: str, script: str) -> list[str]:
    """Note in the lists of this run that it ended well. Returns where that could not be noted and why."""
    name, own = f"{_PREFIX}{run_id}@*", json.dumps(script).encode()
    found = ((root, _end(beside(root).glob(name), own)) for root in roots)
    return [f"{root}: {trouble}" for root, trouble in found if trouble]


def _end(lists: Iterable[Path], script: bytes) -> str:
    try:
        for path in lists:
            if _is_open(path, script):
                with path.open("ab") as file:
                    file.write(b"\n" + _ENDED + b"\n")
                    os.fsync(file.fileno())
                _seen_of(path).unlink(missing_ok=True)
    except OSError as error:
        return f"{error}"
    return ""


def _seen_of(path: Path) -> Path:
    return path.with_name(_SEEN + path.name.removeprefix(_PREFIX))


def _is_open(path: Path, script: bytes) -> bool:
    """Whether the run of the list ``path`` was of ``script``, as far as it says, and has not ended well."""
    with suppress(OSError):
        lines = path.read_bytes().splitlines()
        return script in lines[:1] and _ENDED not in lines
    return False


def _listed(path: Path) -> dict[str, int]:
    """Names and times as they were written last, in that order."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError, TypeError):
                name, mtime_ns = json.loads(line)
                found.pop(str(name), None)
                found[str(name)] = int(mtime_ns)
    return found
