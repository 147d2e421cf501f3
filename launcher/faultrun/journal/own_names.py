"""What of a log_dir is faultrun's: names from a closed list, and nothing else that lies there.

A log_dir may be the working directory, or hold the script, a repository, checkpoints. So a folder whose
name a project may use, too (``original``, ``etcd``, ``device0``), is ours only as far as what is in it bears
our names.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_FILES = re.compile(
    r"""
      journal\.jsonl | run\.json | control\.sock | mounts\.json | checkpoints\.jsonl | left_alone\.jsonl
    | report\.(?:html|md|json) | incident_\d+\.(?:txt|json) | \.verifying
    | faultrun\.log | on_event\.log | traces\.log | standby_\d+\.log
    | faultrun_traceback\.txt | sidecar_traceback\.txt
    | rank_table_of_(?:\d+_nodes|\d+(?:_\d+)*)\.json
    """,
    re.VERBOSE,
)
_WHOLE_FOLDERS = re.compile(r"incarnation_\d+|incident_\d+")
_INDEXES = ("index.json", "by_hand.json")
_SHARED_FOLDERS = {
    "edited": re.compile(r"(?:hand-)?[0-9a-f]{8}"),
    "etcd": re.compile(r"data|etcd\.log"),
    "compile_cache": re.compile(r"[0-9a-f]{16}"),
}
_INDEX_NAMES = re.compile("|".join(map(re.escape, _INDEXES)))
_DEVICE_FOLDER, _IN_DEVICE_FOLDER = re.compile(r"device\d+"), re.compile(r"group_info\.pb")
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
            if _is_own(entry.name, _FILES):
                yield entry
        elif entry.name == "original":
            yield from _kept_originals(entry)
        elif _WHOLE_FOLDERS.fullmatch(entry.name):
            yield entry
        else:
            device = _IN_DEVICE_FOLDER if _DEVICE_FOLDER.fullmatch(entry.name) else None
            inside = _SHARED_FOLDERS.get(entry.name, device)
            if inside is not None:
                yield from (one for one in sorted(entry.iterdir()) if _is_own(one.name, inside))


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
