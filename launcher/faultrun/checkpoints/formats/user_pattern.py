"""Everything else: files that the user's regular expression names (``--checkpoint_pattern``).

Named groups of the pattern become facts: ``rank``, ``epoch``, ``step`` (the global step), ``step_in_epoch``.
The pattern must match the whole file name, or, when it contains a slash, the end of the path. Where the
contents are of no layout that ``by_contents`` knows, and without a ``.sha256`` beside it, a file is whole if
it is as long as its siblings agree on, and has ceased to change.
"""

import re
from collections import Counter
from collections.abc import Iterator

from faultrun.checkpoints.format import Claim, Listing, Look
from faultrun.checkpoints.formats.by_contents import verify_contents
from faultrun.checkpoints.names import rank_of_directory
from faultrun.checkpoints.reading import opened
from faultrun.errors import UsageError
from faultrun.model.checkpoint import Depth, Entry, Verdict

GROUPS = frozenset({"rank", "epoch", "step", "step_in_epoch"})


class Pattern:
    """A format made of one regular expression. Raises UsageError when it is none, or has foreign groups."""

    name = "pattern"

    def __init__(self, expression: str) -> None:
        try:
            compiled = re.compile(expression)
        except re.error as err:
            what = f"bad checkpoint pattern {expression!r}"
            hint = r"use Python's syntax, e.g. 'state-(?P<step>\d+)\.bin'"
            raise UsageError(what, because=str(err), hint=hint) from err
        if unknown := sorted(set(compiled.groupindex) - GROUPS):
            what = f"bad checkpoint pattern {expression!r}"
            hint = f"name groups {', '.join(sorted(GROUPS))}"
            raise UsageError(what, because=f"a group is named {unknown[0]}", hint=hint)
        self._whole_path = "/" in expression
        self._pattern = re.compile(f"(?:.*/)?(?:{expression})") if self._whole_path else compiled

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Every file that the pattern matches."""
        for name in listing.files:
            path = listing.join(name)
            if found := self._pattern.fullmatch(path if self._whole_path else name):
                told = found.groupdict().items()
                facts = {key: int(text) for key, text in told if text and text.isdecimal()}
                yield Claim(
                    path=path,
                    members=(name,),
                    rank=facts.get("rank", rank_of_directory(listing.path)),
                    epoch=facts.get("epoch"),
                    step_in_epoch=facts.get("step_in_epoch"),
                    global_step=facts.get("step"),
                    series="pattern",
                )

    def read(self, entry: Entry) -> Entry:
        """Nothing more than the name says."""
        return entry

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """By its layout; else compare the length with that of at least two siblings. May raise Unreadable."""
        if (known := verify_contents(entry.path, look.depth)) is not None:
            return known
        with opened(entry.path, look.meter) as file:
            size_bytes = file.size_bytes
        lengths = Counter(sibling.size_bytes for sibling in look.siblings)
        common, times = lengths.most_common(1)[0] if lengths else (0, 0)
        if times >= 2 and size_bytes < common:
            why = f"has {size_bytes} bytes, its siblings have {common}"
            return Verdict(whole=False, why=why, depth=Depth.STRUCTURE, provisional=True)
        why = f"{size_bytes} bytes; the format is unknown, so nothing more can be checked"
        return Verdict(whole=True, why=why, depth=Depth.NAME, provisional=True)
