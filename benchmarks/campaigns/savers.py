"""How training codes write checkpoints: in place, under another name, with a manifest, by torch itself."""

import hashlib
import json
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

_TENSORS = 40
_TENSOR_BYTES = 64 << 10
_PAUSE_S = 0.0004


@dataclass(frozen=True, slots=True, kw_only=True)
class Saver:
    """One way to save: ``save(directory, step)`` writes ``files(step)``, the same bytes each time.

    The first of the files is the checkpoint; it is there when all are.
    """

    name: str
    save: Callable[[Path, int], None]
    files: Callable[[int], tuple[str, ...]]
    package: str = ""

    def missing(self) -> bool:
        """Whether what it needs is not installed."""
        return bool(self.package) and find_spec(self.package) is None

    def warm_up(self) -> None:
        """Import what it needs, so that forked savers need not."""
        if self.package:
            import_module(self.package)


def _ckpt(step: int) -> tuple[str, ...]:
    return (f"net-1_{step}.ckpt",)


def _state(step: int) -> tuple[str, ...]:
    return (f"state-{step}.bin", f"state-{step}.bin.manifest.json")


def _torch(step: int) -> tuple[str, ...]:
    return (f"net-{step}.pt",)


def _records(step: int, *, appended: bool) -> list[bytes]:
    """A MindSpore checkpoint of about 2.5 MiB, record by record."""
    content = bytes([step & 0xFF]) * _TENSOR_BYTES
    records = [record(f"layer{number}.weight", "Int8", content) for number in range(_TENSORS)]
    records.insert(7, record("global_step", "Int32", struct.pack("<i", step), dims=(1,)))
    if appended:
        records += counts(1, step)
    return records


def counts(epoch: int, step: int) -> list[bytes]:
    """The records that say where a training stands."""
    said = {"epoch_num": epoch, "step_num": step}
    return [record(tag, "Int64", struct.pack("<q", number), dims=()) for tag, number in said.items()]


def record(tag: str, kind: str, content: bytes, dims: tuple[int, ...] | None = None) -> bytes:
    """One record of a MindSpore checkpoint (``formats/mindspore/ckpt_records.py`` has its grammar)."""
    shape = (len(content),) if dims is None else dims
    tensor = b"".join(b"\x08" + _varint(length) for length in shape)
    tensor += _field(0x12, kind.encode()) + _field(0x1A, content)
    return _field(0x0A, _field(0x0A, tag.encode()) + _field(0x12, tensor))


def _field(key: int, data: bytes) -> bytes:
    return bytes([key]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _write(path: Path, records: list[bytes]) -> None:
    """Record by record, as MindSpore does; the pauses stand for copies from a device."""
    with path.open("wb", buffering=0) as file:
        for record in records:
            file.write(record)
            time.sleep(_PAUSE_S)


def in_place(directory: Path, step: int) -> None:
    """MindSpore's older releases and its ``mindio`` backend: no temporary name, read-only at the end."""
    path = directory / _ckpt(step)[0]
    _write(path, _records(step, appended=True))
    path.chmod(0o400)


def in_place_bare(directory: Path, step: int) -> None:
    """The same without ``append_info``: the file does not say where it ends."""
    path = directory / _ckpt(step)[0]
    _write(path, _records(step, appended=False))
    path.chmod(0o400)


def renamed(directory: Path, step: int) -> None:
    """MindSpore 2: a temporary name, a rename, read-only."""
    path = directory / _ckpt(step)[0]
    temporary = path.with_suffix(".tmp")
    _write(temporary, _records(step, appended=False))
    temporary.rename(path)
    path.chmod(0o400)


def with_manifest(directory: Path, step: int) -> None:
    """The SDK: a temporary name, a rename, and a manifest with a digest written last."""
    path = directory / _state(step)[0]
    data = b"".join(_records(step, appended=True))
    temporary = path.with_suffix(".tmp")
    _write(temporary, [data[at : at + _TENSOR_BYTES] for at in range(0, len(data), _TENSOR_BYTES)])
    temporary.rename(path)
    manifest = {
        "schema": 1, "path": path.name, "step": step, "epoch": 1, "step_in_epoch": step,
        "world_size": 1, "rank": 0, "replica_group": [0], "size_bytes": len(data),
        "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "run_id": "", "incarnation": 0,
        "node": "here",
    }  # fmt: skip
    _write(directory / _state(step)[1], [bytes([byte]) for byte in json.dumps(manifest).encode()])


def by_torch(directory: Path, step: int) -> None:
    """``torch.save`` to the final name: a zip archive whose directory comes last."""
    import torch

    state = {f"layer{number}": torch.full((_TENSOR_BYTES // 4,), step * 1.0) for number in range(_TENSORS)}
    torch.save({"epoch": 1, "global_step": step, "model": state}, directory / _torch(step)[0])


ALL = (
    Saver(name="in place", save=in_place, files=_ckpt),
    Saver(name="in place, bare", save=in_place_bare, files=_ckpt),
    Saver(name="renamed", save=renamed, files=_ckpt),
    Saver(name="with manifest", save=with_manifest, files=_state),
    Saver(name="torch.save", save=by_torch, files=_torch, package="torch"),
)
