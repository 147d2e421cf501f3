"""What of a log_dir is faultrun's: names from a closed list, and nothing else that lies there.

A log_dir may be the working directory, or hold the script, a repository, checkpoints. So a folder whose
name a project may use (``original``, ``etcd``, ``device0``) is ours as far as what is in it bears our names.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from faultrun.files import bytes_from

_FILES = re.compile(
    r"""
      journal\.jsonl | run\.json | control\.sock | mounts\.json | checkpoints\.jsonl | left_alone\.jsonl
    | incident_\d+\.(?:txt|json) | \.verifying
    | on_event\.log | traces\.log | standby_\d+\.log
    | faultrun_traceback\.txt | sidecar_traceback\.txt
    | rank_table_of_(?:\d+_nodes|\d+(?:_\d+)*)\.json
    """,
    re.VERBOSE,
)
_REPORTS = {
    "report.html": (b"faultrun report",),
    "report.md": (b"# Run ", b" worker"),
    "report.json": (b'"schema"', b'"productive_share"'),
}
"""Others write files of these names, too, so ours are known by what their beginnings hold."""
_HEAD_BYTES = 8192
_WHOLE_FOLDERS = re.compile(r"incarnation_\d+")
_INDEXES = ("index.json", "by_hand.json")
_SHARED_FOLDERS = {
    "edited": re.compile(r"(?:hand-)?[0-9a-f]{8}"),
    "etcd": re.compile(r"data|etcd\.log"),
    "compile_cache": re.compile(r"[0-9a-f]{16}"),
}
_INDEX_NAMES = re.compile("|".join(map(re.escape, _INDEXES)))
_NUMBERED_FOLDERS = {
    re.compile(r"device\d+"): re.compile(r"group_info\.pb"),
    re.compile(r"incident_\d+"): re.compile(r"rank_\d+\.txt"),
}
_INTO_A_LIFE = re.compile(r"(?:\./)?incarnation_\d+/")
_UNFINISHED = re.compile(r"\.(?P<name>.+)\.(?:\d+|faultrun\.(?:tmp|lock))")
"""A file that is written before it takes its name, and the lock of one that is edited."""


def own_entries(log_dir: Path) -> Iterator[Path]:
    """What faultrun left in ``log_dir``; of a folder whose name others use, its own part.

    An index comes after the files that it names.
    """
    for entry in sorted(log_dir.iterdir()):
        if entry.is_symlink():
            if _INTO_A_LIFE.match(str(entry.readlink())):
                yield entry
        elif not entry.is_dir():
            if _is_own(entry.name, _FILES) or (entry.name in _REPORTS and is_own_report(entry)):
                yield entry
        elif entry.name == "original":
            yield from _kept_originals(entry)
        elif _WHOLE_FOLDERS.fullmatch(entry.name):
            yield entry
        else:
            numbered = (own for name, own in _NUMBERED_FOLDERS.items() if name.fullmatch(entry.name))
            inside = _SHARED_FOLDERS.get(entry.name) or next(numbered, None)
            if inside is not None:
                yield from (one for one in sorted(entry.iterdir()) if _is_own(one.name, inside))


def in_the_way(log_dir: Path) -> list[str]:
    """What bears a name of a run's own where no run of ours ever was."""
    own = {str(entry.relative_to(log_dir)) for entry in own_entries(log_dir)}
    return sorted(own | {entry.name for entry in log_dir.iterdir() if entry.name in _REPORTS})


def is_own_report(file: Path) -> bool:
    """Whether ``file``, of a report's name, is one that faultrun wrote."""
    head = bytes_from(file, 0, _HEAD_BYTES)
    return all(mark in head for mark in _REPORTS[file.name])


def _kept_originals(folder: Path) -> Iterator[Path]:
    """The copies that our indexes name, then the indexes and what stands beside them while they change."""
    named: set[str] = set()
    for index in _INDEXES:
        with suppress(OSError, ValueError, KeyError, AttributeError, TypeError):
            kept = json.loads((folder / index).read_bytes())
            named.update(str(one["name"]) for one in kept["files"].values())
    yield from (folder / name for name in sorted(named) if os.path.lexists(folder / name))
    yield from (one for one in sorted(folder.iterdir()) if _is_own(one.name, _INDEX_NAMES))


def _is_own(name: str, own: "re.Pattern[str]") -> bool:
    unfinished = _UNFINISHED.fullmatch(name)
    return own.fullmatch(name if unfinished is None else unfinished["name"]) is not None
