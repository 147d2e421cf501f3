"""MindIO TTP's dying-gasp directories: ``[tft|ttp]_saved_checkpoints-step_G/rank_R/ttp_rank_R-E_S.ckpt``.

The whole directory is written under a name ending in ``_tmp`` and renamed
when every chosen rank has finished (train/callback/_train_fault_tolerance.py);
G counts steps since the first start. One member of each replica group saves.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from faultrun.checkpoints.format import Claim, Listing, Look
from faultrun.checkpoints.formats.mindspore.ckpt import MINDSPORE_CKPT, verify_records
from faultrun.model.checkpoint import Entry, Kind, Verdict

_APPENDED = ("epoch_num", "step_num", "cur_rank", "batch_num", "global_step")
"""What TTP appends to every file, in this order; ``loss_scale`` follows only with dynamic loss scaling."""

_DIRECTORY = re.compile(r"(?:tft|ttp)_saved_checkpoints-step_(\d+)(_tmp)?")
_FILE = re.compile(r"(?:ttp|tft)_rank_(\d+)-(\d+)_(\d+)\.ckpt")


class Ttp:
    """The format ``mindio-ttp``; contents as in MindSpore's own files."""

    name = "mindio-ttp"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """The files of a rank directory within a TTP directory, finished or not."""
        above = listing.path.rsplit("/", 2)
        found = _DIRECTORY.fullmatch(above[-2]) if len(above) == 3 else None
        if found is None:
            return
        for name in listing.files:
            if file := _FILE.fullmatch(name):
                yield Claim(
                    path=listing.join(name),
                    members=(name,),
                    kind=Kind.GASP,
                    rank=int(file[1]),
                    epoch=int(file[2]),
                    step_in_epoch=int(file[3]),
                    global_step=int(found[1]),
                    series="ttp",
                    unfinished=f"{above[-2]} was never renamed: not every rank had saved" if found[2] else "",
                )

    def read(self, entry: Entry) -> Entry:
        """Epoch and steps from the contents; MindIO saves no half-done update. Raises Unreadable."""
        return replace(MINDSPORE_CKPT.read(entry), consistent=True)

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Verify the MindSpore records, and that all that TTP appends is there. May raise Unreadable."""
        return verify_records(entry, look, required=_APPENDED)


TTP = Ttp()
