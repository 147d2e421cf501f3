"""Marks the saves of a run that has ended well, so that a new job of its name does not go on from them."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from faultrun.checkpoints.format import Listing, Unreadable
from faultrun.checkpoints.gasp_manifest import FINISHED, SUFFIX, read_manifest
from faultrun.checkpoints.scan import walk
from faultrun.model.checkpoint import Refusal


def mark_finished(roots: Sequence[str], folders: Sequence[str], run_id: str) -> list[str]:
    """Write into the manifests of ``run_id`` under ``roots``, and right in ``folders``, that the run is over.

    Returns what could not be marked and why, in words.
    """
    listings = chain(
        chain.from_iterable(walk(root) for root in roots),
        chain.from_iterable(islice(walk(folder), 1) for folder in folders),
    )
    return [trouble for path in _saves_of(run_id, listings) if (trouble := _marked(path + SUFFIX))]


def _saves_of(run_id: str, listings: Iterable[Listing | Refusal]) -> Iterator[str]:
    for listing in listings:
        if isinstance(listing, Refusal):
            continue
        for name in listing.files:
            path = listing.join(name.removesuffix(SUFFIX))
            if name.endswith(SUFFIX) and _is_open(path, run_id):
                yield path


def _is_open(path: str, run_id: str) -> bool:
    try:
        manifest = read_manifest(path)
    except Unreadable:
        return False
    return manifest.run_id == run_id and not manifest.finished


def _marked(manifest: str) -> str:
    """Mark one in one step, since half a manifest would make a whole save worthless; why not, if not."""
    try:
        _mark(manifest)
    except (OSError, ValueError) as error:
        return f"{manifest}: {error}"
    return ""


def _mark(manifest: str) -> None:
    with open(manifest, encoding="utf-8") as file:  # noqa: PTH123 - a string is all there is
        fields = json.load(file)
    folder, _, name = manifest.rpartition("/")
    fresh = f"{folder}/.{name}.tmp"
    with open(fresh, "w", encoding="utf-8") as file:  # noqa: PTH123 - as above
        json.dump({**fields, FINISHED: True}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, manifest)  # noqa: PTH105 - as above
