"""The way back: files that were rewritten get their first bytes again."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from faultrun.configs.files import LOCAL, Attributes, Disk, explained, replace_file, snapshot
from faultrun.configs.lock import locked
from faultrun.configs.originals import Kept, Originals, digest, holding
from faultrun.errors import ConfigError
from faultrun.model.edit import Restored


def restore(
    originals: Path, files: Sequence[str] | None = None, *, disk: Disk = LOCAL
) -> tuple[Restored, ...]:
    """Give back the first bytes, owner and mode of ``files``, or of every file that was rewritten.

    ConfigError if one of them was never rewritten, its original is damaged, or
    somebody else changed it since: putting the original back would lose that change.
    Every other file is restored before that is raised.
    """
    index: Mapping[str, Kept] = {}
    if originals.is_dir():
        with holding(originals):
            index = Originals(originals, disk).read()
    chosen = _chosen(index, files, originals)
    outcomes = [_attempt(Path(file), originals, disk) for file in chosen]
    for outcome in outcomes:
        if isinstance(outcome, ConfigError):
            raise outcome
    return tuple(outcome for outcome in outcomes if isinstance(outcome, Restored))


def _chosen(index: Mapping[str, Kept], files: Sequence[str] | None, originals: Path) -> list[str]:
    if not files:
        return list(index)
    chosen = [str(Path(file).resolve()) for file in files]
    for file, shown in zip(chosen, files, strict=True):
        if file not in index:
            raise ConfigError(
                f"{shown} has no original",
                because=f"it was never rewritten in this log_dir ({originals})",
                hint="faultrun config restore --log_dir D",
            )
    return chosen


def _attempt(file: Path, originals: Path, disk: Disk) -> Restored | ConfigError:
    try:
        return _restore(file, originals, disk)
    except ConfigError as error:
        return error


def _restore(file: Path, originals: Path, disk: Disk) -> Restored:
    with explained(file), locked(file), holding(originals):
        store = Originals(originals, disk)
        kept = store.read()[str(file)]
        data = store.content(kept)
        seen = snapshot(file) if file.exists() else None
        now = digest(seen.data) if seen else ""
        if seen and now != kept.sha256 and (kept.foreign or now not in kept.written):
            raise ConfigError(
                f"{file} was changed by somebody else",
                because="putting the original back would lose that change",
                hint=f"diff {store.path_of(kept)} {file}",
            )
        if now != kept.sha256:
            replace_file(disk, file, data, Attributes(mode=kept.mode, owner=(kept.uid, kept.gid)))
        store.mark_restored(str(file))
    return Restored(file=str(file), changed=now != kept.sha256)
