"""Judges folders: can they be written, how fast, how much fits, and does a save fit the window."""

from collections.abc import Iterator
from dataclasses import dataclass

from faultrun.cli.ckpt.rows import size_text
from faultrun.cli.doctor.check import Check, fail, ok, warn
from faultrun.locks import LEASE_S
from faultrun.model.spec import Windows
from faultrun.platforms.storage import Room, Sample

_SKEW_S = 5.0
_FEW_INODES = 1000
_LITTLE_BYTES = 1 << 30
_SAVES_THAT_FIT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """What was found out about a folder. ``place`` is where a sample was written: the folder, or one above.

    ``refused`` is why that failed, empty if it did not.
    """

    path: str
    place: str
    room: Room | None
    sample: Sample | None
    refused: str

    @property
    def there(self) -> bool:
        """Whether the folder itself exists."""
        return self.path == self.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """The newest checkpoint that a folder holds, over all its ranks."""

    size_bytes: int
    files: int


def log_dir_checks(folder: Folder) -> Iterator[Check]:
    """The log_dir: without it a run ends with 73."""
    name = "log_dir"
    if folder.sample is None:
        yield fail(
            name, f"{folder.place} cannot be written: {folder.refused}", "--log_dir on a volume that can"
        )
        return
    yield ok(name, f"{folder.path}{'' if folder.there else ' will be made'}: {_speed(folder.sample)}")
    if not folder.sample.locks:
        yield warn(
            name,
            f"{folder.place} cannot lock files: a lease of {LEASE_S:g} s keeps two runs apart",
            "--log_dir on a file system with flock: after the death of its machine a run waits for the lease",
        )
    yield from _room(name, folder)
    yield from _skew(name, folder.sample, folder.place)


def checkpoint_dir_checks(folder: Folder, save: Save | None, windows: Windows) -> Iterator[Check]:
    """A checkpoint_dir: room, speed, and the time that a save of the last one's size would take."""
    name = "checkpoint_dir"
    if folder.sample is None:
        yield fail(
            name,
            f"{folder.place} cannot be written: {folder.refused}",
            "--checkpoint_dir on a volume that can",
        )
        return
    there = "" if folder.there else " is not there yet"
    yield ok(name, f"{folder.path}{there}: {_speed(folder.sample)}")
    yield from _room(name, folder)
    yield from _skew(name, folder.sample, folder.place)
    if save is None:
        return
    if folder.room is not None and folder.room.free_bytes < _SAVES_THAT_FIT * save.size_bytes:
        yield warn(
            name,
            f"{size_text(folder.room.free_bytes)} free, and the last save has {size_text(save.size_bytes)}",
            "remove old checkpoints: a save is written before the old one goes",
        )
    yield _save_time(save, folder.sample, windows)


def _save_time(save: Save, sample: Sample, windows: Windows) -> Check:
    seconds = save.size_bytes / sample.bytes_per_s
    window_s = min(windows.grace_s, windows.stop_grace_s)
    option = "--grace" if windows.grace_s <= windows.stop_grace_s else "--stop_grace"
    last = f"{save.files} file{'s' if save.files > 1 else ''}, {size_text(save.size_bytes)}"
    text = f"the last one ({last}) takes about {seconds:.1f} s of the {window_s:g} s of {option}"
    if seconds > window_s:
        return fail(
            "save", text, f"{option}={int(seconds * 2) + 1}s, a faster volume, or fewer ranks that save"
        )
    if seconds > window_s / 2:
        return warn(
            "save", text, f"{option}={int(seconds * 2) + 1}s: storage is slower when all nodes save at once"
        )
    return ok("save", text)


def _room(name: str, folder: Folder) -> Iterator[Check]:
    room = folder.room
    if room is None:
        return
    if room.free_bytes < _LITTLE_BYTES:
        yield warn(name, f"{size_text(room.free_bytes)} free", f"make room: df -h {folder.place}")
    if room.free_inodes is not None and room.free_inodes < _FEW_INODES:
        yield warn(
            name, f"{room.free_inodes} files may still be made", f"remove small files: df -i {folder.place}"
        )


def _skew(name: str, sample: Sample, place: str) -> Iterator[Check]:
    if abs(sample.skew_s) > _SKEW_S:
        ahead = "ahead of" if sample.skew_s > 0 else "behind"
        yield warn(
            name,
            f"the clock of {place} is {abs(sample.skew_s):.0f} s {ahead} ours",
            "faultrun does not choose by it; people and other tools do: set both by NTP",
        )


def _speed(sample: Sample) -> str:
    speed, size = size_text(int(sample.bytes_per_s)), size_text(sample.size_bytes)
    return f"{speed}/s, synced ({size} in {sample.seconds:.2f} s)"
