"""faultrun's own saves: any file or folder with a ``<name>.manifest.json`` beside it, written last.

The SDK in the worker writes it (tmp, fsync, rename); whatever the file's own
format, the manifest says its step, whom it serves and its digest::

    {"schema": 1, "path": "net-2_15.ckpt", "kind": "gasp", "step": 55, "epoch": 2, "step_in_epoch": 15,
     "world_size": 4, "rank": 0, "replica_group": [0, 1, 2, 3], "size_bytes": 812345,
     "digest": "sha256:...", "run_id": "...", "incarnation": 0, "node": "...",
     "program": {"name": "train.py", "call": "...", "folder": "/ck"}}

``step`` is the global step; ``digest`` is ``sha256:`` or ``crc32:`` with lower-case hexadecimal digits, or ""
(size only). ``path`` must be the file's name; it is never followed.

A folder's manifest has one thing more, and there the outer size is the sum::

    "files": {"model.safetensors": {"size_bytes": 812345, "digest": "crc32:..."}, "adapter/a.bin": {...}}

It is whole only if each of them is, and nothing else lies there but hidden names. The outer digest is of that
list: ``crc32:`` of the lines ``<name> <size> <digest>``, sorted, each with its newline.

Which of them belong to a run that has ended well says a list beside their folder, so that no save is
changed and a new job of the run's name does not go on from them. A save is named in it by its
manifest's bytes and time: one that is written anew is not on it.
"""

import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from faultrun.checkpoints.format import Claim, Foreign, Listing, Look, Unreadable
from faultrun.checkpoints.listing import walk
from faultrun.checkpoints.names import base_name, rank_of_directory, shown
from faultrun.checkpoints.reading import digest_matches, opened, read_json
from faultrun.files import replace_durably, sha256
from faultrun.model.checkpoint import Depth, Entry, Kind, Refusal, Verdict

SUFFIX = ".manifest.json"
_SCHEMA = 1

