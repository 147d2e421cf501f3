"""``torch.save`` since 1.6: a zip archive of stored records, ``<root>/data.pkl`` and ``<root>/data/<key>``.

The archive is read by its own rules and tighter than a zip program would: the end record must be the last
bytes of the file and all offsets must fit to it, so that no beginning of a file passes for a file, not even
where a whole archive is stored inside. Nothing is unpacked and no name in it is used as a path. Every storage
that ``data.pkl`` refers to must have a record of its size.

Sources: PKWARE APPNOTE 6.3 (4.3 and 4.5.3), ``caffe2/serialize/inline_container.cc``
and ``torch/serialization.py``.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.formats.torch.pickle_reader import (
    MAX_PICKLE_BYTES,
    Peeked,
    TooLong,
    peek,
    peek_file,
)
from faultrun.checkpoints.formats.torch.pickle_values import Global, Value
from faultrun.checkpoints.names import shown
from faultrun.checkpoints.reading import OpenFile
from faultrun.model.checkpoint import Depth, Verdict

MAGIC = b"PK\x03\x04"
MAX_RECORDS = 200_000
MAX_DIRECTORY_BYTES = 32 << 20

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_FULL32 = 0xFFFFFFFF
_FOLDER = 0x10
_SCALARS = {"torch.FloatStorage": "<f", "torch.LongStorage": "<q", "torch.IntStorage": "<i"}
_MOST_UPDATES = 1 << 24  # above, a float32 no longer counts by one
_USUAL_FLAGS = 0x0808  # sizes follow the contents; names are UTF-8
_ITEM_BYTES = {
    "UntypedStorage": 1, "ByteStorage": 1, "CharStorage": 1, "BoolStorage": 1,
    "QInt8Storage": 1, "QUInt8Storage": 1, "QUInt4x2Storage": 1, "QUInt2x4Storage": 1,
    "ShortStorage": 2, "HalfStorage": 2, "BFloat16Storage": 2,
    "IntStorage": 4, "FloatStorage": 4, "QInt32Storage": 4,
    "LongStorage": 8, "DoubleStorage": 8, "ComplexFloatStorage": 8,
    "ComplexDoubleStorage": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Record:
    """One stored record; ``offset`` is that of its local header, ``size_bytes`` of its contents."""

    name: str
    offset: int
    size_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class _Archive:
    records: dict[str, _Record]
    directory_at: int


def peek_zip(file: OpenFile) -> Peeked:
    """Look into the archive's ``data.pkl``, which torch writes first. Raises Unreadable; proves nothing."""
    name_length, extra_length = _LOCAL.unpack(file.read(0, _LOCAL.size))[-2:]
    if file.read(_LOCAL.size, name_length).endswith(b"/data.pkl"):
        return peek_file(file, _LOCAL.size + name_length + extra_length)
    archive = _read_archive(file)
    return _peek_records(file, archive, _root(archive))


def verify_zip(file: OpenFile, depth: Depth) -> Verdict:
    """Check that all records are in place, all storages complete and all checksums right."""
    archive = _read_archive(file)
    storages = _check_storages(file, archive)
    contents = _contents(file, archive)
    found = f"{len(archive.records)} records, {storages}"
    if depth is not Depth.CHECKSUM:
        return Verdict(whole=True, why=found, depth=Depth.STRUCTURE)
    if all(record.crc == 0 for record in archive.records.values()):
        # set_crc32_options(False) leaves every checksum 0; that of "version" never is.
        return Verdict(whole=True, why=f"{found}; written without checksums", depth=Depth.STRUCTURE)
    for record, start in contents:
        if file.crc32(start, start + record.size_bytes) != record.crc:
            raise Unreadable(f"the checksum of its record {shown(record.name)} is wrong")
    return Verdict(whole=True, why=f"{found}, all checksums right", depth=Depth.CHECKSUM)


def scalar_in(file: OpenFile, peeked: Peeked) -> int | None:
    """The number in the first storage that the pickle asks for, if that holds one; None else.

    An optimizer of Adam's family begins with ``step``, a tensor of one number. Raises Unreadable.
    """
    match peeked.persistent[:1]:
        case [("storage", Global(name=kind), str(key), _, 1, *_)] if code := _SCALARS.get(kind):
            archive = _read_archive(file)
            record = archive.records.get(f"{_root(archive)}/data/{key}")
            if record is not None and record.size_bytes == struct.calcsize(code):
                start = _content_start(file, record, archive.directory_at)
                (number,) = struct.unpack(code, file.read(start, record.size_bytes))
                return int(number) if 0 <= number < _MOST_UPDATES and number == int(number) else None
    return None


