"""Values into files, safely: what ``--rewrite`` and ``faultrun config`` do.

All values of one file go in by one atomic replacement, so that no crash leaves a
new path beside an old epoch. A file that cannot be replaced where it lies (read-only,
a ConfigMap, a bind mount) is answered by an edited copy; pointing the script at it is
``argv.pointed``'s task.
"""

import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from faultrun.configs.copies import copy_for
from faultrun.configs.files import (
    LOCAL,
    TRIES,
    Disk,
    FileSnapshot,
    explained,
    replace_file,
    restless,
    snapshot,
    still,
)
from faultrun.configs.lock import locked
from faultrun.configs.originals import Originals, holding
from faultrun.configs.registry import edit
from faultrun.errors import ConfigError
from faultrun.model.edit import By, Change, EditedCopy, EditResult, Setting


def preview(settings: Sequence[Setting], *, originals: Path) -> tuple[EditResult, ...]:
    """What ``apply`` would do, file by file, without doing it. Raises as ``apply`` does."""
    results: list[EditResult] = []
    for file, group in _by_file(settings):
        _, changes = _edited(snapshot(file), group)
        results.append(EditResult(file=str(file), changes=changes, copy=copy_for(file, group, originals)))
    return tuple(results)


def apply(
    settings: Sequence[Setting], *, originals: Path, by: By = By.RUN, disk: Disk = LOCAL
) -> tuple[EditResult, ...]:
    """Put every value into its file; one result for each file, in order of first mention.

    ``originals`` is ``<log_dir>/original``: what a file was before our first
    change of it is kept there first, apart for what is set ``by`` hand. Symbolic links are followed, mode and
    owner kept. Doing the same again changes nothing.

    ConfigError, with every file still whole, when a file is missing, no text,
    too large, not in its format, being written by somebody else, or an edit
    makes no sense. All edits are tried in memory before the first file is written.
    """
    preview(settings, originals=originals)
    place = _Place(originals=originals, disk=disk, by=by)
    return tuple(_apply(file, group, place) for file, group in _by_file(settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    originals: Path
    disk: Disk
    by: By


def _by_file(settings: Sequence[Setting]) -> list[tuple[Path, list[Setting]]]:
    groups: dict[Path, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(Path(setting.file).resolve(), []).append(setting)
    for file, group in groups.items():
        keys = [setting.key for setting in group]
        for key in keys:
            if keys.count(key) > 1:
                raise ConfigError(
                    f"{key} of {file} would be set {keys.count(key)} times",
                    because="the last one would win silently",
                    hint="leave one of them",
                )
    return list(groups.items())


def _apply(file: Path, group: Sequence[Setting], place: _Place) -> EditResult:
    copy = copy_for(file, group, place.originals, place.by)
    if copy is not None:
        return _write_copy(file, group, copy, place)
    with explained(file), locked(file):
        for _ in range(TRIES):
            seen = snapshot(file)
            data, changes = _edited(seen, group)
            if data != seen.data:
                with holding(place.originals):
                    _keep(file, group, seen, data, place)
                if not still(file, seen):
                    continue
                replace_file(place.disk, file, data, seen.attributes)
            return EditResult(file=str(file), changes=changes)
    raise restless(file)


def _keep(file: Path, group: Sequence[Setting], seen: FileSnapshot, data: bytes, place: _Place) -> None:
    """A person's value goes into what runs give back, too: they take back no value but their own."""
    mine = Originals(place.originals, place.disk, place.by)
    runs = Originals(place.originals, place.disk)
    base = runs.base(file, seen) if place.by is By.HAND else None
    if base is None:
        mine.keep(file, seen, data)
        return
    under = replace(seen, data=base)
    edited, _ = _edited(under, group)
    mine.keep(file, under, edited)
    runs.rebase(file, replace(seen, data=edited), data)


def _write_copy(file: Path, group: Sequence[Setting], copy: EditedCopy, place: _Place) -> EditResult:
    """A run's copy is made anew from the file: a ConfigMap may have been updated. A person's is kept."""
    target, disk = Path(copy.path), place.disk
    seen = snapshot(file)
    by_hand = snapshot(target).data if place.by is By.HAND and target.exists() else seen.data
    data, changes = _edited(replace(seen, data=by_hand), group)
    with explained(target):
        disk.make_directory(target.parent)
        with locked(target):
            attributes = seen.attributes.of_a_copy()  # and itself to be edited again
            replace_file(disk, target, data, replace(attributes, mode=attributes.mode | stat.S_IWUSR))
    return EditResult(file=str(file), changes=changes, copy=copy)


def _edited(seen: FileSnapshot, group: Sequence[Setting]) -> tuple[bytes, tuple[Change, ...]]:
    data = seen.data
    changes: list[Change] = []
    for setting in group:
        done = edit(setting.file, data, setting.key, setting.value, format=setting.format)
        data = done.data
        changes.append(done.change)
    return data, tuple(changes)
