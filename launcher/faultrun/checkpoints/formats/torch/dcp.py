"""Directories of ``torch.distributed.checkpoint``: ``.metadata`` and shards ``__R_N.distcp``.

``.metadata`` is a pickle, written last, that says for each piece of each tensor in which shard it lies, from
where, and how long it is. Each piece is a ``torch.save`` archive of its own with checksums, so a shard can be
proved whole to the last byte. Pieces named ``step`` or ``epoch`` hold plain numbers.

Lightning and Fabric put ``meta.pt`` beside them, a file of ``torch.save`` with epoch and step,
after ``.metadata``: it belongs to the checkpoint. torchtitan's last save and an export hold the model
alone; where others of the series hold an optimizer too, training cannot go on from it.

The world size is not reported: such a checkpoint loads into any.
Sources: ``torch/distributed/checkpoint/metadata.py`` and ``filesystem.py`` (torch 2.13),
``pytorch/strategies/fsdp.py`` and ``model_parallel.py`` of Lightning 2.6,
``components/checkpointer/dcp.py`` of torchtitan 0.3.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.formats.torch.pickle_reader import TooLong, peek_file
from faultrun.checkpoints.formats.torch.pickle_values import Instance, Table, Value
from faultrun.checkpoints.formats.torch.saved_file import TORCH_FILE
from faultrun.checkpoints.formats.torch.zip_archive import MAGIC, peek_zip, scalar_in, verify_zip
from faultrun.checkpoints.names import (
    base_name,
    claim_directory,
    is_dcp_part,
    is_progress,
    shown,
    with_progress,
)
from faultrun.checkpoints.reading import OpenFile, names_in, opened, within
from faultrun.model.checkpoint import Depth, Entry, Verdict

METADATA = ".metadata"
LIGHTNING = "meta.pt"
"""What Lightning writes last into its sharded checkpoints."""

MAX_METADATA_INSTRUCTIONS = 6_000_000
"""About 120,000 pieces and four seconds."""

_SHARD = re.compile(r"__(\d+)_(\d+)\.distcp")
_PICKLE = b"\x80"
_OPTIMIZER = re.compile(r"(?:^|\.)optim")
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

    @property
    def of_optimizer(self) -> bool:
        """``optim.state...``, ``optimizer_0...``, ``app.optimizer...``."""
        return _OPTIMIZER.search(self.name) is not None

    @property
    def updates(self) -> bool:
        """Whether it is where an optimizer of Adam's family counts its updates."""
        return self.of_optimizer and self.name.endswith(".step")


class TorchDcp:
    """One directory written by ``torch.distributed.checkpoint.save``."""

    name = "torch-dcp"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim the directory when there are shards in it, or the list of those that were."""
        shards = [name for name in listing.files if _SHARD.fullmatch(name)]
        listed = listing.files.get(METADATA)
        if not (shards or (listed and listed.size_bytes)):
            return
        first = [name for name in (METADATA, LIGHTNING) if name in listing.files]
        claim = claim_directory(listing, (*first, *sorted(shards)))
        unfinished = ""
        if METADATA not in first:
            unfinished = f"it has no {METADATA}, which is written last: the save was not finished"
        elif listing.path.endswith(".ckpt") and LIGHTNING not in first:
            unfinished = f"it has no {LIGHTNING}, which Lightning writes last: the save was not finished"
        elif is_dcp_part(base_name(listing.path)):
            unfinished = "it is a part of a checkpoint whose other files were not written"
        yield replace(claim, rank=None, epoch=None, unfinished=unfinished)

    def read(self, entry: Entry) -> Entry:
        """Take step and epoch out of ``meta.pt`` or pieces of these names, else what the optimizer counts."""
        try:
            pieces = _read_pieces(entry.path)
        except TooLong:
            return entry
        short = [one for one in pieces if one.size_bytes < _LARGEST_COUNT_BYTES and not one.transformed]
        counts: list[tuple[str, Value]] = []
        for piece in short:
            if is_progress(piece.name):
                with opened(f"{entry.path}/{piece.shard}") as shard:
                    counts.append((piece.name, peek_zip(shard.part(piece.offset, piece.size_bytes)).value))
        told = with_progress(entry, counts)
        if LIGHTNING in names_in(entry.path):
            with within(LIGHTNING):
                told = TORCH_FILE.read(replace(told, path=f"{entry.path}/{LIGHTNING}"))
            told = replace(told, path=entry.path)
        updates = next((one for one in short if one.updates), None)
        if told.global_step is not None or updates is None:
            return told
        with opened(f"{entry.path}/{updates.shard}") as shard:
            part = shard.part(updates.offset, updates.size_bytes)
            return replace(told, global_step=scalar_in(part, peek_zip(part)))

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Prove that every shard is there and long enough, and every piece right by its checksums."""
        pieces = _read_pieces(entry.path)
        by_shard: dict[str, list[_Piece]] = {}
        for piece in pieces:
            by_shard.setdefault(piece.shard, []).append(piece)
        proved = look.depth is Depth.CHECKSUM
        written: dict[str, int] = {}
        for shard in sorted(by_shard):
            with within(f"shard {shard}"), opened(f"{entry.path}/{shard}", look.meter) as file:
                written[shard] = file.stamp.mtime_ns
                proved &= _verify_shard(file, by_shard[shard], look.depth)
        if LIGHTNING in names_in(entry.path):
            with within(LIGHTNING):
                verdict = TORCH_FILE.verify(replace(entry, path=f"{entry.path}/{LIGHTNING}"), look)
            proved &= verdict.depth is Depth.CHECKSUM
        _check_one_save(entry.path, written)
        if lacking := _less_than(look.siblings, entry.path, pieces):
            return Verdict(whole=False, why=lacking, depth=Depth.STRUCTURE, provisional=True)
        why = f"{len(pieces)} pieces in {len(by_shard)} shards complete"
        why += ", all checksums right" if proved else ""
        depth = Depth.CHECKSUM if proved else Depth.STRUCTURE
        alone = not look.siblings and not any(one.of_optimizer for one in pieces)
        return Verdict(whole=True, why=why, depth=depth, provisional=alone)


