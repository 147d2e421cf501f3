"""Walk checkpoint directories: names and stamps, links kept inside, nothing opened."""

import os
from collections.abc import Iterator
from pathlib import Path

from faultrun.checkpoints.format import Listing, Stamp
from faultrun.model.checkpoint import Refusal

_DEEPEST = 16


def walk(root: str) -> Iterator[Listing | Refusal]:
    """Every directory at and below ``root``, and a refusal for what cannot or must not be entered.

    A missing root yields nothing: the first save has not made it yet. A root
    that is a file yields itself and what lies beside it under its name.
    Hidden directories are skipped. A link to a file within the root is listed
    like a file, with its target's stamp: the target's own name may tell
    nothing. A link to a directory is followed, once, only if its target is
    not listed itself because it is hidden. Links out of the root are not followed.
    """
    start = str(Path(root).absolute())
    if os.path.isfile(start):  # noqa: PTH113 - a string is all there is
        yield from _beside(start)
        return
    inside = os.path.realpath(start)
    pending = [(start, 0)]
    followed: set[str] = set()
    while pending:
        path, depth = pending.pop()
        found = _list(path, inside, followed)
        if found is None:
            continue
        yield found
        if isinstance(found, Refusal):
            continue
        if depth < _DEEPEST:
            below = sorted((name for name in found.directories if not name.startswith(".")), reverse=True)
            pending += [(found.join(name), depth + 1) for name in below]


def stamp_of(path: str) -> Stamp | None:
    """What ``stat`` says about ``path`` now; None when it is gone."""
    try:
        info = os.stat(path)  # noqa: PTH116 - ten thousand times a scan
    except OSError:
        return None
    return Stamp(info.st_ino, info.st_size, info.st_mtime_ns)


def _beside(path: str) -> Iterator[Listing]:
    directory, _, name = path.rpartition("/")
    stamps = {one: stamp_of(f"{directory}/{one}") for one in os.listdir(directory) if one.startswith(name)}  # noqa: PTH208
    yield Listing(path=directory, files={one: stamp for one, stamp in stamps.items() if stamp})


def _list(path: str, inside: str, followed: set[str]) -> Listing | Refusal | None:
    files: dict[str, Stamp] = {}
    directories: set[str] = set()
    links: set[str] = set()
    links_out: dict[str, str] = {}
    try:
        with os.scandir(path) as found:
            for entry in found:
                if entry.is_symlink():
                    target = os.path.realpath(entry.path)
                    if not _is_inside(target, inside):
                        links_out[entry.name] = target
                    elif entry.is_dir():
                        if "/." in target[len(inside) :] and target not in followed:
                            followed.add(target)
                            directories.add(entry.name)
                    elif entry.is_file() and (stamp := stamp_of(entry.path)):
                        links.add(entry.name)
                        files[entry.name] = stamp
                elif entry.is_dir(follow_symlinks=False):
                    directories.add(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    stamp = _stamp(entry)
                    if stamp is not None:
                        files[entry.name] = stamp
    except FileNotFoundError:
        return None
    except OSError as err:
        return Refusal(path=path, global_step=None, why=f"cannot be listed: {err.strerror}")
    return Listing(
        path=path,
        files=files,
        directories=frozenset(directories),
        links=frozenset(links),
        links_out=links_out,
    )


def _stamp(entry: "os.DirEntry[str]") -> Stamp | None:
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError:  # gone since it was listed
        return None
    return Stamp(info.st_ino, info.st_size, info.st_mtime_ns)


def _is_inside(target: str, root: str) -> bool:
    return target == root or target.startswith(root.rstrip("/") + "/")
