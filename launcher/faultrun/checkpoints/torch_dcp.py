"""Directories of ``torch.distributed.checkpoint``: ``.metadata`` and shards ``__R_N.distcp``.

``.metadata`` is a pickle, written last, that says for each piece of each
tensor in which shard it lies, from where, and how long it is. Each piece is a
``torch.save`` archive of its own with checksums, so a shard can be proved
whole to the last byte. Pieces named ``step`` or ``epoch`` hold plain numbers.

The world size is not reported: such a checkpoint loads into any.
Sources: ``torch/distributed/checkpoint/metadata.py`` and ``filesystem.py``.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.names import (
    base_name,
    claim_directory,
    is_dcp_part,
    is_progress,
    shown,
    with_progress,
)
from faultrun.checkpoints.pickle_peek import Instance, Table, TooLong, Value, peek_file
from faultrun.checkpoints.reading import OpenFile, opened
from faultrun.checkpoints.torch_zip import MAGIC, peek_zip, verify_zip
from faultrun.model.checkpoint import Depth, Entry, Verdict

METADATA = ".metadata"
MAX_METADATA_INSTRUCTIONS = 6_000_000
"""About 120,000 pieces and four seconds."""

_SHARD = re.compile(r"__(\d+)_(\d+)\.distcp")
_LARGEST_COUNT_BYTES = 4096
_SAME_SAVE_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class _Piece:
    """Where one piece of one tensor or object lies."""

    name: str
    shard: str
    offset: int
    size_bytes: int
    transformed: bool


class TorchDcp:
    """One directory written by ``torch.distributed.checkpoint.save``."""

    name = "torch-dcp"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim the directory when there are shards in it."""
        shards = [name for name in listing.files if _SHARD.fullmatch(name)]
        if not shards:
            return
        metadata = [METADATA] if METADATA in listing.files else []
        claim = claim_directory(listing, (*metadata, *sorted(shards)))
        unfinished = ""
        if not metadata:
            unfinished = f"it has no {METADATA}, which is written last: the save was not finished"
        elif is_dcp_part(base_name(listing.path)):
            unfinished = "it is a part of a checkpoint whose other files were not written"
        yield replace(claim, rank=None, epoch=None, unfinished=unfinished)

    def read(self, entry: Entry) -> Entry:
        """Take step and epoch out of the pieces of these names."""
        try:
            pieces = _read_pieces(entry.path)
        except TooLong:
            return entry
        counts: list[tuple[str, Value]] = []
        for piece in pieces:
            if piece.size_bytes < _LARGEST_COUNT_BYTES and not piece.transformed and is_progress(piece.name):
                with opened(f"{entry.path}/{piece.shard}") as shard:
                    counts.append((piece.name, peek_zip(shard.part(piece.offset, piece.size_bytes)).value))
        return with_progress(entry, counts)

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Prove that every shard is there and long enough, and every piece right by its checksums."""
        pieces = _read_pieces(entry.path)
        by_shard: dict[str, list[_Piece]] = {}
        for piece in pieces:
            by_shard.setdefault(piece.shard, []).append(piece)
        proved = look.depth is Depth.CHECKSUM
        written: dict[str, int] = {}
        for shard in sorted(by_shard):
            with opened(f"{entry.path}/{shard}", look.meter) as file:
                written[shard] = file.stamp.mtime_ns
                proved &= _verify_shard(file, shard, by_shard[shard], look.depth)
        _check_one_save(entry.path, written)
        why = f"{len(pieces)} pieces in {len(by_shard)} shards complete"
        why += ", all checksums right" if proved else ""
        return Verdict(whole=True, why=why, depth=Depth.CHECKSUM if proved else Depth.STRUCTURE)


def _verify_shard(file: OpenFile, shard: str, pieces: list[_Piece], depth: Depth) -> bool:
    """Return whether the checksum of every piece was checked. Raises Unreadable for a damaged one."""
    needed = max(piece.offset + piece.size_bytes for piece in pieces)
    if needed > file.size_bytes:
        raise Unreadable(f"its shard {shard} is cut: {needed} bytes are needed, {file.size_bytes} are there")
    if depth is not Depth.CHECKSUM:
        return False
    proved = True
    for piece in pieces:
        if piece.transformed or file.read(piece.offset, min(4, piece.size_bytes)) != MAGIC:
            proved = False
            continue
        try:
            verdict = verify_zip(file.part(piece.offset, piece.size_bytes), depth)
        except Unreadable as damaged:
            raise Unreadable(
                f"its shard {shard} is damaged at {shown(piece.name)}: {damaged.why}"
            ) from damaged
        proved &= verdict.depth is Depth.CHECKSUM
    return proved


def _check_one_save(path: str, written: dict[str, int]) -> None:
    """Refuse a mixture: some shards from the save that wrote ``.metadata``, some from a later one, cut short.

    All shards newer than ``.metadata`` is a copy, or a save that lacks only
    the last step; both are consistent.
    """
    with opened(f"{path}/{METADATA}") as file:
        finished_at = file.stamp.mtime_ns
    newer = [shard for shard, at in written.items() if at > finished_at + _SAME_SAVE_NS]
    if newer and len(newer) < len(written):
        raise Unreadable(
            f"its shard {min(newer)} is newer than its {METADATA}, others are older: a later save into the "
            "same directory was not finished (or it was copied without the files' times)"
        )


def _read_pieces(path: str) -> list[_Piece]:
    with opened(f"{path}/{METADATA}") as file:
        if file.size_bytes == 0:
            raise Unreadable(f"its {METADATA} is empty")
        peeked = peek_file(file, 0, MAX_METADATA_INSTRUCTIONS)
        if peeked.end != file.size_bytes:
            raise Unreadable(f"its {METADATA} goes on after its end")
    state = _state(peeked.value)
    places = state.get("storage_data")
    if not isinstance(places, Table):
        raise Unreadable(f"its {METADATA} is not one of torch.distributed.checkpoint")
    pieces = [_piece(index, place) for index, place in places.items()]
    if not pieces:
        raise Unreadable(f"its {METADATA} lists nothing")
    _check_all_placed(state.get("state_dict_metadata"), pieces)
    return pieces


def _piece(index: Value, place: Value) -> _Piece:
    fields, key = _state(place), _state(index)
    match (key.get("fqn"), *map(fields.get, ("relative_path", "offset", "length"))):
        case (str(name), str(shard), int(offset), int(size_bytes)) if min(offset, size_bytes) >= 0:
            plain = bool not in (type(offset), type(size_bytes))
            if plain and _SHARD.fullmatch(shard):  # a name of this directory, never a path
                transforms = fields.get("transform_descriptors")
                transformed = isinstance(transforms, list | tuple) and bool(transforms)
                return _Piece(name, shard, offset, size_bytes, transformed)
    raise Unreadable(f"its {METADATA} places a piece where no shard of this directory can be")


def _state(value: Value) -> Table:
    """The attributes of an object, none if it is not one."""
    if isinstance(value, Instance) and isinstance(value.state, Table):
        return value.state
    return Table()


def _check_all_placed(described: Value, pieces: list[_Piece]) -> None:
    """Every tensor that is described must be placed, with as many pieces as it is cut into."""
    placed = Counter(piece.name for piece in pieces)
    for name, details in described.items() if isinstance(described, Table) else ():
        chunks = _state(details).get("chunks")
        needed = len(chunks) if isinstance(chunks, list) else 1
        found = placed[name] if isinstance(name, str) else needed
        if found < needed:
            raise Unreadable(f"its {METADATA} places {found} of {needed} pieces of {shown(str(name))}")


TORCH_DCP = TorchDcp()
