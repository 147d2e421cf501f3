"""Files of any name whose first bytes tell a common layout: zip, gzip, NumPy's array, HDF5, a pickle.

stable-baselines3's ``*.zip``, ``np.savez``, Keras' ``*.h5``, joblib and plain pickles: each of these layouts
shows where the file ends, and the first two have checksums. A file of any other layout says nothing.

Sources: PKWARE APPNOTE 6.3, RFC 1952, NumPy's NEP 1, the HDF5 File Format Specification (superblocks 0 to 3).
"""

import math
from contextlib import suppress

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.formats.torch.pickle_reader import TooLong, peek_file
from faultrun.checkpoints.reading import OpenFile, opened
from faultrun.model.checkpoint import Depth, Verdict

_HEAD_BYTES, _BLOCK_BYTES = 12, 1 << 20
_ZIP, _GZIP, _NUMPY, _HDF5 = b"PK\x03\x04", b"\x1f\x8b\x08", b"\x93NUMPY", b"\x89HDF\r\n\x1a\n"
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_HDF5_END_AT = {0: 40, 1: 44, 2: 28, 3: 28}
"""Where the end-of-file address stands, by the superblock's version, with offsets of eight bytes."""


def verify_contents(path: str, depth: Depth) -> Verdict | None:
    """Whether the file is whole by its own layout; None if unknown. Raises Unreadable if it is cut."""
    with opened(path) as file:
        if (head := file.read(0, min(file.size_bytes, _HEAD_BYTES))).startswith((_ZIP, _GZIP)):
            return _unpacked(path, head, depth)
        if head.startswith(_NUMPY):
            return _as_long_as(file, _numpy_end(file, head))
        if head.startswith(_HDF5) and head[8] in _HDF5_END_AT:
            return _as_long_as(file, int.from_bytes(file.read(_HDF5_END_AT[head[8]], 8), "little"))
        if head.startswith(_PICKLES):
            with suppress(TooLong):
                return _as_long_as(file, peek_file(file, 0).end)
    return None


def _unpacked(path: str, head: bytes, depth: Depth) -> Verdict:
    """By the checksums of all that is packed in it; by its list of contents alone, if no more is asked."""
    import gzip  # noqa: PLC0415 - megabytes that most supervisors can do without
    import zipfile  # noqa: PLC0415 - the same
    import zlib  # noqa: PLC0415 - the same

    try:
        if head.startswith(_ZIP):
            with zipfile.ZipFile(path) as archive:
                bad = archive.testzip() if depth is Depth.CHECKSUM else None
            if bad is not None:
                raise Unreadable(f"its {bad} does not have the checksum that is stored for it")
        elif depth is Depth.CHECKSUM:
            with gzip.open(path) as packed:
                while packed.read(_BLOCK_BYTES):
                    pass
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        gzip.BadGzipFile,
        NotImplementedError,
        RuntimeError,
    ) as err:
        raise Unreadable(f"cannot be unpacked: {err}") from err
    return Verdict(whole=True, why="all that is packed in it has its checksum", depth=depth)


def _numpy_end(file: OpenFile, head: bytes) -> int:
    """Where the elements of an array end. Raises Unreadable for a header that is none."""
    import ast  # noqa: PLC0415 - megabytes that most supervisors can do without

    wide = head[6] > 1
    length = int.from_bytes(head[8 : 12 if wide else 10], "little")
    begin = (12 if wide else 10) + length
    try:
        header = ast.literal_eval(file.read(begin - length, length).decode("latin-1"))
        kind, count = header["descr"], math.prod(header["shape"])
    except (ValueError, SyntaxError, KeyError, TypeError) as err:
        raise Unreadable("its header is damaged") from err
    digits = "".join(filter(str.isdecimal, kind)) if isinstance(kind, str) else ""
    item_bytes = int(digits or 0) * (4 if "U" in kind else 1)
    return begin + count * item_bytes if digits and "O" not in kind else file.size_bytes


def _as_long_as(file: OpenFile, end: int) -> Verdict:
    """Several arrays or pickles may follow one another; what is shorter than the first is cut."""
    if file.size_bytes < end:
        raise Unreadable(f"is cut: it has {file.size_bytes} bytes, its first bytes tell of {end}")
    return Verdict(whole=True, why=f"{file.size_bytes} bytes, as its first bytes tell", depth=Depth.STRUCTURE)