def storages(persistent: Sequence[Value]) -> dict[str, tuple[int, int | None]]:
    """Return (number of elements, bytes of one element or None if not known) of each storage, by key.

    A tensor in the pickle asks for its data by a persistent id, ``("storage", torch.FloatStorage, key,
    location, count[, view])``. The largest count wins when a key comes twice: views of one storage.
    """
    found: dict[str, tuple[int, int | None]] = {}
    for wanted in persistent:
        match wanted:
            case ("storage", Global(name=kind), str(key), _, int(count), *_) if count >= 0:
                if key not in found or count > found[key][0]:
                    found[key] = (count, _ITEM_BYTES.get(kind.rpartition(".")[2]))
    return found


def _check_storages(file: OpenFile, archive: _Archive) -> str:
    """Compare what the pickle asks for with the records there are; return what was found, in words."""
    root = _root(archive)
    try:
        wanted = storages(_peek_records(file, archive, root).persistent)
    except TooLong as long:
        return f"storages not compared: {long.why}"
    for key, (elements, item_bytes) in wanted.items():
        if (record := archive.records.get(f"{root}/data/{key}")) is None:
            raise Unreadable(f"its storage {shown(key)} is missing")
        if item_bytes is not None and record.size_bytes != elements * item_bytes:
            needed = elements * item_bytes
            raise Unreadable(f"its storage {shown(key)} has {record.size_bytes} bytes, {needed} are needed")
    return f"{len(wanted)} storages complete"


def _root(archive: _Archive) -> str:
    """The one folder that everything is in; it also holds ``version`` and ``data.pkl``."""
    root = next(iter(archive.records)).split("/", 1)[0]
    for name in archive.records:
        if not name.startswith(f"{root}/"):
            what = f"its record {shown(name)} is not in {shown(root)}: not an archive of torch.save"
            raise Unreadable(what)
    for needed in ("data.pkl", "version"):
        if f"{root}/{needed}" not in archive.records and f"{root}/.data/{needed}" not in archive.records:
            raise Unreadable(f"it has no {needed}: not an archive of torch.save")
    return root


def _peek_records(file: OpenFile, archive: _Archive, root: str) -> Peeked:
    if (record := archive.records.get(f"{root}/data.pkl")) is None:
        raise Unreadable("it has no data.pkl: not an archive of torch.save")
    if record.size_bytes > MAX_PICKLE_BYTES:
        raise TooLong(f"its data.pkl has {record.size_bytes} bytes (limit {MAX_PICKLE_BYTES})")
    start = _content_start(file, record, archive.directory_at)
    if (peeked := peek(file.read(start, record.size_bytes))).end != record.size_bytes:
        raise Unreadable("its data.pkl goes on after its end")
    return peeked


def _contents(file: OpenFile, archive: _Archive) -> list[tuple[_Record, int]]:
    """Where the contents of each record start, in file order. Raises Unreadable when two overlap."""
    contents: list[tuple[_Record, int]] = []
    free_from = 0
    for record in sorted(archive.records.values(), key=lambda record: record.offset):
        if record.offset < free_from:
            raise Unreadable(f"its record {shown(record.name)} overlaps the one before it")
        start = _content_start(file, record, archive.directory_at)
        free_from = start + record.size_bytes
        contents.append((record, start))
    return contents


def _content_start(file: OpenFile, record: _Record, directory_at: int) -> int:
    """Check the local header of ``record`` and return the offset of its contents."""
    name = record.name.encode()
    header = file.read(record.offset, _LOCAL.size)
    magic, _, flags, method, _, _, _, _, _, name_length, extra_length = _LOCAL.unpack(header)
    start: int = record.offset + _LOCAL.size + name_length + extra_length
    if magic != MAGIC or method != 0 or flags & ~_USUAL_FLAGS or name_length != len(name):
        raise Unreadable(f"there is no record {shown(record.name)} at byte {record.offset}")
    if file.read(record.offset + _LOCAL.size, name_length) != name:
        raise Unreadable(f"there is another record than {shown(record.name)} at byte {record.offset}")
    if start + record.size_bytes > directory_at:
        raise Unreadable(f"its record {shown(record.name)} runs into the archive's directory")
    return start


