"""Bytes and names that a power cut cannot take back: digests read back, fsync of files and of directories.

Knows neither saves nor manifests.
"""

import contextlib
import os
import shutil
import zlib
from pathlib import Path

_BLOCK_BYTES = 1 << 20


def digest_of(path: Path) -> tuple[int, str]:
    """Size and digest (``crc32:<8 hex digits>``) of the file ``path``, which is on the disk afterwards."""
    crc = size_bytes = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
            size_bytes += len(block)
        os.fsync(file.fileno())
    return size_bytes, f"crc32:{crc:08x}"


def digests_in(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and digest of every file below ``folder``, by path within it; all is on the disk afterwards.

    ValueError: there is no file, or something that is neither file nor directory.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise ValueError(f"{path.relative_to(folder)} is neither a file nor a directory")
        if path.is_dir():
            sync_directory(path)
        else:
            found[path.relative_to(folder).as_posix()] = digest_of(path)
    if not found:
        raise ValueError("nothing was written into the folder")
    sync_directory(folder)
    return found


def digest_of_list(files: dict[str, tuple[int, str]]) -> str:
    """The digest of a folder with these files, as ``formats/faultrun_manifest.py`` describes it."""
    lines = sorted(f"{name} {size_bytes} {digest}\n" for name, (size_bytes, digest) in files.items())
    return f"crc32:{zlib.crc32(''.join(lines).encode('utf-8', 'surrogatepass')):08x}"


def size_of(path: Path) -> int:
    """Bytes in a file, or in all files of a folder; 0 where nothing is."""
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(one.stat().st_size for one in files if one.is_file())


def make_directory(directory: Path) -> None:
    """Make it and its parents, with names that last."""
    if not directory.exists():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Make new names in ``directory`` durable; some network file systems refuse, and need no such thing."""
    with contextlib.suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all in it, if it is there. OSError as the file system says."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
