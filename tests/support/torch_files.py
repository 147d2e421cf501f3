"""Files of torch.save that were written once and kept, and what is said of such a file."""

from pathlib import Path

import pytest

from faultrun.checkpoints.format import Look, Unreadable
from faultrun.checkpoints.torch_file import TORCH_FILE
from faultrun.model.checkpoint import Depth, Entry, Verdict
from support.entries import entry_of

DATA = Path(__file__).parents[1] / "data" / "torch"
ZIP, LEGACY, NO_CHECKSUMS = DATA / "zip.pt", DATA / "legacy.pt", DATA / "no_checksums.pt"


def verify(path: Path, depth: Depth = Depth.CHECKSUM) -> Verdict:
    return TORCH_FILE.verify(entry_of(path), Look(depth=depth))


def read(path: Path) -> Entry:
    return TORCH_FILE.read(entry_of(path))


def refused(path: Path) -> str:
    """The reason why a file is not whole; fails the test when it passes for whole."""
    try:
        verdict = verify(path)
    except Unreadable as reason:
        return reason.why
    pytest.fail(f"passed for whole: {verdict.why}")