def _less_than(siblings: Sequence[Entry], path: str, pieces: list[_Piece]) -> str:
    """What another checkpoint of the series holds and this one does not: ``meta.pt``, an optimizer."""
    has_optimizer, has_meta = any(one.of_optimizer for one in pieces), LIGHTNING in names_in(path)
    for sibling in siblings:
        with suppress(Unreadable):
            if not has_meta and LIGHTNING in names_in(sibling.path):
                return f"it has no {LIGHTNING}, which {base_name(sibling.path)} has"
            if not has_optimizer and any(one.of_optimizer for one in _read_pieces(sibling.path)):
                return f"it holds the model alone, {base_name(sibling.path)} an optimizer too"
    return ""


def _verify_shard(file: OpenFile, pieces: list[_Piece], depth: Depth) -> bool:
    """Return whether the checksum of every piece was checked. Raises Unreadable for a damaged one."""
    needed = max(piece.offset + piece.size_bytes for piece in pieces)
    if needed > file.size_bytes:
        raise Unreadable(f"is cut: {needed} bytes are needed, {file.size_bytes} are there")
    if depth is not Depth.CHECKSUM:
        return False
    proved = True
    for piece in pieces:
        head = b"" if piece.transformed else file.read(piece.offset, min(len(MAGIC), piece.size_bytes))
        if piece.transformed or head.startswith(_PICKLE):  # torch.save before torch 1.6, or asked for that
            proved = False
            continue
        if head != MAGIC:
            raise Unreadable(f"is damaged at {shown(piece.name)}: nothing that torch.save writes begins so")
        try:
            verdict = verify_zip(file.part(piece.offset, piece.size_bytes), depth)
        except Unreadable as damaged:
            raise Unreadable(f"is damaged at {shown(piece.name)}: {damaged.why}") from damaged
        proved &= verdict.depth is Depth.CHECKSUM
    return proved


def _check_one_save(path: str, written: dict[str, int]) -> None:
    """Refuse a mixture: some files from the save that wrote ``.metadata``, some from a later one, cut short.

    Lightning saves ``last.ckpt`` into the same directory each time. All shards newer than
    ``.metadata`` is a copy, or a save that lacks only the last step; both are consistent.
    """
    with opened(f"{path}/{METADATA}") as file:
        finished_at = file.stamp.mtime_ns
    newer = [shard for shard, at in written.items() if at > finished_at + _SAME_SAVE_NS]
    if newer and len(newer) < len(written):
        raise Unreadable(
            f"its shard {min(newer)} is newer than its {METADATA}, others are older: a later save into the "
            "same directory was not finished (or it was copied without the files' times)"
        )
    if LIGHTNING not in names_in(path):
        return
    with opened(f"{path}/{LIGHTNING}") as file:
        written_at = file.stamp.mtime_ns
    if written_at < finished_at - _SAME_SAVE_NS:
        raise Unreadable(f"its {LIGHTNING} is older than its {METADATA}: a later save was not finished")


def _read_pieces(path: str) -> list[_Piece]:
    with within(METADATA):
        with opened(f"{path}/{METADATA}") as file:
            if file.size_bytes == 0:
                raise Unreadable("is empty")
            if (peeked := peek_file(file, 0, MAX_METADATA_INSTRUCTIONS)).end != file.size_bytes:
                raise Unreadable("goes on after its end")
        state = _state(peeked.value)
        if not isinstance((places := state.get("storage_data")), Table):
            raise Unreadable("is not one of torch.distributed.checkpoint")
        if not (pieces := [_piece(index, place) for index, place in places.items()]):
            raise Unreadable("lists nothing")
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
    raise Unreadable("places a piece where no shard of this directory can be")


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
            raise Unreadable(f"places {found} of {needed} pieces of {shown(str(name))}")


TORCH_DCP = TorchDcp()
