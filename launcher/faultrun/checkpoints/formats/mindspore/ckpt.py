"""MindSpore ``.ckpt`` files: periodic (``ModelCheckpoint``) and breakpoint (``exception_save``).

Names are ``prefix[_N]-EPOCH_STEP[_breakpoint].ckpt`` (train/callback/_checkpoint.py);
``_N`` counts the runs that found their prefix taken, STEP is within the epoch.

What the numbers inside mean, and which is believed (measured with 2.10):

* ``step_num`` counts from the start of the *session* in periodic files (and
  from ``append_info``'s base, if given); in ``exception_save``'s it is the
  step within the epoch. ``global_step`` is the optimizer's own count; it
  restarts when only weights were loaded and stands still when mixed
  precision skips an update.
* So the global step is the largest of what the contents say: ``global_step``,
  ``step_num`` where it is a running count, and (epoch - 1) * steps per epoch
  + step, where the counts of a series cannot all be those of one training that goes on, and the steps per
  epoch follow from two files of one session (``epoch_steps``).

When is a file whole? Its records must reach the last byte and no sibling of its writer may have more records:
a file cut at a record border loads without an error and with parameters missing. Periodic and breakpoint
files have writers of their own, which need not save the same (weights alone here; the optimizer, numbers,
a checksum there). Beyond that one proof of the end is required: the CRC trailer, or ``epoch_num`` and
``step_num`` (always appended last), or the same records as a save of another step, or mode 0400, which
MindSpore sets after the last byte was written and the file renamed. A lone writable file with none of
these is refused: nothing shows where it should end.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from faultrun.checkpoints.format import Claim, Listing, Look, Stamp, Unreadable
from faultrun.checkpoints.formats.mindspore.ckpt_records import (
    Outline,
    is_encrypted,
    judge_encrypted,
    numbers_at,
    outline_of,
)
from faultrun.checkpoints.formats.mindspore.epoch_steps import with_steps_of_all_sessions
from faultrun.checkpoints.names import base_name, is_side, kind_of, place_of, rank_of_directory
from faultrun.checkpoints.reading import OpenFile, opened
from faultrun.checkpoints.verdict_cache import stamp_in
from faultrun.model.checkpoint import Depth, Entry, Kind, Verdict

_APPENDED = ("epoch_num", "step_num")
"""The records by which the end of a file is known; written after all parameters."""

_SUFFIX = ".ckpt"
_PERIODIC_NAME = re.compile(
    r"(?P<prefix>.+?)(?P<runs>(?:[_-]\d+)*)-(?P<epoch>\d+)_(?P<step>\d+)(?P<gasp>_breakpoint)?"
)
_READ_ONLY = 0o400
_MAX_LAYOUTS = 4096

_Family = Sequence[tuple[Entry, Outline]]
"""Siblings of a file, and what is in them."""


class MindSporeCkpt:
    """The format ``mindspore``; see the module's text for its rules."""

    name = "mindspore"

    def __init__(self) -> None:
        self._layouts: dict[tuple[str, str, int], dict[str, int]] = {}

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Every ``*.ckpt`` but an optimizer's; names outside the grammar carry no step."""
        rank = rank_of_directory(listing.path)
        for name in listing.files:
            if name.endswith(_SUFFIX) and not is_side(name):
                yield _claim(listing.join(name), name, rank)

    def read(self, entry: Entry) -> Entry:
        """Epoch and steps from the contents. Raises Foreign or Unreadable."""
        layout = (place_of(entry.path.rpartition("/")[0]), entry.series, entry.size_bytes)
        with opened(entry.path) as file:
            if is_encrypted(file):
                return entry
            offsets = self._layouts.get(layout)
            numbers = numbers_at(file, offsets) if offsets else None
            if numbers is None:
                outline = outline_of(file)
                numbers = outline.numbers
                # Files of one series and size have their numbers at the same places: only one must be walked.
                if len(self._layouts) >= _MAX_LAYOUTS:
                    self._layouts.clear()
                self._layouts[layout] = outline.offsets
        return with_numbers(entry, numbers)

    def reconcile(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Give the entries of one series comparable global steps (sessions count from different zeros)."""
        return with_steps_of_all_sessions(entries)

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Structure, siblings, checksum, and the label of breakpoint files. May raise Unreadable."""
        return verify_records(entry, look, required=_APPENDED)


MINDSPORE_CKPT = MindSporeCkpt()


def _claim(path: str, name: str, rank: int | None) -> Claim:
    stem = name[: -len(_SUFFIX)]
    if (found := _PERIODIC_NAME.fullmatch(stem)) is None:
        return Claim(path=path, members=(name,), kind=kind_of(stem), rank=rank, series=stem)
    runs = re.findall(r"\d+", found["runs"])
    return Claim(
        path=path,
        members=(name,),
        kind=Kind.GASP if found["gasp"] else Kind.PERIODIC,
        rank=rank,
        epoch=int(found["epoch"]),
        step_in_epoch=int(found["step"]),
        # PanGu names the files of rank 3 ``pangu3-1_20.ckpt``: the series is ``pangu``.
        series=f"{found['prefix'].removesuffix('' if rank is None else str(rank)) or found['prefix']}-",
        session=int(runs[-1]) if runs else 0,
    )


def with_numbers(entry: Entry, numbers: dict[str, float | int]) -> Entry:
    """Return ``entry`` with the epoch and the largest global step that its contents vouch for."""
    epoch = _count(numbers, "epoch_num")
    step_num, gasp = _count(numbers, "step_num"), entry.kind is Kind.GASP
    if gasp and step_num == entry.step_in_epoch and epoch != 1:
        step_num = None  # it starts anew in each epoch (``exception_save``)
    known = [step for step in (_count(numbers, "global_step"), step_num) if step is not None]
    step = _step_in_epoch(entry, numbers)
    epoch, reached = entry.epoch if epoch is None else epoch, max(known, default=entry.global_step)
    return replace(entry, epoch=epoch, step_in_epoch=step, global_step=reached)


def _step_in_epoch(entry: Entry, numbers: dict[str, float | int]) -> int | None:
    if entry.step_in_epoch is not None:
        return entry.step_in_epoch
    step_num, batch_num = _count(numbers, "step_num"), _count(numbers, "batch_num")
    return (step_num - 1) % batch_num + 1 if step_num and batch_num else None


def _count(numbers: dict[str, float | int], tag: str) -> int | None:
    number = numbers.get(tag)
    return number if isinstance(number, int) and number >= 0 else None


def verify_records(entry: Entry, look: Look, *, required: Sequence[str]) -> Verdict:
    """Judge one file of records; ``required`` are the tags that prove its end. May raise Unreadable."""
    with opened(entry.path, look.meter) as file:
        if is_encrypted(file):
            return judge_encrypted(file)
        outline = outline_of(file)
        family = [(one, found) for one in look.siblings if (found := _outline(one.path, stamp_in(one)))]
        alike = [(one, found) for one, found in family if one.kind is entry.kind]
        missing = _cut_at_border(outline, alike) or _mislabelled(entry, outline, family)
        if not (missing or alike or file.mode == _READ_ONLY):
            missing = _goes_on(outline, family)
        if missing:
            return Verdict(whole=False, why=missing, depth=Depth.STRUCTURE)
        if outline.crc is not None and look.depth is Depth.CHECKSUM:
            return _checked(file, outline)
        return _judge_end(entry, outline, family, required, read_only=file.mode == _READ_ONLY)


@lru_cache(maxsize=64)
def _outline(path: str, stamp: Stamp) -> Outline | None:
    """What a sibling holds; None if it cannot be read, or changed since it was listed."""
    try:
        with opened(path) as file:
            return outline_of(file) if file.stamp == stamp else None
    except Unreadable:
        return None


def _cut_at_border(outline: Outline, family: _Family) -> str:
    """Why siblings of the same writer show that this file should be longer; '' if they do not."""
    if longer := _goes_on(outline, family):
        return longer
    for sibling, other in family:
        name = base_name(sibling.path)
        if lost := [tag for tag in _APPENDED if tag in other.sizes and tag not in outline.sizes]:
            return f"lacks {' and '.join(lost)}, which {name} has at its end"
        if other.crc is not None and outline.crc is None:
            return f"lacks the checksum that {name} ends with"
    return ""


def _goes_on(outline: Outline, family: _Family) -> str:
    """Which sibling has the same records and more; '' if none."""
    tags = list(outline.sizes)
    for sibling, other in family:
        theirs = list(other.sizes)
        if len(tags) < len(theirs) and tags == theirs[: len(tags)]:
            name = base_name(sibling.path)
            return f"cut after record {len(tags)} of {len(theirs)}: {name} goes on with {theirs[len(tags)]!r}"
    return ""


def _mislabelled(entry: Entry, outline: Outline, family: _Family) -> str:
    """Why a breakpoint file was saved in the middle of an update; '' if nothing shows it.

    When a collective fails, ``exception_save`` labels the file with the step that was not finished. The
    optimizer's own count then lags one more behind the label than in the session's periodic files.
    """
    counted = _count(outline.numbers, "global_step")
    if entry.kind is not Kind.GASP or counted is None or entry.global_step is None:
        return ""
    usual = [
        (sibling.global_step or 0) - lag
        for sibling, other in family
        if sibling.kind is Kind.PERIODIC
        and sibling.session == entry.session
        and (lag := _count(other.numbers, "global_step")) is not None
    ]
    if entry.global_step - counted - max(usual, default=0) != 1:
        return ""
    torn = "saved in the middle of an update"
    return f"labelled step {entry.global_step}, its optimizer counts {counted}: {torn}"


def _checked(file: OpenFile, outline: Outline) -> Verdict:
    crc = file.crc32(0, outline.end)
    same = crc == outline.crc
    matches = f"{len(outline.sizes)} records, checksum matches"
    why = matches if same else "its checksum does not match its bytes"
    return Verdict(whole=same, why=why, depth=Depth.CHECKSUM, digest=f"crc32:{crc:08x}")


def _judge_end(
    entry: Entry, outline: Outline, family: _Family, required: Sequence[str], *, read_only: bool
) -> Verdict:
    """Look for the proof that the last record is the last one."""
    count = f"{len(outline.sizes)} records"
    if outline.crc is not None:
        return Verdict(whole=True, why=f"{count} and a checksum (not compared)", depth=Depth.STRUCTURE)
    if not (absent := [tag for tag in required if tag not in outline.sizes]):
        return Verdict(whole=True, why=f"{count}, the appended ones included", depth=Depth.STRUCTURE)
    if len(absent) < len(required):
        why = f"lacks {', '.join(absent)}: cut within the records appended at its end"
        return Verdict(whole=False, why=why, depth=Depth.STRUCTURE)
    # Saves of one moment may have been cut by one event; only another step proves anything.
    told, sizes = entry.identity.told, outline.sizes
    twins = (one for one, other in family if one.identity.told != told and other.sizes == sizes)
    if (twin := next(twins, None)) is not None:
        why = f"{count}, the same as {base_name(twin.path)}"
        return Verdict(whole=True, why=why, depth=Depth.STRUCTURE, provisional=True)
    if read_only:
        why = f"{count}, and read-only, which it became after the last byte"
        return Verdict(whole=True, why=why, depth=Depth.STRUCTURE, provisional=True)
    why = (
        "nothing proves its end: no epoch_num and step_num (append_info), no crc_check, not read-only, "
        "no save of another step to compare with"
    )
    return Verdict(whole=False, why=why, depth=Depth.STRUCTURE, provisional=True)
