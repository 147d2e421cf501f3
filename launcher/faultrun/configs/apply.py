"""Values into files, safely: what ``--rewrite`` and ``faultrun config`` do.

All values of one file go in by one atomic replacement, so that no crash leaves a
new path beside an old epoch. A file that cannot be replaced where it lies (read-only,
a ConfigMap, a bind mount) is answered by an edited copy; pointing the script at it is
``argv.pointed``'s task.
"""

from collections.abc import Sequence
from pathlib import Path

from faultrun.configs.copies import copy_for
from faultrun.configs.files import (
    LOCAL,
    TRIES,
    Disk,
    Snapshot,
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
from faultrun.model.edit import Change, EditedCopy, EditResult, Setting


def preview(settings: Sequence[Setting], *, originals: Path) -> tuple[EditResult, ...]:
    """What ``apply`` would do, file by file, without doing it. Raises as ``apply`` does."""
    results: list[EditResult] = []
    for file, group in _by_file(settings):
        _, changes = _edited(snapshot(file), group)
        results.append(EditResult(file=str(file), changes=changes, copy=copy_for(file, group, originals)))
    return tuple(results)


def apply(settings: Sequence[Setting], *, originals: Path, disk: Disk = LOCAL) -> tuple[EditResult, ...]:
    """Put every value into its file; one result for each file, in order of first mention.

    ``originals`` is ``<log_dir>/original``: what a file was before our first
    change of it is kept there first. Symbolic links are followed, mode and
    owner kept. Doing the same again changes nothing.

    ConfigError, with every file still whole, when a file is missing, no text,
    too large, not in its format, being written by somebody else, or an edit
    makes no sense. All edits are tried in memory before the first file is written.
    """
    preview(settings, originals=originals)
    return tuple(_apply(file, group, originals, disk) for file, group in _by_file(settings))


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


def _apply(file: Path, group: Sequence[Setting], originals: Path, disk: Disk) -> EditResult:
    copy = copy_for(file, group, originals)
    if copy is not None:
        return _write_copy(file, group, copy, disk)
    with explained(file), locked(file):
        for _ in range(TRIES):
            seen = snapshot(file)
            data, changes = _edited(seen, group)
            if data != seen.data:
                with holding(originals):
                    Originals(originals, disk).keep(file, seen, data)
                if not still(file, seen):
                    continue
                replace_file(disk, file, data, seen.attributes)
            return EditResult(file=str(file), changes=changes)
    raise restless(file)


def _write_copy(file: Path, group: Sequence[Setting], copy: EditedCopy, disk: Disk) -> EditResult:
    """The copy is made anew from the file each time: a ConfigMap may have been updated."""
    seen = snapshot(file)
    data, changes = _edited(seen, group)
    target = Path(copy.path)
    with explained(target):
        disk.make_directory(target.parent)
        with locked(target):
            replace_file(disk, target, data, seen.attributes.of_a_copy())
    return EditResult(file=str(file), changes=changes, copy=copy)


def _edited(seen: Snapshot, group: Sequence[Setting]) -> tuple[bytes, tuple[Change, ...]]:
    data = seen.data
    changes: list[Change] = []
    for setting in group:
        done = edit(setting.file, data, setting.key, setting.value, format=setting.format)
        data = done.data
        changes.append(done.change)
    return data, tuple(changes)
