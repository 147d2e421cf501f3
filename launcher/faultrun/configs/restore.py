"""The way back: files that were rewritten get their first bytes again."""

from collections.abc import Sequence
from pathlib import Path

from faultrun.configs.files import LOCAL, Attributes, Disk, explained, replace_file, snapshot
from faultrun.configs.lock import locked
from faultrun.configs.originals import Originals, digest, holding
from faultrun.errors import ConfigError
from faultrun.model.edit import By, Restored


def restore(
    originals: Path, files: Sequence[str] | None = None, *, by: By = By.RUN, disk: Disk = LOCAL
) -> tuple[Restored, ...]:
    """Give back the first bytes, owner and mode of ``files``, or of every file that was rewritten.

    A run gives back what runs rewrote; what is given back ``by`` hand loses a person's values, too.
    ConfigError if one of them was never rewritten, its original is damaged, or
    somebody else changed it since: putting the original back would lose that change.
    Every other file is restored before that is raised.
    """
    stores = [Originals(originals, disk)]
    if by is By.HAND:
        stores.append(Originals(originals, disk, By.HAND))
    known: list[str] = []
    if originals.is_dir():
        with holding(originals):
            known = list(dict.fromkeys(file for store in stores for file in store.read()))
    outcomes = [_attempt(Path(file), originals, stores, disk) for file in _chosen(known, files, originals)]
    for outcome in outcomes:
        if isinstance(outcome, ConfigError):
            raise outcome
    return tuple(outcome for outcome in outcomes if isinstance(outcome, Restored))


def _chosen(known: Sequence[str], files: Sequence[str] | None, originals: Path) -> Sequence[str]:
    if not files:
        return known
    chosen = [str(Path(file).resolve()) for file in files]
    for file, shown in zip(chosen, files, strict=True):
        if file not in known:
            raise ConfigError(
                f"{shown} has no original",
                because=f"it was never rewritten in this log_dir ({originals})",
                hint="faultrun config restore --log_dir D",
            )
    return chosen


def _attempt(file: Path, originals: Path, stores: Sequence[Originals], disk: Disk) -> Restored | ConfigError:
    """By every store in turn whose values stand in the file; a person is told why, where none do."""
    try:
        standing = [store for store in stores if store.stands_in(file)]
        if not standing and len(stores) > 1:
            standing = [store for store in stores if str(file) in store.read()][-1:]
        changed = [_restored(file, originals, store, disk) for store in standing]
    except ConfigError as error:
        return error
    return Restored(file=str(file), changed=any(changed))


def _restored(file: Path, originals: Path, store: Originals, disk: Disk) -> bool:
    """Give back what ``store`` has of ``file``; whether that changed it."""
    with explained(file), locked(file), holding(originals):
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
    return now != kept.sha256