_MAX_BYTES = 1 << 20
_MARKS_NAME = ".finished"
_MAX_MARKS_BYTES = 1 << 24
_MAX_GROUP = 1 << 16
_MAX_NAME = 4096
_DIGEST = re.compile(r"(?:sha256:[0-9a-f]{64}|crc32:[0-9a-f]{8}|)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """One file of a folder: its length, and its digest as the manifest writes it."""

    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest, checked: every field has the type and range that the module's text promises."""

    kind: Kind
    step: int
    epoch: int | None
    step_in_epoch: int | None
    world_size: int
    rank: int
    replica_group: tuple[int, ...]
    size_bytes: int
    digest: str
    run_id: str
    incarnation: int
    files: Mapping[str, FilePart] | None
    """By path within the folder; None: it is of a file."""


class GaspManifest:
    """The format ``faultrun``; see the module's text."""

    name = "faultrun"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Every file, and every folder with all that is in it, that has a manifest beside it."""
        for name in listing.files:
            target = name.removesuffix(SUFFIX)
            is_folder = target in listing.directories
            if target != name and (is_folder or target in listing.files):
                yield Claim(
                    path=listing.join(target),
                    members=(name,) if is_folder else (target, name),
                    parts=(target,) if is_folder else (),
                    kind=Kind.GASP,
                    rank=rank_of_directory(listing.path),
                    series="faultrun",
                )

    def read(self, entry: Entry) -> Entry:
        """Everything from the manifest. Raises Unreadable when it is torn or of another file."""
        manifest = read_manifest(entry.path)
        return replace(
            entry,
            kind=manifest.kind,
            rank=manifest.rank,
            epoch=manifest.epoch,
            step_in_epoch=manifest.step_in_epoch,
            global_step=manifest.step,
            world_size=manifest.world_size,
            replica_group=manifest.replica_group,
            run_id=manifest.run_id or None,
            incarnation=manifest.incarnation,
            consistent=True,
        )

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Size and digest against the manifest. May raise Unreadable."""
        if (manifest := read_manifest(entry.path)).files is None:
            whole = FilePart(size_bytes=manifest.size_bytes, digest=manifest.digest)
            return _verdict(entry.path, whole, look)
        why = _other_names(entry.path, manifest.files)
        depths = []
        for name, part in manifest.files.items() if not why else ():
            if not (one := _verdict(f"{entry.path}/{name}", part, look)).whole:
                why = f"its {shown(name)}: {one.why}"
                break
            depths.append(one.depth)
        if why:
            return Verdict(whole=False, why=why, depth=Depth.STRUCTURE, provisional=True)
        depth = Depth.CHECKSUM if all(one is Depth.CHECKSUM for one in depths) else Depth.STRUCTURE
        how = "match their digests" if depth is Depth.CHECKSUM else "are as long as they should be"
        # The entry's stamp is its manifest's: what is proved now, a change in the folder would not take back.
        why, digest = f"all {len(depths)} files {how}", manifest.digest if depth is Depth.CHECKSUM else ""
        return Verdict(whole=True, why=why, depth=depth, digest=digest, provisional=True)


GASP_MANIFEST = GaspManifest()


def read_manifest(path: str) -> Manifest:
    """Return the checked manifest of the file or folder ``path``.

    Raises Foreign when the JSON beside it is another program's, Unreadable
    when it is torn, too large, or says impossible things.
    """
    try:
        fields = read_json(path + SUFFIX, _MAX_BYTES)
    except Unreadable as torn:
        raise Unreadable(f"its manifest {torn}") from torn
    if not isinstance(fields, dict) or "schema" not in fields:
        raise Foreign("the manifest beside it is not faultrun's")
    if fields["schema"] != _SCHEMA:
        what = f"its manifest has schema {str(fields['schema'])[:20]}, this faultrun knows {_SCHEMA}"
        raise Unreadable(what)
    return _checked(fields, base_name(path))


def beside(root: str) -> Path:
    """Where we keep what is about the checkpoints in ``root``: hidden beside it, or in it if it is a mount.

    Not inside of an ordinary folder: some trainers refuse one that is not empty.
    """
    path = Path(root)
    with suppress(OSError):
        if path.stat().st_dev != path.parent.stat().st_dev:
            return path / ".faultrun"
    return path.parent / f".{path.name}.faultrun"


def marks_of(root: str) -> frozenset[str]:
    """The marks on the saves in ``root``; none where there is no list that can be read."""
    with suppress(Unreadable), opened(str(beside(root) / _MARKS_NAME)) as file:
        text = file.read(0, min(file.size_bytes, _MAX_MARKS_BYTES)).decode("ascii", "replace")
        return frozenset(text.splitlines())
    return frozenset()


def mark_of(path: str) -> str:
    """The mark of the save ``path``. Unreadable or OSError when its manifest is gone."""
    with opened(path + SUFFIX) as file:
        data = file.read(0, min(file.size_bytes, _MAX_MARKS_BYTES))
        return f"{sha256(data).hexdigest()} {file.stamp.mtime_ns}"


def mark_finished(roots: Sequence[str], folders: Sequence[str], run_id: str) -> list[str]:
    """Note beside ``roots`` and ``folders`` that the run of the saves of ``run_id`` in them is over.

    In ``folders`` nothing below is looked at. Returns where that could not be noted and why, in words.
    """
    named = {Path(root) for root in roots}
    others = [folder for folder in folders if named.isdisjoint((Path(folder), *Path(folder).parents))]
    found = [_marked(root, walk(root), run_id) for root in roots]
    found += [_marked(folder, islice(walk(folder), 1), run_id) for folder in others]
    return [trouble for trouble in found if trouble]


def _checked(fields: dict[str, Any], name: str) -> Manifest:
    for text in ("path", "digest", "run_id", "node"):
        if not isinstance(fields.setdefault(text, ""), str):
            raise Unreadable(f"its manifest has no usable {text}")
    if base_name(fields["path"]) != name:
        raise Unreadable(f"its manifest is of {fields['path'][:80]!r}")
    if not _DIGEST.fullmatch(fields["digest"]):
        raise Unreadable("its manifest has a digest of an unknown kind")
    group = fields.get("replica_group", [])
    if not isinstance(group, list) or len(group) > _MAX_GROUP or not all(map(_is_count, group)):
        raise Unreadable("its manifest has a replica_group that is no list of ranks")
    optional = [one for one in ("epoch", "step_in_epoch") if fields.setdefault(one, None) is not None]
    for number in (*optional, "step", "world_size", "rank", "size_bytes", "incarnation"):
        if not _is_count(fields.get(number)):
            raise Unreadable(f"its manifest has no usable {number}")
    if fields["rank"] >= fields["world_size"]:
        raise Unreadable(f"its manifest is of rank {fields['rank']} among {fields['world_size']}")
    if (kind := fields.get("kind", Kind.GASP.value)) not in [one.value for one in Kind]:
        raise Unreadable("its manifest names an unknown kind")
    fields |= {"kind": Kind(kind), "replica_group": tuple(sorted(set(group)))}
    fields["files"] = _files(fields) if fields.get("files") is not None else None
    return Manifest(**{one: fields[one] for one in Manifest.__slots__})


def _files(fields: dict[str, Any]) -> dict[str, FilePart]:
    """The list of a folder's files, checked: it is complete, and names nothing outside of the folder."""
    if not isinstance((told := fields["files"]), dict) or not told:
        raise Unreadable("its manifest has a list of files that is none")
    files = {}
    for name, one in told.items():
        inside = len(name) <= _MAX_NAME and "\0" not in name and not {"", ".", ".."} & set(name.split("/"))
        part: dict[str, Any] = one if isinstance(one, dict) else {}
        if (
            not inside
            or not _is_count(part.get("size_bytes"))
            or not _DIGEST.fullmatch(str(part.get("digest")))
        ):
            raise Unreadable(f"its manifest says impossible things of a file {shown(name[:80])}")
        files[name] = FilePart(size_bytes=part["size_bytes"], digest=str(part["digest"]))
    if fields["digest"] not in ("", folder_digest(files)):
        raise Unreadable("its manifest's list of files is not the one that was written")
    return files


def folder_digest(files: Mapping[str, FilePart]) -> str:
    """The digest of a folder with these files; see the module's text."""
    lines = sorted(f"{name} {part.size_bytes} {part.digest}\n" for name, part in files.items())
    return f"crc32:{zlib.crc32(''.join(lines).encode('utf-8', 'surrogateescape')):08x}"


def _verdict(path: str, part: FilePart, look: Look) -> Verdict:
    """Whether the file ``path`` is as its manifest says. May raise Unreadable."""
    with opened(path, look.meter) as file:
        if file.size_bytes != part.size_bytes:
            why = f"has {file.size_bytes} bytes, its manifest says {part.size_bytes}"
            return Verdict(whole=False, why=why, depth=Depth.STRUCTURE)
        if look.depth is not Depth.CHECKSUM or not part.digest:
            return Verdict(whole=True, why="as long as its manifest says", depth=Depth.STRUCTURE)
        if digest_matches(file, part.digest):
            why = "matches the digest in its manifest"
            return Verdict(whole=True, why=why, depth=Depth.CHECKSUM, digest=part.digest)
    why = "its bytes do not match the digest in its manifest"
    return Verdict(whole=False, why=why, depth=Depth.CHECKSUM)


def _other_names(folder: str, files: Mapping[str, FilePart]) -> str:
    """What in ``folder`` is missing or was not there when it was saved, in words; '' when nothing is."""
    there = set()
    for place, directories, names in os.walk(folder):
        below = place[len(folder) + 1 :]
        directories[:] = [name for name in directories if not name.startswith(".")]
        there |= {f"{below}/{name}" if below else name for name in names if not name.startswith(".")}
    if missing := next((name for name in files if name not in there and "/." not in f"/{name}"), ""):
        return f"it has no {shown(missing)}, which its manifest lists"
    extra = next((name for name in sorted(there) if name not in files), "")
    return f"it has {shown(extra)}, which its manifest does not list" if extra else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _marked(root: str, listings: Iterable[Listing | Refusal], run_id: str) -> str:
    """Mark those under one root; why that was not possible, or ''."""
    try:
        if marks := {mark_of(path) for path in _saves_of(run_id, listings)}:
            beside(root).mkdir(exist_ok=True)
            lines = (f"{one}\n" for one in sorted(marks | marks_of(root)))
            replace_durably(beside(root) / _MARKS_NAME, "".join(lines).encode("ascii"))
    except (OSError, Unreadable) as error:
        return f"{root}: {error}"
    return ""


def _saves_of(run_id: str, listings: Iterable[Listing | Refusal]) -> Iterator[str]:
    for listing in listings:
        if isinstance(listing, Refusal):
            continue
        for claim in GASP_MANIFEST.claim(listing):
            with suppress(Unreadable):
                if read_manifest(claim.path).run_id == run_id:
                    yield claim.path
