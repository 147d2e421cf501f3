"""TensorFlow checkpoints: ``prefix.index`` and ``prefix.data-00000-of-0000N``, known by their prefix.

There is no file of the name ``prefix``, but it is what TensorFlow wants to be told. The data files are moved
into place first and the index last, so an index says that the save was finished; it also says how long each
data file must be. ``prefix_temp`` directories are saves that were not finished. The text file ``checkpoint``
beside them names the latest for TensorFlow's own use; nothing here depends on it, as it may be older than the
files.

The number in ``model.ckpt-1000`` is the global step; that in the ``ckpt-5`` of
a CheckpointManager counts saves. A variable ``global_step`` or ``step``, or the
optimizer's count of iterations, is believed before either.

Sources: ``tensorflow/core/util/tensor_bundle/tensor_bundle.cc``,
``python/checkpoint/checkpoint_management.py``.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import replace

from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.formats.tensorflow_index import Index, Placed, crc32c, masked, read_index
from faultrun.checkpoints.names import (
    base_name,
    claim_file,
    is_progress,
    rank_of_directory,
    shown,
    with_progress,
)
from faultrun.checkpoints.reading import OpenFile, opened
from faultrun.model.checkpoint import Depth, Entry, Verdict
from faultrun.text.protobuf import WireError, varint

MAX_CHECKED_BYTES = 4 << 20
"""Tensors in all up to this are checked by checksum; plain Python takes half a second for them."""

_DATA = re.compile(r"(?P<prefix>.+)\.data-(?P<shard>\d{5})-of-(?P<shards>\d{5})")
_NUMBER = re.compile(r"[-_](\d{1,15})$")
_ATTRIBUTE = "/.ATTRIBUTES/VARIABLE_VALUE"
_ITERATIONS = re.compile(r"(?:.*/)?(?:\w*optimizer|opt)/(?:iter|iterations|_iterations)")
_INTEGERS = {3: 4, 9: 8}
"""DT_INT32 and DT_INT64: bytes of one."""

_STRING = 7
_OWN_RULES = frozenset({20, 21})
"""DT_RESOURCE and DT_VARIANT."""


class TensorFlow:
    """One prefix: its index and all its data files."""

    name = "tensorflow"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim prefixes with an index, and data files that have none."""
        data: dict[str, list[str]] = {}
        for name in listing.files:
            if found := _DATA.fullmatch(name):
                data.setdefault(found["prefix"], []).append(name)
        for prefix in sorted(data):
            yield _claim(listing, prefix, sorted(data[prefix]))

    def read(self, entry: Entry) -> Entry:
        """Take the step out of variables of one integer that are named like one."""
        with opened(f"{entry.path}.index") as file:
            index = read_index(file)
        counts: list[tuple[str, int]] = []
        iterations: list[tuple[str, int]] = []
        for tensor in index.tensors:
            name = tensor.key.decode("utf-8", "replace").removesuffix(_ATTRIBUTE)
            if tensor.size_bytes != _INTEGERS.get(tensor.dtype):
                continue
            if is_progress(name):
                counts.append((name, _number(entry, index, tensor)))
            elif _ITERATIONS.fullmatch(name):
                iterations.append(("iterations", _number(entry, index, tensor)))
        return with_progress(entry, [*iterations, *counts])

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Prove the index by its checksums, and the data files by their length; small tensors by checksum."""
        with opened(f"{entry.path}.index", look.meter) as file:
            index = read_index(file)
        by_shard: dict[int, list[Placed]] = {shard: [] for shard in range(index.shards)}
        for tensor in index.tensors:
            by_shard[tensor.shard].append(tensor)
        total = sum(tensor.size_bytes for tensor in index.tensors)
        deep = look.depth is Depth.CHECKSUM and total <= MAX_CHECKED_BYTES
        for shard, tensors in by_shard.items():
            path = _data_path(entry, shard, index)
            name = base_name(path)
            with opened(path, look.meter) as file:
                _check_length(file, name, tensors)
                deep = deep and _check_contents(file, name, tensors)
        found = f"{len(index.tensors)} tensors in {index.shards} data files complete"
        why = f"{found}, all checksums right" if deep else f"{found}, by their length"
        return Verdict(whole=True, why=why, depth=Depth.CHECKSUM if deep else Depth.STRUCTURE)


TENSORFLOW = TensorFlow()


def _claim(listing: Listing, prefix: str, data: list[str]) -> Claim:
    index = f"{prefix}.index"
    number = _NUMBER.search(prefix)
    unfinished = ""
    if listing.path.endswith("_temp"):
        unfinished = f"its directory {base_name(listing.path)} ends in _temp: the save was not finished"
    elif index not in listing.files:
        unfinished = f"it has no {index}, which is written last: the save was not finished"
    members = (*([index] if index in listing.files else []), *data)
    rank, step = rank_of_directory(listing.path), int(number[1]) if number else None
    return replace(claim_file(listing, prefix, *members), rank=rank, global_step=step, unfinished=unfinished)


def _data_path(entry: Entry, shard: int, index: Index) -> str:
    return f"{entry.path}.data-{shard:05}-of-{index.shards:05}"


def _number(entry: Entry, index: Index, tensor: Placed) -> int:
    with opened(_data_path(entry, tensor.shard, index)) as file:
        return int.from_bytes(file.read(tensor.offset, tensor.size_bytes), "little", signed=True)


def _check_length(file: OpenFile, name: str, tensors: list[Placed]) -> None:
    needed = max((tensor.offset + tensor.size_bytes for tensor in tensors), default=0)
    if file.size_bytes < needed:
        raise Unreadable(f"its {shown(name)} is cut: {needed} bytes are needed, {file.size_bytes} are there")
    if file.size_bytes > needed:
        what = f"its {shown(name)} has {file.size_bytes} bytes, its index knows of {needed}: of two saves"
        raise Unreadable(what)


def _check_contents(file: OpenFile, name: str, tensors: list[Placed]) -> bool:
    """Return whether every tensor had a checksum that can be computed. Raises Unreadable for a wrong one."""
    checked = True
    for tensor in tensors:
        if tensor.size_bytes == 0:
            continue  # of a tensor in slices, each of which has its own entry
        if (crc := _checksum(tensor, file.read(tensor.offset, tensor.size_bytes))) is None:
            checked = False
        elif masked(crc) != tensor.crc:
            key = tensor.key.decode("utf-8", "replace").removesuffix(_ATTRIBUTE)
            raise Unreadable(f"the checksum of {shown(key)} in its {shown(name)} is wrong")
    return checked


def _checksum(tensor: Placed, data: bytes) -> int | None:
    """The CRC of one tensor; None for the kinds that have their own rules.

    Texts are stored as lengths, a checksum of them, and the texts; in their
    checksum each length counts as four bytes (``WriteStringTensor``).
    """
    if tensor.dtype in _OWN_RULES:
        return None
    if tensor.dtype != _STRING:
        return crc32c(data)
    lengths: list[int] = []
    position = 0
    try:
        while len(lengths) < tensor.elements:
            length, position = varint(data, position)
            lengths.append(length)
    except WireError as damage:
        raise Unreadable(f"the lengths of its texts are damaged: {damage}") from damage
    if any(length > 0xFFFFFFFF for length in lengths):
        return None
    return crc32c(data[position:], crc32c(struct.pack(f"<{len(lengths)}I", *lengths)))
