"""A console that is a file on a disk that fills up, and has room again."""

import os
from pathlib import Path

from faultrun.workers.logs.console import Console


def test_what_a_full_disk_did_not_take_comes_once_it_has_room(tmp_path: Path) -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    console = Console(fd, None)
    console.take(b"[0]: ", [b"one", b"two"])
    assert not console.has_room()
    with (tmp_path / "out").open("wb") as out:
        os.dup2(out.fileno(), fd)
    assert console.has_room()
    console.take(b"[1]: ", [b"three"])
    os.close(fd)
    assert (tmp_path / "out").read_text() == "[0]: one\n[0]: two\n[1]: three\n"
