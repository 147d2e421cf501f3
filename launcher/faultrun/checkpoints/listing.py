"""From directories to entries by names and stamps: what there is, which formats claim it, what is unfinished.

Nothing is opened, and links are kept inside.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from faultrun.checkpoints.format import Claim, Format, Listing, Stamp
from faultrun.checkpoints.names import base_name, is_unfinished, step_in, unfinished_directory
from faultrun.model.checkpoint import Entry, Refusal

_DEEPEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One path as names describe it: an entry for each format that claims it, in the order to ask them.

    ``linked``: some of its members are links. ``parts`` are the directories that belong to it.
    """

    entries: tuple[Entry, ...]
    members: tuple[str, ...]
    unfinished: str
    linked: bool = False
    parts: tuple[str, ...] = ()

    @property
    def first(self) -> Entry:
        """The entry of the first format that claims the path."""
        return self.entries[0]


def walk(root: str) -> Iterator[Listing | Refusal]:
    """Every directory at and below ``root``, and a refusal for what cannot or must not be entered.

    A missing root yields nothing: the first save has not made it yet. A root that is a file yields itself and
    what lies beside it under its name. Hidden directories are skipped. A link to a file within the root is
    listed like a file, with its target's stamp: the target's own name may tell nothing. A link to a directory
    is followed, once, only if its target is not listed itself because it is hidden. Links out of the root are
    not followed.
    """
    start = str(Path(root).absolute())
    if os.path.isfile(start):  # noqa: PTH113 - a string is all there is
        directory, _, name = start.rpartition("/")
        try:
            beside = [one for one in os.listdir(directory) if one.startswith(name)]  # noqa: PTH208 - as above
        except OSError as err:
            yield Refusal(path=start, global_step=None, why=_unlistable(err))
            return
        stamps = {one: stamp_of(f"{directory}/{one}") for one in beside}
        yield Listing(path=directory, files={one: stamp for one, stamp in stamps.items() if stamp})
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
        if depth < _DEEPEST and not isinstance(found, Refusal):
            below = sorted((name for name in found.directories if not name.startswith(".")), reverse=True)
            pending += [(found.join(name), depth + 1) for name in below]


def stamp_of(path: "str | os.DirEntry[str]") -> Stamp | None:
    """What ``stat`` says about ``path`` now; None when it is gone, or no path."""
    try:
        info = os.stat(path) if isinstance(path, str) else path.stat(follow_symlinks=False)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return Stamp(info.st_ino, info.st_size, info.st_mtime_ns)


def claimed(listing: Listing, root: str, formats: Sequence[Format]) -> Iterator[Named | Refusal]:
    """Each path of one directory that at least one format claims; a refusal for a format that fails."""
    claims: dict[str, list[tuple[Format, Claim]]] = {}
    for one in formats:
        found_here = _claims(one, listing)
        if isinstance(found_here, Refusal):
            yield found_here
            continue
        for claim in found_here:
            claims.setdefault(claim.path, []).append((one, claim))
    unfinished = unfinished_directory(listing.path, root) if claims else ""
    together = {name for _, claim in claims.get(listing.path, ())[:1] for name in claim.members}
    for path, found in claims.items():
        if path != listing.path and base_name(path) in together:
            continue
        first = found[0][1]
        members = first.members or tuple(_below(listing, first.parts))
        stamp = combined(listing.files.get(name) or stamp_of(listing.join(name)) for name in members)
        if stamp is not None and not is_unfinished(base_name(path)):
            yield Named(
                entries=tuple(_named_entry(one, claim, stamp) for one, claim in found),
                members=tuple(map(listing.join, members)),
                unfinished=first.unfinished or unfinished,
                parts=tuple(listing.join(name) for name in first.parts),
                linked=not listing.links.isdisjoint(first.members),
            )


