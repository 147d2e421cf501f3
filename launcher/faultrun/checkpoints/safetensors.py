"""``.safetensors`` files of MindSpore and of everybody else, and sets of shards with an index.

MindSpore names them ``prefix[_N]-EPOCH_STEP.safetensors``, keeps ``epoch_num``,
``step_num`` and ``global_step`` as tensors of one number, and with
``crc_check=True`` a checksum in the metadata. Others put texts such as
``{"step": "1200"}`` there, if anything. Shards ``model-00001-of-00003.safetensors``
belong to ``model.safetensors.index.json``, which is written after them; the
set is one checkpoint and its path is the directory.

Sources: ``train/serialization.py`` and ``train/callback/_checkpoint.py`` of
MindSpore; ``save_pretrained`` of Hugging Face transformers.
"""

import math
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.mindspore_ckpt import FORMAT as MINDSPORE
from faultrun.checkpoints.names import rank_of_directory
from faultrun.checkpoints.progress import is_progress, progress_of_items, with_progress
from faultrun.checkpoints.reading import OpenFile, opened
from faultrun.checkpoints.safetensors_header import (
    MAX_HEADER_BYTES,
    Header,
    Tensor,
    parse_object,
    read_header,
)
from faultrun.checkpoints.shown import shown
from faultrun.checkpoints.step_names import epoch_of, global_step_of, kind_of, rank_of, series_of
from faultrun.model.checkpoint import Depth, Entry, Verdict

