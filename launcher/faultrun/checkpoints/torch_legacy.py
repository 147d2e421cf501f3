"""``torch.save`` before 1.6 (``_use_new_zipfile_serialization=False``): five pickles, then the storages.

The pickles are a magic number, the protocol version, a dict about the machine,
the saved object, and the list of storage keys. After them comes, for each key
in that order, the number of elements (8 bytes) and the elements. There is no
checksum, but every length is known, so a cut shows. Source:
``torch/serialization.py`` (``_legacy_save``) and ``torch/csrc/serialization.cpp``.
"""

from typing import Literal

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.pickle_peek import Peeked, peek_file
from faultrun.checkpoints.pickle_values import Table, Value
from faultrun.checkpoints.shown import shown
from faultrun.checkpoints.span import Span
from faultrun.checkpoints.torch_storage import storages
from faultrun.model.checkpoint import Depth, Verdict

MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
"""The first pickle, 0x1950a86a20f9469cfc6c, as protocol 2 writes it; later protocols differ in byte 1."""


def is_legacy(head: bytes) -> bool:
    """Whether a file that starts with ``head`` has this layout."""
    return len(head) >= len(MAGIC) and head[:1] == MAGIC[:1] and MAGIC[2:] in head[2 : len(MAGIC) + 9]


def peek_legacy(file: Span) -> Peeked:
    """Look into the saved object. Raises Unreadable."""
    return _preamble(file)[0]


def verify_legacy(file: Span) -> Verdict:
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
        stored = int.from_bytes(file.read(at, 8), byteorder)
        if stored != count:
            raise Unreadable(f"its storage {shown(key)} has {stored} elements, {count} are needed")
        at += 8 + count * item_bytes
        if at > file.size_bytes:
            raise Unreadable(
                f"it is cut in storage {shown(key)}: {at} bytes are needed, {file.size_bytes} are there"
            )
    if at != file.size_bytes:
        raise Unreadable(f"it goes on for {file.size_bytes - at} bytes after its last storage")
    return Verdict(
        whole=True, why=f"{len(order)} storages complete; this layout has no checksums", depth=Depth.STRUCTURE
    )


def _preamble(file: Span) -> tuple[Peeked, Literal["little", "big"]]:
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
