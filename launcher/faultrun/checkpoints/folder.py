"""A directory of files that only together are a checkpoint: model, optimizer, scheduler, random states.

Written by Hugging Face's Trainer (``checkpoint-N/``, ``trainer_state.json``
last), accelerate (``random_states_R.pkl`` last), DeepSpeed
(``global_stepN/``), FSDP and scripts that use the same names. It is whole
only if every file is, no rank's file is missing, and it has all that its
siblings have. Its path is the directory.

Sources: ``trainer.py`` of transformers 5, ``checkpointing.py`` of accelerate 1.15,
``runtime/engine.py`` of DeepSpeed.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from faultrun.checkpoints.folder_names import (
    SHARD,
    belongs,
    is_dcp_part,
    is_model,
    is_side,
    missing_number,
    parts_of,
    role_of,
)
from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.names import base_name, rank_of_directory
from faultrun.checkpoints.reading import opened
from faultrun.checkpoints.safetensors import FORMAT as SAFETENSORS
from faultrun.checkpoints.shown import shown
from faultrun.checkpoints.step_names import epoch_of, global_step_of, kind_of, series_of
from faultrun.checkpoints.torch_dcp import FORMAT as DCP
from faultrun.checkpoints.torch_file import FORMAT as TORCH
from faultrun.model.checkpoint import Depth, Entry, Verdict

TRAINER = "trainer_state.json"
_INCOMPLETE = "checkpoint-is-incomplete.txt"
_TRAINER_HEAD_BYTES = 4096
_TRAINER_STEP = re.compile(rb'"global_step": (\d{1,15})[,\s}]')
_TRAINER_EPOCH = re.compile(rb'"epoch": (\d{1,9})(?:\.\d+)?[,\s}]')
_MOST_JSON_BYTES = 64 << 20
_NAMED_BY_STEP = re.compile(r"checkpoint[-_]\d+")
_OWN_FILES = (".pt", ".pth", ".tar", ".ckpt", ".safetensors")


class Folder:
    """The format ``folder``; see the module's text."""

    name = "folder"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim the directory with all files in it that belong together."""
        members = [name for name in listing.files if belongs(name)]
        parts = tuple(parts_of(listing.directories))
        if not members or not _is_folder(listing, members, parts):
            return
        folder = listing.path.rpartition("/")[2]
        yield Claim(
            path=listing.path,
            members=tuple(sorted(members)),
            parts=parts,
            kind=kind_of(folder),
            rank=rank_of_directory(listing.path),
            epoch=epoch_of(folder),
            global_step=global_step_of("", listing.path),
            series=series_of(folder),
            unfinished=_unfinished(listing.files, parts),
        )

    def read(self, entry: Entry) -> Entry:
        """Epoch and step from ``trainer_state.json``, else from the model's file if that tells them."""
        names = _names_in(entry.path)
        if TRAINER in names:
            return _with_trainer_state(entry)
        for name in filter(is_model, names):
            if not name.endswith(".safetensors") and not SHARD.search(name):
                told = TORCH.read(replace(entry, path=f"{entry.path}/{name}"))
                return replace(told, path=entry.path)
        return entry

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Look for what is missing, then into every file. May raise Unreadable for a damaged one."""
        names = _names_in(entry.path)
        members = sorted(filter(belongs, names))
        parts = parts_of(names)
        missing = _incomplete(members, parts) or _less_than(look.siblings, {*members, *parts})
        if missing:
            return Verdict(whole=False, why=missing, depth=Depth.NAME, provisional=True)
        proved = [_verify_file(entry, name, look) for name in members]
        proved += [_verify_part(entry, name, look) for name in parts]
        why = f"{len(members) + len(parts)} files, all complete"
        depth = Depth.CHECKSUM if all(proved) else Depth.STRUCTURE
        # A sibling may yet show that a file is missing; and the entry's stamp does not cover its directories.
        provisional = not look.siblings or bool(parts)
        return Verdict(whole=True, why=why, depth=depth, provisional=provisional)


FORMAT = Folder()


def _is_folder(listing: Listing, members: Sequence[str], parts: Collection[str]) -> bool:
    if any(is_model(name) for name in members) or parts:
        named_by_step = _NAMED_BY_STEP.fullmatch(listing.path.rpartition("/")[2]) is not None
        grouped = any(name.endswith("_states.pt") for name in members)
        return named_by_step or grouped or any(map(is_side, members)) or TRAINER in members
    # A script's own names for its models: what lies beside them is not ours to judge.
    return not any(name.endswith(_OWN_FILES) and not is_side(name) for name in listing.files)


def _unfinished(names: Collection[str], parts: Collection[str]) -> str:
    """What shows that the save was never complete; '' for one that is, or that lost something later."""
    if _INCOMPLETE in names:
        return f"it has {_INCOMPLETE}: the save was cut short"
    roles = {role_of(name) for name in names}
    if TRAINER in names or not (parts or any(map(is_model, names))):
        return ""
    if roles & {"training_args.bin", "rng_state.pth"}:
        return f"it has no {TRAINER}, which is written last: the save was not finished"
    if roles & {"optimizer.bin", "scheduler.bin", "sampler.bin"} and "random_states.pkl" not in roles:
        return "it has no random_states_0.pkl, which is written last: the save was not finished"
    return ""


def _incomplete(members: Sequence[str], parts: Sequence[str]) -> str:
    """What the directory's own files show to be missing."""
    roles = {role_of(name) for name in members}
    if not parts and not any(map(is_model, members)):
        return "it has no file of the model"
    gap = missing_number(members)
    if gap:
        return f"it has no {gap}"
    if not parts and roles & {"scheduler.pt", "rng_state.pth"}:
        together = {"optimizer", "scheduler", *({"rng_state"} if TRAINER in roles else ())}
        lacking = sorted(together - {role.partition(".")[0] for role in roles})
        if lacking:
            return f"it has no file of the {lacking[0]}, which is saved with the others"
    return ""


