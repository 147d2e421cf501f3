"""``.safetensors`` files of MindSpore and of all others, and sets of shards with an index.

MindSpore names them ``prefix[_N]-EPOCH_STEP.safetensors``, keeps ``epoch_num``, ``step_num`` and
``global_step`` as tensors of one number, and with ``crc_check=True`` a checksum in the metadata. Others put
texts such as ``{"step": "1200"}`` there, if anything. Shards ``model-00001-of-00003.safetensors`` belong to
``model.safetensors.index.json``, which is written after them; the set is one checkpoint and its path is the
directory.

The header is checked against the file's length before it is believed. Eight bytes give the length of a JSON
object: for each tensor its type, shape and the part of the data it occupies, and under ``__metadata__``
texts. The parts must follow one another without gap and end with the file, so a file that is cut anywhere
cannot pass.

Sources: huggingface/safetensors; ``train/serialization.py`` and ``train/callback/_checkpoint.py``
of MindSpore; ``save_pretrained`` of Hugging Face transformers.
"""

import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from faultrun.checkpoints.format import Claim, Foreign, Listing, Look, Unreadable
from faultrun.checkpoints.formats.mindspore.ckpt import MINDSPORE_CKPT
from faultrun.checkpoints.names import claim_directory, claim_file, is_progress, shown, with_progress
from faultrun.checkpoints.reading import OpenFile, alike_with, names_in, opened, read_whole, within
from faultrun.model.checkpoint import Depth, Entry, Verdict

MAX_HEADER_BYTES = 16 << 20
"""About 100,000 tensors. The format allows 100 MB, which no known model needs."""

