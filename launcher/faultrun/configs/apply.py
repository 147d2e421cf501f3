"""Values into files, safely: what ``--rewrite`` and ``faultrun config`` do.

All values of one file go in by one atomic replacement, so that no crash leaves a new path beside an old
epoch. A file that cannot be replaced where it lies (read-only, a ConfigMap, a bind mount) is answered by an
edited copy; pointing the script at it is ``argv.pointed``'s task.
"""

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from faultrun.configs.editors.registry import edit
from faultrun.configs.files import (
    LOCAL,
    TRIES,
    Disk,
    FileSnapshot,
    explained,
    locked,
    replace_file,
    restless,
    snapshot,
    still,
)
from faultrun.configs.former import forget_former, formers, formers_beside, given_back, keep_former, note_of
from faultrun.configs.originals import Originals, folder_of_copy, holding
from faultrun.core import template
from faultrun.errors import ConfigError
from faultrun.files import sha256
from faultrun.model.edit import By, Change, EditedCopy, EditResult, Setting
from faultrun.model.spec.run_spec import Rewrite

_SAMPLE = template.Values(
    checkpoint="/checkpoints/rank_0/net-2_1215.ckpt",
    run_id="run",
    incarnation=1,
    epoch=2,
    step=1215,
    global_step=3090,
)
_MOST_LEVELS, _MOST_SIBLINGS = 3, 1000
_UP = re.compile(rb"(?:\.\./)+")
_OCTAL = re.compile(r"\\([0-7]{3})")  # how mountinfo writes spaces and backslashes, see proc(5)


def check(rewrites: Sequence[Rewrite], *, originals: Path) -> tuple[EditResult, ...]:
    """Prove that every rewrite will work, by doing each on a sample in memory; nothing is written.

    Returns what would happen to each file; ``copy`` tells that an edited copy will be needed, which
    ``argv.pointed`` must be able to place. ConfigError for a wrong template, file or key.
    """
    for rewrite in rewrites:
        if "rank" in template.parse(rewrite.template).fields:
            raise ConfigError(
                f"{rewrite.template!r} cannot be written into {rewrite.file}",
                because="{rank} differs from worker to worker, and they all read this one file",
                hint="give it as an argument instead: --resume_arg",
            )
    return preview(_settings(rewrites, _SAMPLE), originals=originals)


def carry_out(
    rewrites: Sequence[Rewrite], values: template.Values, *, originals: Path
) -> tuple[EditResult, ...]:
    """Fill in every template and put the values into their files; see ``apply.apply``."""
    return apply(_settings(rewrites, values), originals=originals)


def preview(settings: Sequence[Setting], *, originals: Path) -> tuple[EditResult, ...]:
    """What ``apply`` would do, file by file, without doing it. Raises as ``apply`` does."""
    results: list[EditResult] = []
    for file, group in _by_file(settings):
        _, changes = _edited(snapshot(file), group)
        results.append(EditResult(file=str(file), changes=changes, copy=_copy_for(file, group, originals)))
    return tuple(results)


def apply(
    settings: Sequence[Setting], *, originals: Path, by: By = By.RUN, disk: Disk = LOCAL
) -> tuple[EditResult, ...]:
    """Put every value into its file; one result for each file, in order of first mention.

    ``originals`` is ``<log_dir>/original``: what a file was before our first
    change of it is kept there first, apart for what is set ``by`` hand. Symbolic links are followed, mode and
    owner kept. Doing the same again changes nothing.

    ConfigError, with every file still whole, when a file is missing, no text,
    too large, not in its format, being written by another program, or an edit
    makes no sense. All edits are tried in memory before the first file is written.
    """
    preview(settings, originals=originals)
    place = _Place(originals=originals, disk=disk, by=by)
    return tuple(_apply(file, group, place) for file, group in _by_file(settings))


def in_place(rewrites: Sequence[Rewrite]) -> tuple[Path, ...]:
    """The files of ``rewrites`` that are replaced where they lie: other runs may do that, too."""
    groups = _by_file(_settings(rewrites, _SAMPLE))
    return tuple(file for file, group in groups if not _why_not_in_place(file, group))


def take_back(files: Sequence[Path], *, disk: Disk = LOCAL) -> tuple[Path, ...]:
    """Let ``files`` say what they did before any run set a value there; which of them said something else.

    A value that another writer has set since stays, and so does the note of one that cannot be put back.
    """
    changed: list[Path] = []
    for file in files:
        if not (known := formers(file) or formers_beside(file)):
            continue
        with explained(file), locked(file):
            seen = snapshot(file)
            data, left = given_back(file, seen.data, known)
            if data != seen.data and still(file, seen):
                replace_file(disk, file, data, seen.attributes)
                changed.append(file)
            if not left and note_of(file).exists():
                forget_former(disk, file)
    return tuple(changed)


