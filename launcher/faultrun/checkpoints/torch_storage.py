"""The storages that a torch pickle refers to, and how many bytes each has.

A tensor in the pickle asks for its data by a persistent id,
``("storage", torch.FloatStorage, key, location, count[, view])``. Source:
``torch/serialization.py`` (``persistent_id`` of both savers).
"""

from collections.abc import Sequence

from faultrun.checkpoints.pickle_values import Global, Value

_ITEM_BYTES = {
    "UntypedStorage": 1, "ByteStorage": 1, "CharStorage": 1, "BoolStorage": 1,
    "QInt8Storage": 1, "QUInt8Storage": 1, "QUInt4x2Storage": 1, "QUInt2x4Storage": 1,
    "ShortStorage": 2, "HalfStorage": 2, "BFloat16Storage": 2,
    "IntStorage": 4, "FloatStorage": 4, "QInt32Storage": 4,
    "LongStorage": 8, "DoubleStorage": 8, "ComplexFloatStorage": 8,
    "ComplexDoubleStorage": 16,
}  # fmt: skip


def stored_sizes(persistent: Sequence[Value]) -> dict[str, int | None]:
    """Return the bytes that each storage must have, by key; None where the element type is not known."""
    return {
        key: None if item is None else count * item for key, (count, item) in storages(persistent).items()
    }


def storages(persistent: Sequence[Value]) -> dict[str, tuple[int, int | None]]:
    """Return (number of elements, bytes of one element or None) of each storage, by key.

    The largest count wins when a key comes twice: views of one storage.
    """
    found: dict[str, tuple[int, int | None]] = {}
    for wanted in persistent:
        if not (isinstance(wanted, tuple) and len(wanted) >= 5 and wanted[0] == "storage"):
            continue
        _, kind, key, _, count = wanted[:5]
        if not (isinstance(kind, Global) and isinstance(key, str) and type(count) is int and count >= 0):
            continue
        if key not in found or count > found[key][0]:
            found[key] = (count, _ITEM_BYTES.get(kind.name.rpartition(".")[2]))
    return found
