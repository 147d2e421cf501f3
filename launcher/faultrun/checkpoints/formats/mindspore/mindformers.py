"""MindFormers' folder of one save in its format 2.0, ``<checkpoint>/iteration_00000001/``.

Every rank writes ``[<prefix>-]model-<rank>-<ranks>.safetensors`` and ``...-opt-...``, seven digits each;
rank 0 ``common.json`` (epoch, steps), ``metadata.json`` (where each slice of a parameter lies), and last
``<checkpoint>/latest_checkpointed_iteration.txt``. It loads into another number of ranks. One device alone
may write no ``metadata.json``. The format 1.0, a file for each rank in ``rank_<r>/``, is MindSpore's own.

Source: ``checkpoint/checkpoint.py`` and ``checkpoint/utils.py`` of MindFormers 2.1.0.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.formats.safetensors import SAFETENSORS
from faultrun.checkpoints.names import base_name, claim_directory, with_progress
from faultrun.checkpoints.reading import names_in, read_json, within
from faultrun.model.checkpoint import Depth, Entry, Verdict

_ITERATION = re.compile(r"iteration_(\d{8,15})")
_FILE = re.compile(r"(?P<stem>(?:.+-)?(?:model|opt))-(?P<rank>\d{7})-(?P<ranks>\d{7})\.safetensors")
_COMMON, _METADATA = "common.json", "metadata.json"
_MOST_JSON_BYTES = 256 << 20
_MOST_RANKS = 1 << 17


class MindFormers:
    """The format ``mindformers``; see the module's text."""

    name = "mindformers"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim a folder of one iteration with files of that name in it."""
        number = _ITERATION.fullmatch(base_name(listing.path))
        if number is None or not (files := sorted(filter(_FILE.fullmatch, listing.files))):
            return
        told = [name for name in (_COMMON, _METADATA) if name in listing.files]
        several = any(int(found["ranks"]) > 1 for found in map(_FILE.fullmatch, files) if found)
        needed = (_COMMON, _METADATA) if several else (_COMMON,)
        lacking = next((name for name in needed if name not in told), "")
        last = f"it has no {lacking}, which is written last: the save was not finished"
        unfinished = last if lacking else ""
        claim = claim_directory(listing, (*told, *files))
        yield replace(claim, rank=None, global_step=int(number[1]), unfinished=unfinished)

    def read(self, entry: Entry) -> Entry:
        """Epoch and steps from ``common.json``; it has no world size, for any can load it."""
        return with_progress(entry, _json(entry.path, _COMMON).items())

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Look for every file that is named, then into each. May raise Unreadable, with the name."""
        names = names_in(entry.path)
        files = [name for name in names if _FILE.fullmatch(name)]
        _json(entry.path, _COMMON)
        wanted = _placed(entry.path) if _METADATA in names else _of_all_ranks(files)
        if not (lacking := next((name for name in wanted if name not in names), "")):
            lacking = _less_than(look.siblings, files)
        if lacking:
            return Verdict(whole=False, why=f"it has no {lacking}", depth=Depth.NAME, provisional=True)
        proved = [_verified(entry, name, look) for name in files]
        depth = Depth.CHECKSUM if all(proved) else Depth.STRUCTURE
        why = f"{len(files)} files, all complete"
        return Verdict(whole=True, why=why, depth=depth, provisional=not look.siblings)


MINDFORMERS = MindFormers()


def _placed(path: str) -> list[str]:
    """Every file that ``metadata.json`` places a slice in; names of this directory, never paths."""
    if not isinstance((storage := _json(path, _METADATA).get("storage_data")), dict):
        raise Unreadable(f"its {_METADATA} does not say which file holds which parameter")
    slices = [one for places in storage.values() if isinstance(places, list) for one in places]
    names = (one.get("file_name") for one in slices if isinstance(one, dict))
    named = {one for one in names if isinstance(one, str)}
    if not named or not all(map(_FILE.fullmatch, named)):
        raise Unreadable(f"its {_METADATA} does not say which file holds which parameter")
    return sorted(named)


def _of_all_ranks(files: Sequence[str]) -> Iterator[str]:
    for stem, ranks in sorted({(one["stem"], one["ranks"]) for one in map(_FILE.fullmatch, files) if one}):
        for rank in range(min(int(ranks), _MOST_RANKS)):
            yield f"{stem}-{rank:07d}-{ranks}.safetensors"


def _less_than(siblings: Sequence[Entry], files: Sequence[str]) -> str:
    """A kind of file, the optimizer's, that another save has; the number of ranks may be another."""
    kinds = {found["stem"].rpartition("-")[2] for found in map(_FILE.fullmatch, files) if found}
    for sibling in siblings:
        for name in names_in(sibling.path):
            if (found := _FILE.fullmatch(name)) and found["stem"].rpartition("-")[2] not in kinds:
                return f"{name}, which {base_name(sibling.path)} has"
    return ""


def _verified(entry: Entry, name: str, look: Look) -> bool:
    with within(name):
        inner = replace(entry, path=f"{entry.path}/{name}")
        if not (verdict := SAFETENSORS.verify(inner, replace(look, siblings=()))).whole:
            raise Unreadable(verdict.why)
    return verdict.depth is Depth.CHECKSUM


def _json(path: str, name: str) -> dict[str, object]:
    with within(name):
        told = read_json(f"{path}/{name}", _MOST_JSON_BYTES)
    if not isinstance(told, dict):
        raise Unreadable(f"its {name} holds no object")
    return told
