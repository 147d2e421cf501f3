"""What a file of any name says of its own length: all of it is whole, no beginning of it is."""

import gzip
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.formats.by_contents import verify_contents
from faultrun.model.checkpoint import Depth


def _zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", b"x" * 9000)
        archive.writestr("policy.pth", bytes(range(256)) * 9)
    return packed.getvalue()


def _numpy(*arrays: "numpy.ndarray[Any, Any]") -> bytes:
    file = io.BytesIO()
    for array in arrays:
        numpy.save(file, array)
    return file.getvalue()


def _npz() -> bytes:
    file = io.BytesIO()
    numpy.savez(file, a=numpy.arange(99), b=numpy.zeros((3, 4), "f4"))
    return file.getvalue()


def _hdf5(version: int, at: int) -> bytes:
    file = bytearray(b"\x89HDF\r\n\x1a\n" + bytes([version]) + bytes(991))
    file[at : at + 8] = (1000).to_bytes(8, "little")
    return bytes(file)


_LAYOUTS: dict[str, Callable[[], bytes]] = {
    "zip": _zip,
    "npz": _npz,
    "gzip": lambda: gzip.compress(bytes(range(256)) * 40),
    "array": lambda: _numpy(numpy.arange(300, dtype="<f4").reshape(3, 100)),
    "array of words": lambda: _numpy(numpy.array(["one", "three"])),
    "HDF5": lambda: _hdf5(0, 40),
    "HDF5 of today": lambda: _hdf5(3, 28),
    "pickle": lambda: pickle.dumps({"step": 3, "weights": list(range(900))}),
}


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_whole_it_is_whole_and_cut_anywhere_it_is_not(layout: str, tmp_path: Path) -> None:
    data, file = _LAYOUTS[layout](), tmp_path / "state-30.bin"
    file.write_bytes(data)

    whole = verify_contents(str(file), Depth.CHECKSUM)

    assert whole is not None
    assert whole.whole
    for length in {len(data) // 8, len(data) // 3, len(data) // 2, len(data) - 1} - {0}:
        file.write_bytes(data[:length])
        with pytest.raises(Unreadable):
            verify_contents(str(file), Depth.CHECKSUM)


@pytest.mark.parametrize("layout", ["zip", "gzip"])
def test_what_has_checksums_shows_a_changed_byte(layout: str, tmp_path: Path) -> None:
    data, file = bytearray(_LAYOUTS[layout]()), tmp_path / "state-30.bin"
    data[len(data) // 3] ^= 0x55
    file.write_bytes(data)

    with pytest.raises(Unreadable):
        verify_contents(str(file), Depth.CHECKSUM)


def test_arrays_and_pickles_may_follow_one_another(tmp_path: Path) -> None:
    for data in (_numpy(numpy.arange(3), numpy.arange(9)), pickle.dumps(1) + pickle.dumps(2)):
        (tmp_path / "state").write_bytes(data)

        verdict = verify_contents(str(tmp_path / "state"), Depth.CHECKSUM)

        assert verdict is not None
        assert verdict.whole


def test_of_any_other_file_nothing_is_known(tmp_path: Path) -> None:
    for data in (b"", b"weights", b"\x80", b"\x80\x00\x00 no pickle", bytes(64)):
        (tmp_path / "state").write_bytes(data)

        assert verify_contents(str(tmp_path / "state"), Depth.CHECKSUM) is None
