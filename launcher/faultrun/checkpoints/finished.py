"""Marks the saves of a run that has ended well, so that a new job of its name does not go on from them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from faultrun.checkpoints.finish_marks import add_marks, mark_of
from faultrun.checkpoints.format import Listing, Unreadable
from faultrun.checkpoints.gasp_manifest import SUFFIX, read_manifest
from faultrun.checkpoints.scan import walk
from faultrun.model.checkpoint import Refusal


def mark_finished(roots: Sequence[str], folders: Sequence[str], run_id: str) -> list[str]:
    """Note beside ``roots`` and ``folders`` that the run of the saves of ``run_id`` in them is over.

    In ``folders`` nothing below is looked at. Returns where that could not be noted and why, in words.
    """
    found = [_marked(root, walk(root), run_id) for root in roots]
    named = {Path(root) for root in roots}
    others = [folder for folder in folders if named.isdisjoint((Path(folder), *Path(folder).parents))]
    found += [_marked(folder, islice(walk(folder), 1), run_id) for folder in others]
    return [trouble for trouble in found if trouble]


def _marked(root: str, listings: Iterable[Listing | Refusal], run_id: str) -> str:
    """Mark those under one root; why that was not possible, or ''."""
    try:
        marks = [mark_of(manifest) for manifest in _manifests_of(run_id, listings)]
        if marks:
            add_marks(root, marks)
    except (OSError, Unreadable) as error:
        return f"{root}: {error}"
    return ""


def _manifests_of(run_id: str, listings: Iterable[Listing | Refusal]) -> Iterator[str]:
    for listing in listings:
        if isinstance(listing, Refusal):
            continue
        for name in listing.files:
            if name.endswith(SUFFIX) and _is_of(run_id, listing.join(name.removesuffix(SUFFIX))):
                yield listing.join(name)


def _is_of(run_id: str, path: str) -> bool:
    try:
        return read_manifest(path).run_id == run_id
    except Unreadable:
        return False