def links_out(listing: Listing, formats: Sequence[Format]) -> Iterator[Refusal]:
    """Links that leave the root under the name of a checkpoint: files of others are not ours to load."""
    links = {name: Stamp(0, 0, 0) for name in listing.links_out}
    for one in formats if links else ():
        found = _claims(one, Listing(path=listing.path, files=links))
        for claim in () if isinstance(found, Refusal) else found:
            target = listing.links_out.get(claim.members[0], "")
            why = f"is a link out of the checkpoint directory, to {target}"
            yield Refusal(path=claim.path, global_step=claim.global_step, why=why)
    for name, target in listing.links_out.items():
        if (told := step_in(name)) is not None and os.path.isdir(target):  # noqa: PTH112 - as above
            why = f"is a link out of the checkpoint directory, to {target}"
            yield Refusal(path=listing.join(name), global_step=told[1], why=why)


def unfinished_files(listing: Listing) -> Iterator[Refusal]:
    """Files under the names that writers use before the final rename; folders of saves with none in them."""
    if not (listing.files or listing.directories) and step_in(base_name(listing.path)) is not None:
        yield Refusal(path=listing.path, global_step=None, why="an empty folder")
    for name in listing.files:
        if is_unfinished(name):
            why = "never finished: writers use such a name before the final rename"
            yield Refusal(path=listing.join(name), global_step=None, why=why)


def combined(stamps: Iterable[Stamp | None]) -> Stamp | None:
    """One stamp for a checkpoint of several files; None when one of them is gone.

    It changes whenever one of them is replaced, grows or is written to.
    """
    inode = size_bytes = mtime_ns = count = 0
    for stamp in stamps:
        if stamp is None:
            return None
        count += 1
        inode = stamp.inode if count == 1 else (inode * 31 + stamp.inode) & 0x7FFFFFFFFFFFFFFF
        size_bytes += stamp.size_bytes
        mtime_ns = max(mtime_ns, stamp.mtime_ns)
    return Stamp(inode, size_bytes, mtime_ns) if count else None


def _below(listing: Listing, parts: Iterable[str]) -> Iterator[str]:
    """The files of a checkpoint that has none in its own directory, but only in its parts."""
    for part in sorted(parts):
        for path, _, names in os.walk(listing.join(part)):
            yield from (f"{path[len(listing.path) + 1 :]}/{name}" for name in sorted(names))


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
                    if target != inside and not target.startswith(inside.rstrip("/") + "/"):
                        links_out[entry.name] = target
                    elif _leads_to(entry, stat.S_ISDIR):
                        if "/." in target[len(inside) :] and target not in followed:
                            followed.add(target)
                            directories.add(entry.name)
                    elif _leads_to(entry, stat.S_ISREG) and (stamp := stamp_of(entry.path)):
                        links.add(entry.name)
                        files[entry.name] = stamp
                elif entry.is_dir(follow_symlinks=False):
                    directories.add(entry.name)
                elif entry.is_file(follow_symlinks=False) and (stamp := stamp_of(entry)):
                    files[entry.name] = stamp
    except FileNotFoundError:
        return None
    except OSError as err:
        return Refusal(path=path, global_step=None, why=_unlistable(err))
    return Listing(
        path=path,
        files=files,
        directories=frozenset(directories),
        links=frozenset(links),
        links_out=links_out,
    )


def _leads_to(link: "os.DirEntry[str]", kind: Callable[[int], bool]) -> bool:
    """Whether it is a link to that; one that leads nowhere, or in a circle, hides nothing beside it."""
    try:
        return kind(link.stat().st_mode)
    except OSError:
        return False


def _unlistable(err: OSError) -> str:
    return f"cannot be listed: {err.strerror}"


def _claims(one: Format, listing: Listing) -> list[Claim] | Refusal:
    try:
        return list(one.claim(listing))
    except Exception as err:  # noqa: BLE001 - formats may be plug-ins; one must not hide the others' checkpoints
        why = f"the format {one.name} failed here: {type(err).__name__}: {err}"
        return Refusal(path=listing.path, global_step=None, why=why)


def _named_entry(one: Format, claim: Claim, stamp: Stamp) -> Entry:
    return Entry(
        path=claim.path,
        format=one.name,
        kind=claim.kind,
        size_bytes=stamp.size_bytes,
        mtime_ns=stamp.mtime_ns,
        inode=stamp.inode,
        rank=claim.rank,
        epoch=claim.epoch,
        step_in_epoch=claim.step_in_epoch,
        global_step=claim.global_step,
        series=claim.series,
        session=claim.session,
        save_number=claim.save_number,
    )
