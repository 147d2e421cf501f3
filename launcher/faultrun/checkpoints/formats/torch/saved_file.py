"""Files of ``torch.save``: which names are theirs, and which of the two layouts is inside.

Names: ``*.pt *.pth *.pth.tar``, with Lightning ``*.ckpt``, others if they begin so. The layout shows there:
since 1.6 that of ``zip_archive``; before it (and with ``_use_new_zipfile_serialization=False``) five pickles
and then the storages. ``rank*/model_best.pth.tar`` is kind BEST: written when the accuracy rose, so there may
be newer training than in it. An optimizer's or a scheduler's file is none: ``folder`` knows them.

The five pickles are a magic number, the protocol version, a dict about the machine, the saved object, and the
list of storage keys. After them comes, for each key in that order, the number of elements (8 bytes) and the
elements. There is no checksum, but every length is known, so a cut shows. Source: ``torch/serialization.py``
(``_legacy_save``) and ``torch/csrc/serialization.cpp``.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

from faultrun.checkpoints.format import Claim, Foreign, Listing, Look, Stamp, Unreadable
from faultrun.checkpoints.formats.torch.pickle_reader import Peeked, TooLong, peek_file
from faultrun.checkpoints.formats.torch.pickle_values import Table, Value
from faultrun.checkpoints.formats.torch.zip_archive import MAGIC as ZIP_MAGIC
from faultrun.checkpoints.formats.torch.zip_archive import peek_zip, scalar_in, storages, verify_zip
from faultrun.checkpoints.names import claim_file, is_side, shown, with_progress
from faultrun.checkpoints.reading import OpenFile, alike_with, names_in, opened
from faultrun.files import bytes_from
from faultrun.model.checkpoint import Depth, Entry, Verdict

# Lightning's "epoch=1-step=20.ckpt" and "last.ckpt", but not "lenet-1_1875.ckpt" of MindSpore.
_NAME = re.compile(r".+\.(?:pt|pth|pth\.tar|ckpt)", re.IGNORECASE)
_MINDSPORE_NAME = re.compile(r".+-\d+_\d+(?:_breakpoint)?\.ckpt")
_OTHER = re.compile(
    r".*/(?![._])(?:[^./]+|[^/]+\.(?:\d+|tar|model|state|chk|weights|params|bak|backup|old|orig|prev))",
    re.IGNORECASE,
)
# As torch's own example of FSDP2 saves them, the model first; where both are, ``folder`` has claimed them.
_OPTIMIZER_OF = {"model_state_dict.pt": "optim_state_dict.pt"}
_LEGACY_MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
"""The first pickle, 0x1950a86a20f9469cfc6c, as protocol 2 writes it; later protocols differ in byte 1."""


class TorchFile:
    """One file written by ``torch.save``."""

    name = "torch"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim single files by extension, and under other names what begins as ``torch.save`` does."""
        for name in listing.files:
            named = _NAME.fullmatch(name) and not _MINDSPORE_NAME.fullmatch(name)
            path = listing.join(name)
            other = not named and _OTHER.fullmatch(path) is not None
            if not is_side(name) and (named or (other and _is_saved(path, listing.files[name]))):
                yield claim_file(listing, name)

    def read(self, entry: Entry) -> Entry:
        """Take epoch and steps out of the top of the state dict, unless it is too long; executes nothing."""
        try:
            value = peek_torch(entry.path)
        except TooLong:
            return entry
        state = value if isinstance(value, Table) else Table()
        told, meta = with_progress(entry, state.items()), state.get("meta")
        return with_progress(entry, meta.items()) if told == entry and isinstance(meta, Table) else told

    def updates_in(self, path: str) -> int | None:
        """How many updates the optimizer in ``path`` counts, a ``state_dict``; None for one that does not.

        Adam and its relatives keep ``step`` first for each parameter. Raises Unreadable.
        """
        with opened(path) as file:
            if not _is_zip(file):
                return None
            peeked = peek_zip(file)
            states = peeked.value.get("state") if isinstance(peeked.value, Table) else None
            _, first = next(states.items(), (None, None)) if isinstance(states, Table) else (None, None)
            name, _ = next(first.items(), (None, None)) if isinstance(first, Table) else (None, None)
            return scalar_in(file, peeked) if name == "step" else None

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Prove that every storage is complete, and its checksum right where the layout has one."""
        folder, _, name = entry.path.rpartition("/")
        optimizer = _OPTIMIZER_OF.get(name, "")
        if optimizer and optimizer not in names_in(folder) and (full := alike_with(folder, optimizer)):
            why = f"there is no {optimizer} beside it, which {shown(full)} has"
            return Verdict(whole=False, why=why, depth=Depth.NAME, provisional=True)
        with opened(entry.path, look.meter) as file:
            return verify_zip(file, look.depth) if _is_zip(file) else _verify_legacy(file)


def peek_torch(path: str) -> Value:
    """What was saved into the file, without its tensors; executes nothing. Raises Unreadable, or TooLong."""
    with opened(path) as file:
        return (peek_zip(file) if _is_zip(file) else _preamble(file)[0]).value


@lru_cache(maxsize=16384)
def _is_saved(path: str, stamp: Stamp) -> bool:
    """Whether the file begins with the archive of ``torch.save``; read once for each time it was written."""
    head = bytes_from(Path(path), 0, 512) if stamp.size_bytes else b""
    return (head.startswith(ZIP_MAGIC) and b"/data.pkl" in head) or _LEGACY_MAGIC[2:] in head[:24]


def _is_zip(file: OpenFile) -> bool:
    if file.size_bytes == 0:
        raise Unreadable("it is empty")
    head = file.read(0, min(file.size_bytes, 2 * len(_LEGACY_MAGIC)))
    is_legacy = len(head) >= len(_LEGACY_MAGIC) and head[:1] == b"\x80" and _LEGACY_MAGIC[2:] in head[2:24]
    if not head.startswith(ZIP_MAGIC) and not is_legacy:
        raise Foreign("it does not start as a file of torch.save does")
    return not is_legacy


def _verify_legacy(file: OpenFile) -> Verdict:
    """Check that every storage is there to its last byte, and that the file ends with the last one."""
    peeked, byteorder = _preamble(file)
    keys = peek_file(file, peeked.end)
    order = _storage_keys(keys.value)
    wanted = storages(peeked.persistent)
    if set(order) != set(wanted) or len(order) != len(wanted):
        raise Unreadable(f"it lists {len(order)} storages, its tensors need {len(wanted)} others")
    at = keys.end
    for key in order:
        count, item_bytes = wanted[key]
        if item_bytes is None:
            raise Unreadable(f"its storage {shown(key)} has an element type that is not known here")
        if (stored := int.from_bytes(file.read(at, 8), byteorder)) != count:
            raise Unreadable(f"its storage {shown(key)} has {stored} elements, {count} are needed")
        at += 8 + count * item_bytes
        if at > file.size_bytes:
            what = f"it is cut in storage {shown(key)}: {at} bytes are needed, {file.size_bytes} are there"
            raise Unreadable(what)
    if at != file.size_bytes:
        raise Unreadable(f"it goes on for {file.size_bytes - at} bytes after its last storage")
    why = f"{len(order)} storages complete; this layout has no checksums"
    return Verdict(whole=True, why=why, depth=Depth.STRUCTURE)


def _preamble(file: OpenFile) -> tuple[Peeked, Literal["little", "big"]]:
    magic = peek_file(file, 0)
    protocol = peek_file(file, magic.end)
    machine = peek_file(file, protocol.end)
    if magic.value != 0x1950A86A20F9469CFC6C or protocol.value != 1001:
        raise Unreadable("it is not a file of torch.save")
    little = machine.value.get("little_endian") if isinstance(machine.value, Table) else True
    return peek_file(file, machine.end), "big" if little is False else "little"


def _storage_keys(value: Value) -> list[str]:
    keys = [key for key in value if isinstance(key, str)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(keys) != len(value):
        raise Unreadable("its list of storages is damaged")
    return keys


TORCH_FILE = TorchFile()