_SUFFIX = ".safetensors"
_INDEX = ".safetensors.index.json"
_SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}\.safetensors")
_MINDSPORE_NAME = re.compile(
    r"(?P<prefix>.+?)(?:[_-](?P<session>\d+))?-(?P<epoch>\d+)_(?P<step>\d+)\.safetensors"
)
_INTEGERS = frozenset({"I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})
_MOST_ZEROS = 1 << 31


class Safetensors:
    """One file, or one directory of shards with their index."""

    name = "safetensors"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim all shards of a directory as the directory, other files one by one."""
        shards: dict[str, str] = {}
        for name in listing.files:
            shard = _SHARD.fullmatch(name)
            if shard:
                shards[name] = shard["stem"] + _INDEX
            elif name.endswith(_SUFFIX):
                yield _claim_file(listing, name)
        if shards:
            yield _claim_set(listing, shards)

    def read(self, entry: Entry) -> Entry:
        """Take the numbers out of tensors that are named like progress, and out of the metadata."""
        if not entry.path.endswith(_SUFFIX):
            return entry
        with opened(entry.path) as file:
            return with_progress(entry, progress_of_items(_counts(file, read_header(file))))

    def reconcile(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Files named by epoch and step count as MindSpore's others do."""
        return MINDSPORE.reconcile(entries)

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Prove that the tensors fill the file to its end, or that every shard does and none is missing."""
        if not entry.path.endswith(_SUFFIX):
            return _verify_set(entry.path, look)
        with opened(entry.path, look.meter) as file:
            header = read_header(file)
            found = f"{len(header.tensors)} tensors complete"
            expected = header.metadata.get("crc_num")
            if expected is None or look.depth is not Depth.CHECKSUM:
                return Verdict(whole=True, why=found, depth=Depth.STRUCTURE)
            if expected != str(_mindspore_crc(file, header)):
                raise Unreadable("its checksum is wrong")
            return Verdict(whole=True, why=f"{found}, checksum right", depth=Depth.CHECKSUM)


FORMAT = Safetensors()


def _claim_file(listing: Listing, name: str) -> Claim:
    rank = rank_of(name)
    if rank is None:
        rank = rank_of_directory(listing.path)
    found = _MINDSPORE_NAME.fullmatch(name)
    if found is None:
        return Claim(
            path=listing.join(name),
            members=(name,),
            kind=kind_of(name),
            rank=rank,
            epoch=epoch_of(name),
            global_step=global_step_of(name, listing.path),
            series=series_of(name),
        )
    return Claim(
        path=listing.join(name),
        members=(name,),
        rank=rank,
        epoch=int(found["epoch"]),
        step_in_epoch=int(found["step"]),
        series=found["prefix"] + "-",
        session=int(found["session"] or 0),
    )


def _claim_set(listing: Listing, shards: dict[str, str]) -> Claim:
    """``shards`` maps each shard to the index it belongs to."""
    indexes = sorted(set(shards.values()))
    missing = [index for index in indexes if index not in listing.files]
    folder = listing.path.rpartition("/")[2]
    return Claim(
        path=listing.path,
        members=(*(index for index in indexes if index not in missing), *sorted(shards)),
        kind=kind_of(folder),
        rank=rank_of_directory(listing.path),
        epoch=epoch_of(folder),
        global_step=global_step_of("", listing.path),
        series=series_of(folder),
        unfinished=f"it has no {missing[0]}, which is written after the shards" if missing else "",
    )


def _counts(file: OpenFile, header: Header) -> Iterator[tuple[str, int]]:
    for name, text in header.metadata.items():
        if text.isdecimal() and len(text) <= 16:
            yield name, int(text)
    for tensor in header.tensors:
        if tensor.dtype in _INTEGERS and math.prod(tensor.shape) == 1 and is_progress(tensor.name):
            yield tensor.name, _number(file, tensor)


def _number(file: OpenFile, tensor: Tensor) -> int:
    data = file.read(tensor.start, tensor.end - tensor.start)
    return int.from_bytes(data, "little", signed=tensor.dtype.startswith("I"))


def _verify_set(path: str, look: Look) -> Verdict:
    """Check that each index finds each of its tensors in its shard, and each shard is whole."""
    indexes = sorted(name for name in _names_in(path) if name.endswith(_INDEX))
    shards: dict[str, Header] = {}
    for index in indexes:
        for tensor, shard in _weight_map(f"{path}/{index}", look).items():
            if shard not in shards:
                shards[shard] = _shard_header(path, shard, look)
            if tensor not in shards[shard].names:
                raise Unreadable(f"its shard {shown(shard)} lacks {shown(tensor)}")
    if not shards:
        raise Unreadable("it has no index of shards")
    return Verdict(whole=True, why=f"{len(shards)} shards complete", depth=Depth.STRUCTURE)


def _names_in(path: str) -> list[str]:
    try:
        return [child.name for child in Path(path).iterdir()]
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error


def _weight_map(path: str, look: Look) -> dict[str, str]:
    with opened(path, look.meter) as file:
        if file.size_bytes > MAX_HEADER_BYTES:
            raise Unreadable(f"its index has {file.size_bytes} bytes (limit {MAX_HEADER_BYTES})")
        shard_of = parse_object(file.read(0, file.size_bytes)).get("weight_map")
    if isinstance(shard_of, dict) and all(
        isinstance(shard, str) and _SHARD.fullmatch(shard) and "/" not in shard for shard in shard_of.values()
    ):
        return shard_of
    raise Unreadable("its index does not say which shard holds which tensor")


def _shard_header(path: str, shard: str, look: Look) -> Header:
    try:
        with opened(f"{path}/{shard}", look.meter) as file:
            return read_header(file)
    except Unreadable as damaged:
        raise Unreadable(f"its shard {shown(shard)}: {damaged.why}") from damaged


def _mindspore_crc(file: OpenFile, header: Header) -> int:
    """CRC-32 over names and contents in the order of names, as ``save_checkpoint(crc_check=True)`` has it.

    MindSpore passes arrays through ``bytes()``, which makes n zero bytes of an
    integer n without dimensions instead of showing its memory.
    """
    crc = 0
    for tensor in sorted(header.tensors, key=lambda tensor: tensor.name):
        crc = zlib.crc32(tensor.name.encode("utf-8", "surrogatepass"), crc)
        if tensor.shape == () and tensor.dtype in _INTEGERS:
            crc = _crc_of_zeros(_number(file, tensor), crc)
        else:
            for block in file.blocks(tensor.start, tensor.end):
                crc = zlib.crc32(block, crc)
    return crc


def _crc_of_zeros(count: int, crc: int) -> int:
    if not 0 <= count <= _MOST_ZEROS:
        raise Unreadable(f"its checksum cannot be computed over a number like {count}")
    block = bytes(min(count, 1 << 20))
    while count > 0:
        crc = zlib.crc32(block[:count], crc)
        count -= len(block)
    return crc
