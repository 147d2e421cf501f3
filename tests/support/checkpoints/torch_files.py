"""Files of torch.save that were written once and kept, and what is said of such a file."""

import os
from collections.abc import Callable
from pathlib import Path

from faultrun.checkpoints.format import Look
from faultrun.checkpoints.formats.torch.saved_file import TORCH_FILE
from faultrun.model.checkpoint import Depth, Entry, Verdict
from support.checkpoints.entries import entry_of, reason_of
from support.places import TESTS

DATA = TESTS / "data" / "torch"
ZIP, LEGACY, NO_CHECKSUMS = DATA / "zip.pt", DATA / "legacy.pt", DATA / "no_checksums.pt"


class Bomb:
    """Pickles to a program that makes a file when it is run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., int], tuple[str]]:
        return os.system, (f"touch {self.path}",)


def verify(path: Path, depth: Depth = Depth.CHECKSUM) -> Verdict:
    return TORCH_FILE.verify(entry_of(path), Look(depth=depth))


def read(path: Path) -> Entry:
    return TORCH_FILE.read(entry_of(path))


def refused(path: Path) -> str:
    return reason_of(lambda: verify(path))
