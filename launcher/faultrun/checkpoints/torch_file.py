"""Files of ``torch.save``: which names are theirs, and which of the two layouts is inside.

Names: ``*.pt *.pth *.pth.tar`` and, with Lightning, ``*.ckpt``. The layout
shows only in the first bytes: ``torch_zip`` or ``torch_legacy``.
``rank*/model_best.pth.tar`` is kind BEST: written when the accuracy rose, so
there may be newer training than in it. An optimizer's or a scheduler's file
is none: ``folder_names`` knows them.
"""

import re
from collections.abc import Iterator

from faultrun.checkpoints.folder_names import is_side
from faultrun.checkpoints.format import Claim, Foreign, Listing, Look, Unreadable
from faultrun.checkpoints.names import rank_of_directory
from faultrun.checkpoints.pickle_machine import TooLong
from faultrun.checkpoints.progress import progress_of, with_progress
from faultrun.checkpoints.reading import OpenFile, opened
from faultrun.checkpoints.span import Span
from faultrun.checkpoints.step_names import epoch_of, global_step_of, kind_of, rank_of, series_of
from faultrun.checkpoints.torch_legacy import MAGIC as LEGACY_MAGIC
from faultrun.checkpoints.torch_legacy import is_legacy, peek_legacy, verify_legacy
from faultrun.checkpoints.torch_zip import MAGIC as ZIP_MAGIC
from faultrun.checkpoints.torch_zip import peek_zip, verify_zip
from faultrun.model.checkpoint import Entry, Verdict

# Lightning's "epoch=1-step=20.ckpt" and "last.ckpt", but not "lenet-1_1875.ckpt" of MindSpore.
_NAME = re.compile(r".+\.(?:pt|pth|pth\.tar|ckpt)", re.IGNORECASE)
_MINDSPORE_NAME = re.compile(r".+-\d+_\d+(?:_breakpoint)?\.ckpt")


class TorchFile:
    """One file written by ``torch.save``."""

    name = "torch"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim single files by extension."""
        for name in listing.files:
            if _NAME.fullmatch(name) and not _MINDSPORE_NAME.fullmatch(name) and not is_side(name):
                yield self._claim_one(listing, name)

    def _claim_one(self, listing: Listing, name: str) -> Claim:
        rank = rank_of(name)
        return Claim(
            path=listing.join(name),
            members=(name,),
            kind=kind_of(name),
            rank=rank_of_directory(listing.path) if rank is None else rank,
            epoch=epoch_of(name),
            global_step=global_step_of(name, listing.path),
            series=series_of(name),
        )

    def read(self, entry: Entry) -> Entry:
        """Take epoch and steps out of the top of the state dict, unless it is too long; executes nothing."""
        with opened(entry.path) as file:
            try:
                peeked = peek_zip(Span(file)) if _is_zip(file) else peek_legacy(Span(file))
            except TooLong:
                return entry
        return with_progress(entry, progress_of(peeked.value))

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Prove that every storage is complete, and its checksum right where the layout has one."""
        with opened(entry.path, look.meter) as file:
            return verify_zip(Span(file), look.depth) if _is_zip(file) else verify_legacy(Span(file))


def _is_zip(file: OpenFile) -> bool:
    if file.size_bytes == 0:
        raise Unreadable("it is empty")
    head = file.read(0, min(file.size_bytes, 2 * len(LEGACY_MAGIC)))
    if not head.startswith(ZIP_MAGIC) and not is_legacy(head):
        raise Foreign("it does not start as a file of torch.save does")
    return head.startswith(ZIP_MAGIC)


FORMAT = TorchFile()