_SUFFIX, _INDEX = ".safetensors", ".safetensors.index.json"
_SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}\.safetensors")
_NAMED_SHARD = re.compile(r"[^/]+-\d{5}-of-\d{5}\.(?:safetensors|bin)")
_MINDSPORE_NAME = re.compile(
    r"(?P<prefix>.+?)(?:[_-](?P<session>\d+))?-(?P<epoch>\d+)_(?P<step>\d+)\.safetensors"
)
_INTEGERS = frozenset({"I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})
_MOST_ZEROS = 1 << 31
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64, "C128": 128,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tensor:
    """One tensor; ``start`` and ``end`` are offsets in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Header:
    """Tensors in the order of their data, and the texts of the metadata."""

    tensors: tuple[_Tensor, ...]
    metadata: dict[str, str]
    names: frozenset[str]


class Safetensors:
    """One file, or one directory of shards with their index."""

    name = "safetensors"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim all shards of a directory as the directory, other files one by one."""
        shards: dict[str, str] = {}
        for name in listing.files:
            if shard := _SHARD.fullmatch(name):
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
            return with_progress(entry, _counts(file, _read_header(file)))

    def reconcile(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Files named by epoch and step count as MindSpore's others do."""
        return MINDSPORE_CKPT.reconcile(entries)

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Prove that the tensors fill the file to its end, or that every shard does and none is missing."""
        if not entry.path.endswith(_SUFFIX):
            return _verify_set(entry.path, look)
        with opened(entry.path, look.meter) as file:
            header = _read_header(file)
            found = f"{len(header.tensors)} tensors complete"
            if (expected := header.metadata.get("crc_num")) is None or look.depth is not Depth.CHECKSUM:
                return Verdict(whole=True, why=found, depth=Depth.STRUCTURE)
            if expected != str(_mindspore_crc(file, header)):
                raise Unreadable("its checksum is wrong")
            return Verdict(whole=True, why=f"{found}, checksum right", depth=Depth.CHECKSUM)


SAFETENSORS = Safetensors()


def _claim_file(listing: Listing, name: str) -> Claim:
    claim = claim_file(listing, name)
    if (found := _MINDSPORE_NAME.fullmatch(name)) is None:
        return claim
    return Claim(
        path=claim.path,
        members=claim.members,
        rank=claim.rank,
        epoch=int(found["epoch"]),
        step_in_epoch=int(found["step"]),
        series=found["prefix"] + "-",
        session=int(found["session"] or 0),
    )


def _claim_set(listing: Listing, shards: dict[str, str]) -> Claim:
    """``shards`` maps each shard to the index it belongs to."""
    indexes = sorted(set(shards.values()))
    missing = [index for index in indexes if index not in listing.files]
    there = [index for index in indexes if index in listing.files]
    unfinished = f"it has no {missing[0]}, which is written after the shards" if missing else ""
    return replace(claim_directory(listing, (*there, *sorted(shards))), unfinished=unfinished)


def _counts(file: OpenFile, header: _Header) -> Iterator[tuple[str, int]]:
    for name, text in header.metadata.items():
        if text.isdecimal() and len(text) <= 16:
            yield name, int(text)
    for tensor in header.tensors:
        if tensor.dtype in _INTEGERS and math.prod(tensor.shape) == 1 and is_progress(tensor.name):
            yield tensor.name, _number(file, tensor)


def _number(file: OpenFile, tensor: _Tensor) -> int:
    data = file.read(tensor.start, tensor.end - tensor.start)
    return int.from_bytes(data, "little", signed=tensor.dtype.startswith("I"))


def _verify_set(path: str, look: Look) -> Verdict:
    """Check that each index finds each of its tensors in its shard, and each shard is whole."""
    indexes = [name for name in names_in(path) if name.endswith(_INDEX)]
    if not (count := sum(verify_index(path, index, look) for index in indexes)):
        raise Unreadable("it has no index of shards")
    full = alike_with(path, ".metadata")  # torchtitan exports its last step so
    if full:
        why = f"it holds the model alone, {shown(full)} an optimizer too"
        return Verdict(whole=False, why=why, depth=Depth.STRUCTURE, provisional=True)
    return Verdict(whole=True, why=f"{count} shards complete", depth=Depth.STRUCTURE, provisional=True)


def verify_index(path: str, index: str, look: Look) -> int:
    """How many shards the ``index`` in directory ``path`` names. Raises Unreadable if a tensor is missing.

    Of shards that are no safetensors (``pytorch_model.bin.index.json``) only the list is read.
    """
    shards: dict[str, _Header] = {}
    for tensor, shard in _weight_map(path, index, look).items():
        if index.endswith(_INDEX):
            if shard not in shards:
                with within(f"shard {shard}"), opened(f"{path}/{shard}", look.meter) as file:
                    shards[shard] = _read_header(file)
            if tensor not in shards[shard].names:
                raise Unreadable(f"its shard {shown(shard)} lacks {shown(tensor)}")
    return len(shards)


def _weight_map(path: str, index: str, look: Look) -> dict[str, str]:
    with within(index):
        try:
            shard_of = json.loads(read_whole(f"{path}/{index}", MAX_HEADER_BYTES, look.meter))["weight_map"]
        except (ValueError, RecursionError, TypeError, KeyError) as damaged:
            raise Unreadable("is torn: not JSON with a weight_map") from damaged
        if isinstance(shard_of, dict) and all(
            isinstance(shard, str) and _NAMED_SHARD.fullmatch(shard) for shard in shard_of.values()
        ):
            return shard_of
        raise Unreadable("does not say which shard holds which tensor")


def _read_header(file: OpenFile) -> _Header:
    """Read and check the header. Raises Foreign if there is none, Unreadable if it does not fit the file."""
    if file.size_bytes == 0:
        raise Unreadable("it is empty")
    length = int.from_bytes(file.read(0, 8), "little")
    if length > MAX_HEADER_BYTES and length <= file.size_bytes - 8:
        raise Unreadable(f"its header has {length} bytes (limit {MAX_HEADER_BYTES})")
    if length > MAX_HEADER_BYTES or length < 2:
        raise Foreign("it does not start with the length of a header")
    if not (text := file.read(8, length)).startswith(b"{"):
        raise Foreign("its header is not JSON")
    members = _parse_object(text)
    metadata = members.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Unreadable("its metadata are not texts")
    every = (_tensor(name, fields, 8 + length) for name, fields in members.items())
    tensors = sorted(every, key=lambda tensor: (tensor.start, tensor.end))
    end = 8 + length
    for tensor in tensors:
        if tensor.start != end:
            raise Unreadable(f"there is a gap or an overlap before its tensor {shown(tensor.name)}")
        end = tensor.end
    if end != file.size_bytes:
        raise Unreadable(f"its tensors end at byte {end}, the file at byte {file.size_bytes}")
    return _Header(tensors=tuple(tensors), metadata=metadata, names=frozenset(members))


def _parse_object(text: bytes) -> dict[str, object]:
    """Parse a JSON object that another program wrote. Raises Unreadable; no name may come twice."""
    try:
        return {
            **json.loads(text, object_pairs_hook=_distinct, parse_int=_short_int, parse_constant=_no_constant)
        }
    except (TypeError, ValueError, RecursionError) as error:
        raise Unreadable("its header is damaged") from error


def _tensor(name: str, fields: object, data_at: int) -> _Tensor:
    if isinstance(fields, dict):
        dtype, shape, part = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
        if isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(part) and len(part) == 2:
            start, end = part
            bits = _BITS.get(dtype)
            if start > end or (bits is not None and (end - start) * 8 != math.prod(shape) * bits):
                what = f"its tensor {shown(name)} has {end - start} bytes, which do not fit its shape"
                raise Unreadable(what)
            return _Tensor(name, dtype, tuple(shape), data_at + start, data_at + end)
    raise Unreadable(f"its tensor {shown(name)} is not described")


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    """A list of a few integers that are not negative; 64 is as many dimensions as any framework has."""
    return (
        isinstance(value, list)
        and len(value) <= 64
        and all(type(number) is int and 0 <= number < 2**53 for number in value)
    )


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(members := dict(pairs)) != len(pairs):
        raise ValueError
    return members


def _short_int(text: str) -> int:
    if len(text) > 20:
        raise ValueError
    return int(text)


def _no_constant(_text: str) -> None:
    raise ValueError


def _mindspore_crc(file: OpenFile, header: _Header) -> int:
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
