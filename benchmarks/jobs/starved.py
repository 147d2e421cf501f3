"""A worker that runs out of something: rank 1, in its first life, once all are ready. Stdlib only."""

import argparse
import errno
import mmap
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks.jobs.tell import Teller, life, rank

_PAGE = 4096
_SHM_BYTES = 64 << 20
_SHM_FILE = Path("/dev/shm/starved")  # the file system is the case's own
_FLOOD_LINE = b"x" * 999 + b"\n"
_FLOOD_LINES = 1000
_STEP_S = 0.01


def use_up_inodes(folder: Path) -> None:
    """Empty files until no more can be made; OSError says that."""
    number = 0
    while True:
        (folder / f"starved-{number}").touch()
        number += 1


def use_up_bytes(folder: Path) -> None:
    """One file until it cannot grow; OSError says that."""
    with (folder / "starved-0").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(_PAGE))


def touch_more_than_there_is(*, nameless: bool) -> None:
    """Map shared memory and use it, page after page: SIGBUS where there is no more."""
    with _SHM_FILE.open("wb+") as file:
        file.truncate(_SHM_BYTES)
        pages = mmap.mmap(file.fileno(), _SHM_BYTES)
    if nameless:
        _SHM_FILE.unlink()
    for at in range(0, _SHM_BYTES, _PAGE):
        pages[at] = 1


def flood(for_s: float) -> int:
    """Print as fast as it goes; bytes."""
    text = _FLOOD_LINE * _FLOOD_LINES
    until_s, written = time.monotonic() + for_s, 0
    while time.monotonic() < until_s:
        written += os.write(1, text)
    return written


def step_until(file: Path) -> list[float]:
    """Train in steps of ten milliseconds; how long each took."""
    took = []
    while not file.exists():
        began_s = time.monotonic()
        time.sleep(_STEP_S)
        took.append(time.monotonic() - began_s)
    return took


def main() -> None:
    options = read_options()
    tell = Teller()
    tell("ready")
    if life() > 0 or options.deed == "none":
        return
    if rank() != 1:
        if options.deed == "flood":
            took = sorted(step_until(Path("flooded")))
            tell("slowest", took[len(took) * 99 // 100])
            return
        signal.pause()
    while not Path("go").exists():
        time.sleep(_STEP_S)
    match options.deed:
        case "inodes" | "bytes":
            try:
                (use_up_inodes if options.deed == "inodes" else use_up_bytes)(options.folder)
            except OSError as error:
                assert error.errno == errno.ENOSPC
            os.kill(os.getpid(), signal.SIGKILL)
        case "save":
            use_up_inodes(options.folder)
        case "shm":
            touch_more_than_there_is(nameless=False)
        case "shm-nameless":
            touch_more_than_there_is(nameless=True)
        case "flood":
            tell("flooded", flood(options.for_s))
            Path("flooded").touch()
        case _:
            signal.pause()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("deed")
    parser.add_argument("--folder", type=Path, default=Path("small"))
    parser.add_argument("--for_s", type=float, default=10.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