def _settings(rewrites: Sequence[Rewrite], values: template.Values) -> tuple[Setting, ...]:
    """The rewrites with their templates filled in. ConfigError for an unknown field or an unknown value."""
    return tuple(
        Setting(
            file=rewrite.file,
            key=rewrite.key,
            value=template.rendered_value(template.parse(rewrite.template), values),
            format=rewrite.format,
        )
        for rewrite in rewrites
    )


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
    if (copy := _copy_for(file, group, place.originals, place.by)) is not None:
        return _write_copy(file, group, copy, place)
    with explained(file), locked(file):
        for _ in range(TRIES):
            seen = snapshot(file)
            data, changes = _edited(seen, group)
            if data != seen.data:
                with holding(place.originals):
                    Originals(place.originals, place.disk, place.by).keep(file, seen, data)
                if not still(file, seen):
                    continue
                if place.by is By.RUN:
                    keep_former(place.disk, file, zip(group, changes, strict=True), seen.attributes)
                replace_file(place.disk, file, data, seen.attributes)
            return EditResult(file=str(file), changes=changes)
    raise restless(file)


def _write_copy(file: Path, group: Sequence[Setting], copy: EditedCopy, place: _Place) -> EditResult:
    """A run's copy is made anew from the file: a ConfigMap may have been updated. A person's is kept."""
    target, disk = Path(copy.path), place.disk
    seen = snapshot(file)
    by_hand = snapshot(target).data if place.by is By.HAND and target.exists() else seen.data
    data, changes = _edited(replace(seen, data=by_hand), group)
    with explained(target):
        disk.make_directory(target.parent)
        _link_siblings(file, target)
        with locked(target):
            attributes = seen.attributes.of_a_copy()  # and itself to be edited again
            replace_file(disk, target, data, replace(attributes, mode=attributes.mode | stat.S_IWUSR))
    return EditResult(file=str(file), changes=changes, copy=copy)


def _levels(file: Path) -> int:
    """How many folders up a path that the file names goes."""
    with suppress(ConfigError):
        found = _UP.findall(snapshot(file).data)
        return min(max((one.count(b"..") for one in found), default=0), _MOST_LEVELS)
    return 0


def _link_siblings(file: Path, target: Path) -> None:
    """What the original includes by a path relative to itself is found from the copy, too."""
    for _ in range(1 + _levels(file)):
        there, here = file.parent, target.parent
        names = os.listdir(there)  # noqa: PTH208 - names are all that is wanted
        for name in names if len(names) <= _MOST_SIBLINGS else ():
            link = here / name
            if name != file.name and not os.path.lexists(link):
                link.symlink_to(there / name)
        file, target = there, here


def _edited(seen: FileSnapshot, group: Sequence[Setting]) -> tuple[bytes, tuple[Change, ...]]:
    data = seen.data
    changes: list[Change] = []
    for setting in group:
        done = edit(setting.file, data, setting.key, setting.value, format=setting.format)
        data = done.data
        changes.append(done.change)
    return data, tuple(changes)


def _copy_for(file: Path, group: Sequence[Setting], originals: Path, by: By = By.RUN) -> EditedCopy | None:
    """The copy that must stand in for ``file``; None when the file itself can be replaced."""
    if not (reason := _why_not_in_place(file, group)):
        return None
    tag = sha256(os.fsencode(file)).hexdigest()[:8]
    above = file.parent.parts[1:]
    name = Path(*above[len(above) - min(_levels(file), len(above)) :], Path(group[0].file).name)
    spelled = dict.fromkeys(
        spelling
        for setting in group
        for spelling in (
            str(Path(setting.file)),
            str(Path(setting.file).absolute()),
            os.path.relpath(setting.file),
            str(file),
        )
    )
    path = str((originals.parent / "edited" / folder_of_copy(tag, by) / name).absolute())
    return EditedCopy(original=group[0].file, path=path, spellings=tuple(spelled), reason=reason)


def _why_not_in_place(file: Path, group: Sequence[Setting]) -> str:
    """Why ``file`` cannot be replaced atomically and keep owner and mode; empty if it can."""
    try:
        status = file.stat()
    except OSError:
        return ""  # reading it says what is wrong, in better words
    if not stat.S_ISREG(status.st_mode):
        return ""
    if any(_is_configmap(Path(setting.file)) for setting in group):
        return "comes from a ConfigMap, which Kubernetes would write again"
    if not status.st_mode & 0o222 or not os.access(file, os.W_OK):
        return "is read-only"
    if not os.access(file.parent, os.W_OK | os.X_OK):
        return f"lies in a read-only directory ({file.parent})"
    if status.st_nlink > 1:
        return f"has {status.st_nlink} hard links, which a replacement would part"
    if os.geteuid() != 0 and status.st_uid != os.geteuid():
        return "belongs to another user, which a replacement would change"
    if str(file) in _mount_points():
        return "is a mount of its own and cannot be replaced by a rename"
    return ""


def _is_configmap(path: Path) -> bool:
    """Kubernetes links FILE -> ..data/FILE and ``..data`` -> a dated directory, swapped as a whole."""
    with suppress(OSError):
        return path.is_symlink() and path.readlink().parts[:1] == ("..data",)
    return False


def _mount_points() -> set[str]:
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return set()
    points = (line.split(" ")[4] for line in lines if line.count(" ") > 4)
    return {_OCTAL.sub(lambda found: chr(int(found.group(1), 8)), point) for point in points}
