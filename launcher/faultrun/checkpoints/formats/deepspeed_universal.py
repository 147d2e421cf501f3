"""DeepSpeed's universal checkpoint: a folder that loads into any number of ranks.

``ds_to_universal.py`` makes it from a folder of ``deepspeed``: ``zero/<parameter>/fp32.pt`` and one file
for each state of its optimizer, ``zero/optimizer_state.pt``, and copies of the module's files; then
``<dir>/latest_universal`` names it. It is loaded where the configuration says ``load_universal``.

Every parameter must have the files that the others have. Source: ``checkpoint/ds_to_universal.py`` of
DeepSpeed 0.19.8.
"""

from collections.abc import Iterator
from dataclasses import replace

from faultrun.checkpoints.format import Claim, Listing, Look
from faultrun.checkpoints.formats.deepspeed import DEEPSPEED, members_of, verified_inside
from faultrun.checkpoints.names import claim_directory, shown
from faultrun.checkpoints.reading import names_in
from faultrun.model.checkpoint import Depth, Entry, Verdict

_COMMON, _WEIGHTS = "optimizer_state.pt", "fp32.pt"


class DeepSpeedUniversal:
    """The format ``deepspeed-universal``; see the module's text."""

    name = "deepspeed-universal"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim the directory with the module's files and ``zero`` in it."""
        if (members := members_of(listing.files)) and "zero" in listing.directories:
            yield replace(claim_directory(listing, tuple(members)), rank=None, parts=("zero",))

    def read(self, entry: Entry) -> Entry:
        """Step and epoch, as the module's files tell them; no world size."""
        return replace(DEEPSPEED.read(entry), world_size=None)

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Look for the files of every parameter, then into each. Raises Unreadable for a damaged one."""
        names = members_of(names_in(entry.path))
        parameters = [name for name in names_in(f"{entry.path}/zero") if not name.endswith(".pt")]
        inside = ((one, names_in(f"{entry.path}/zero/{one}")) for one in parameters)
        files = {one: {name for name in there if name.endswith(".pt")} for one, there in inside}
        usual = set().union(*files.values()) | {_WEIGHTS}
        for one, there in files.items():
            if lacking := sorted(usual - there):
                why = f"it has no zero/{shown(one)}/{lacking[0]}"
                return Verdict(whole=False, why=why, depth=Depth.NAME, provisional=True)
        if not parameters:
            return Verdict(whole=False, why="its zero has no parameters", depth=Depth.NAME, provisional=True)
        inner = [f"zero/{_COMMON}", *(f"zero/{one}/{file}" for one in parameters for file in sorted(usual))]
        proved = [verified_inside(entry, name, look) for name in (*names, *inner)]
        depth = Depth.CHECKSUM if all(proved) else Depth.STRUCTURE
        why = f"{len(parameters)} parameters in {len(proved)} files, all complete"
        return Verdict(whole=True, why=why, depth=depth, provisional=True)  # the stamp covers no directories


DEEPSPEED_UNIVERSAL = DeepSpeedUniversal()
