"""The edited copy that stands in for a file which cannot be replaced where it lies, and why it cannot."""

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from faultrun.configs.originals import folder_of_copy
from faultrun.model.edit import By, EditedCopy, Setting

_OCTAL = re.compile(r"\\([0-7]{3})")  # how mountinfo writes spaces and backslashes, see proc(5)


def copy_for(file: Path, group: Sequence[Setting], originals: Path, by: By = By.RUN) -> EditedCopy | None:
    """The copy that must stand in for ``file``; None when the file itself can be replaced."""
    reason = _why_not_in_place(file, group)
    if not reason:
        return None
    tag = hashlib.sha256(os.fsencode(file)).hexdigest()[:8]
    name = Path(group[0].file).name
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
    return EditedCopy(
        original=group[0].file,
        path=str((originals.parent / "edited" / folder_of_copy(tag, by) / name).absolute()),
        spellings=tuple(spelled),
        reason=reason,
    )


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
    try:
        return path.is_symlink() and path.readlink().parts[:1] == ("..data",)
    except OSError:
        return False


def _mount_points() -> set[str]:
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return set()
    points = (line.split(" ")[4] for line in lines if line.count(" ") > 4)
    return {_OCTAL.sub(lambda found: chr(int(found.group(1), 8)), point) for point in points}