def _less_than(siblings: Sequence[Entry], names: Collection[str]) -> str:
    """What other checkpoints of the series have and this one lacks.

    Another number of ranks has another number of random states, but
    DeepSpeed's shards are of no use without each other.
    """
    there = set(map(_compared_as, names))
    for sibling in siblings:
        theirs = _names_in(sibling.path)
        for name in (*filter(belongs, theirs), *parts_of(theirs)):
            if _compared_as(name) not in there:
                return f"it has no {name}, which {base_name(sibling.path)} has"
    return ""


def _compared_as(name: str) -> str:
    return name if name.endswith("_states.pt") else role_of(name)


def _verify_file(entry: Entry, name: str, look: Look) -> bool:
    """Return whether every byte was checked. Raises Unreadable, with the file's name, for a damaged one."""
    path = f"{entry.path}/{name}"
    try:
        if name.endswith(".json"):
            _check_json(path)
            return True
        form = SAFETENSORS if name.endswith(".safetensors") else TORCH
        verdict = form.verify(replace(entry, path=path), look)
    except Unreadable as damaged:
        raise Unreadable(f"its {shown(name)}: {damaged.why}") from damaged
    if not verdict.whole:
        raise Unreadable(f"its {shown(name)}: {verdict.why}")
    return verdict.depth is Depth.CHECKSUM


def _verify_part(entry: Entry, name: str, look: Look) -> bool:
    """A directory within: DeepSpeed's shards, or one of torch.distributed.checkpoint."""
    inner = replace(entry, path=f"{entry.path}/{name}")
    alone = replace(look, siblings=())
    try:
        verdict = (DCP if is_dcp_part(name) else FORMAT).verify(inner, alone)
    except Unreadable as damaged:
        raise Unreadable(f"its {shown(name)}: {damaged.why}") from damaged
    if not verdict.whole:
        raise Unreadable(f"its {shown(name)}: {verdict.why}")
    return verdict.depth is Depth.CHECKSUM


def _check_json(path: str) -> None:
    with opened(path) as file:
        if file.size_bytes > _MOST_JSON_BYTES:
            raise Unreadable(f"has {file.size_bytes} bytes (limit {_MOST_JSON_BYTES})")
        text = file.read(0, file.size_bytes)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as err:
        raise Unreadable("is torn: not JSON") from err


def _with_trainer_state(entry: Entry) -> Entry:
    """The numbers stand before the log, which grows with the training."""
    with opened(f"{entry.path}/{TRAINER}") as file:
        head = file.read(0, min(file.size_bytes, _TRAINER_HEAD_BYTES)).partition(b'"log_history"')[0]
    step, epoch = _TRAINER_STEP.search(head), _TRAINER_EPOCH.search(head)
    return replace(
        entry,
        global_step=int(step[1]) if step else entry.global_step,
        epoch=int(epoch[1]) if epoch else entry.epoch,
    )


def _names_in(path: str) -> list[str]:
    try:
        return sorted(child.name for child in Path(path).iterdir())
    except OSError as err:
        raise Unreadable(f"cannot be read: {err.strerror}") from err