def _read_archive(file: OpenFile) -> _Archive:
    count, size_bytes, offset = _read_end(file)
    if count == 0:
        raise Unreadable("it is an empty archive")
    if count > MAX_RECORDS or size_bytes > MAX_DIRECTORY_BYTES:
        raise Unreadable(f"{count} records in {size_bytes} bytes of directory are no checkpoint's")
    records: dict[str, _Record] = {}
    for record in _directory(file.read(offset, size_bytes)):
        if record.name in records:
            raise Unreadable(f"it has two records {shown(record.name)}")
        records[record.name] = record
    if len(records) != count:
        raise Unreadable(f"its directory lists {len(records)} records, its end {count}")
    return _Archive(records=records, directory_at=offset)


def _read_end(file: OpenFile) -> tuple[int, int, int]:
    """Return the number of records and the size and offset of the directory, from the end of the file."""
    if (at := file.size_bytes - _END.size) < 0:
        raise Unreadable(f"{file.size_bytes} bytes are too few for an archive")
    magic, disk, first_disk, here, count, size_bytes, offset, comment = _END.unpack(file.read(at, _END.size))
    if magic != b"PK\x05\x06" or comment or disk or first_disk or here != count:
        raise Unreadable("the end of the archive is missing: the file is cut")
    directory_end = at
    if (locator_at := at - _END64_LOCATOR.size) >= 0:
        locator = _END64_LOCATOR.unpack(file.read(locator_at, _END64_LOCATOR.size))
        if locator[0] == b"PK\x06\x07":
            if (directory_end := locator[2]) + _END64.size != locator_at:
                raise Unreadable("the end of the archive does not fit to its place: the file is cut")
            end64 = _END64.unpack(file.read(directory_end, _END64.size))
            *_, disk, first_disk, here, count, size_bytes, offset = end64
            usual = (b"PK\x06\x06", _END64.size - 12, 0, 0, count, 0, 1)
            if (*end64[:2], disk, first_disk, here, locator[1], locator[3]) != usual:
                raise Unreadable("the end of the archive is damaged")
    if offset + size_bytes != directory_end:
        raise Unreadable("the end of the archive does not fit to its place: the file is cut")
    return count, size_bytes, offset


def _directory(data: bytes) -> Iterator[_Record]:
    at = 0
    while at < len(data):
        if at + _CENTRAL.size > len(data):
            raise Unreadable("the archive's directory is cut")
        fields = _CENTRAL.unpack_from(data, at)
        magic, flags, method, crc, packed, size_bytes = fields[0], fields[3], fields[4], *fields[7:10]
        name_length, extra_length, comment_length, disk, _, attributes, offset = fields[10:]
        name_at = at + _CENTRAL.size
        extra_at = name_at + name_length
        at = extra_at + extra_length + comment_length
        if magic != b"PK\x01\x02" or at > len(data) or disk or attributes & _FOLDER:
            raise Unreadable("the archive's directory is damaged")
        try:
            name = data[name_at:extra_at].decode()
        except UnicodeDecodeError as error:
            raise Unreadable("the archive's directory has a name that is no UTF-8") from error
        extra = data[extra_at : extra_at + extra_length]
        size_bytes, packed, offset = _widened((size_bytes, packed, offset), extra)
        if method != 0 or packed != size_bytes or flags & ~_USUAL_FLAGS:
            what = f"its record {shown(name)} is compressed or encrypted: not an archive of torch.save"
            raise Unreadable(what)
        yield _Record(name, offset, size_bytes, crc)


def _widened(narrow: tuple[int, int, int], extra: bytes) -> tuple[int, int, int]:
    """Replace numbers of 32 ones by those of 64 bits in the extra field 0x0001, in this order."""
    if _FULL32 not in narrow:
        return narrow
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<2H", extra, at)
        if tag == 1 and length >= 8 * narrow.count(_FULL32) and at + 4 + length <= len(extra):
            wide = iter(struct.unpack_from(f"<{narrow.count(_FULL32)}Q", extra, at + 4))
            first, second, third = (next(wide) if number == _FULL32 else number for number in narrow)
            return first, second, third
        at += 4 + length
    raise Unreadable("the archive's directory lacks the size of a large record")
