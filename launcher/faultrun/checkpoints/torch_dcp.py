"""Directories of ``torch.distributed.checkpoint``: ``.metadata`` and shards ``__R_N.distcp``.

``.metadata`` is a pickle, written last, that says for each piece of each
tensor in which shard it lies, from where, and how long it is. Each piece is a
``torch.save`` archive of its own with checksums, so a shard can be proved
whole to the last byte. Pieces named ``step`` or ``epoch`` hold plain numbers.

The world size is not reported: such a checkpoint loads into any.
Sources: ``torch/distributed/checkpoint/metadata.py`` and ``filesystem.py``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from faultrun.checkpoints.folder_names import is_dcp_part
from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.pickle_machine import TooLong
from faultrun.checkpoints.pickle_peek import peek_file
from faultrun.checkpoints.pickle_values import Instance, Table, Value
from faultrun.checkpoints.progress import is_progress, progress_of_items, with_progress
from faultrun.checkpoints.reading import OpenFile, opened
from faultrun.checkpoints.shown import shown
from faultrun.checkpoints.span import Span
from faultrun.checkpoints.step_names import global_step_of, kind_of, series_of
from faultrun.checkpoints.torch_zip import MAGIC, peek_zip, verify_zip
from faultrun.model.checkpoint import Depth, Entry, Verdict

METADATA = ".metadata"
MAX_INSTRUCTIONS = 6_000_000
"""About 120,000 pieces and two seconds."""

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
        finished = METADATA in listing.files
        folder = listing.path.rpartition("/")[2]
        yield Claim(
            path=listing.path,
            members=(*([METADATA] if finished else []), *sorted(shards)),
            kind=kind_of(folder),
            global_step=global_step_of("", listing.path),
            series=series_of(folder),
            unfinished=_unfinished(folder, finished=finished),
        )

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
                    counts.append((piece.name, peek_zip(Span(shard, piece.offset, piece.size_bytes)).value))
        return with_progress(entry, progress_of_items(counts))

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
        if proved:
            return Verdict(whole=True, why=f"{why}, all checksums right", depth=Depth.CHECKSUM)
        return Verdict(whole=True, why=why, depth=Depth.STRUCTURE)


def _unfinished(folder: str, *, finished: bool) -> str:
    if not finished:
        return f"it has no {METADATA}, which is written last: the save was not finished"
    if is_dcp_part(folder):
        return "it is a part of a checkpoint whose other files were not written"
    return ""


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
            verdict = verify_zip(Span(file, piece.offset, piece.size_bytes), depth)
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
        peeked = peek_file(Span(file), 0, MAX_INSTRUCTIONS)
        if peeked.end != file.size_bytes:
            raise Unreadable(f"its {METADATA} goes on after its end")
    state = peeked.value.state if isinstance(peeked.value, Instance) else None
    places = state.get("storage_data") if isinstance(state, Table) else None
    if not isinstance(state, Table) or not isinstance(places, Table):
        raise Unreadable(f"its {METADATA} is not one of torch.distributed.checkpoint")
    pieces = [_piece(index, place) for index, place in places.items()]
    if not pieces:
        raise Unreadable(f"its {METADATA} lists nothing")
    _check_all_placed(state.get("state_dict_metadata"), pieces)
    return pieces


def _piece(index: Value, place: Value) -> _Piece:
    fields = place.state if isinstance(place, Instance) else None
    key = index.state if isinstance(index, Instance) else None
    if isinstance(fields, Table) and isinstance(key, Table):
        name, shard = key.get("fqn"), fields.get("relative_path")
        offset, size_bytes = fields.get("offset"), fields.get("length")
        transforms = fields.get("transform_descriptors")
        if (
            isinstance(name, str)
            and isinstance(shard, str)
            and _SHARD.fullmatch(shard)  # a plain name of this directory, never a path
            and type(offset) is int
            and type(size_bytes) is int
            and offset >= 0
            and size_bytes >= 0
        ):
            return _Piece(
                name, shard, offset, size_bytes, isinstance(transforms, list | tuple) and bool(transforms)
            )
    raise Unreadable(f"its {METADATA} places a piece where no shard of this directory can be")


def _check_all_placed(described: Value, pieces: list[_Piece]) -> None:
    """Every tensor that is described must be placed, with as many pieces as it is cut into."""
    placed: dict[str, int] = {}
    for piece in pieces:
        placed[piece.name] = placed.get(piece.name, 0) + 1
    for name, details in described.items() if isinstance(described, Table) else ():
        fields = details.state if isinstance(details, Instance) else None
        chunks = fields.get("chunks") if isinstance(fields, Table) else None
        needed = len(chunks) if isinstance(chunks, list) else 1
        found = placed.get(name, 0) if isinstance(name, str) else needed
        if found < needed:
            raise Unreadable(f"its {METADATA} places {found} of {needed} pieces of {shown(str(name))}")


FORMAT = TorchDcp()
