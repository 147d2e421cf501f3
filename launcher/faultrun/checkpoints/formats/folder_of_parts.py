"""A directory of files that only together are a checkpoint: model, optimizer, scheduler, random states.

Written by Hugging Face's Trainer (``checkpoint-N/``, ``trainer_state.json`` last), accelerate
(``random_states_R.pkl`` last, then what the script registered), DeepSpeed (``global_stepN/``), FSDP and
scripts that use the same names. It is whole only if every file is, no rank's file is missing, all are of one
save, and it has all that its earlier siblings have. Its path is the directory.

A side file holds no model: the optimizer, a scheduler, random states,
arguments. It is never a checkpoint by itself, whatever directory it lies in. A model that
``save_model()`` exported beside the checkpoints is none either.

accelerate's ``checkpoint_N`` counts saves. The step is what a registered object tells, or how
many updates the optimizer counts.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.formats.deepspeed import DEEPSPEED
from faultrun.checkpoints.formats.deepspeed import members_of as deepspeeds_of
from faultrun.checkpoints.formats.folder_members import (
    TRAINER,
    counts_saves,
    expected,
    exported,
    fewer_ranks,
    is_folder,
    is_model,
    is_model_only,
    members_of,
    missing_beside,
    missing_within,
    parts_of,
    ranks_of,
    stem_of,
    unfinished,
)
from faultrun.checkpoints.formats.folder_times import check_one_save
from faultrun.checkpoints.formats.safetensors import SAFETENSORS, verify_index
from faultrun.checkpoints.formats.torch.dcp import TORCH_DCP
from faultrun.checkpoints.formats.torch.saved_file import TORCH_FILE
from faultrun.checkpoints.names import claim_directory, is_dcp_part
from faultrun.checkpoints.reading import names_in, opened, read_json, within
from faultrun.model.checkpoint import Depth, Entry, Verdict

_TRAINER_HEAD_BYTES = 4096
_TRAINER_STEP = re.compile(rb'"global_step": (\d{1,15})[,\s}]')
_TRAINER_EPOCH = re.compile(rb'"epoch": (\d{1,9})(?:\.\d+)?[,\s}]')
_MOST_JSON_BYTES = 64 << 20


class CheckpointFolder:
    """The format ``folder``; see the module's text."""

    name = "folder"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim the directory with all files in it that belong together."""
        members = members_of(listing.files)
        parts = tuple(parts_of(listing.directories))
        if members and is_folder(listing.path, listing.files, members, parts):
            never = unfinished(listing.path, listing.files, parts)
            claim = replace(claim_directory(listing, tuple(members)), parts=parts, unfinished=never)
            save = counts_saves(listing.path, members)
            yield claim if save is None else replace(claim, global_step=None, save_number=save)

    def read(self, entry: Entry) -> Entry:
        """Epoch and step from ``trainer_state.json``, else from the first file that tells them.

        The random numbers, a file of each rank, tell how many there were.
        """
        names = names_in(entry.path)
        entry = replace(entry, world_size=ranks_of(names), fits_any_world=True)
        if TRAINER in names:
            with opened(f"{entry.path}/{TRAINER}") as file:
                head = file.read(0, min(file.size_bytes, _TRAINER_HEAD_BYTES))
            head = head.partition(b'"log_history"')[0]  # the numbers stand before the log, which grows
            step, epoch = _TRAINER_STEP.search(head), _TRAINER_EPOCH.search(head)
            global_step = int(step[1]) if step else entry.global_step
            return replace(entry, global_step=global_step, epoch=int(epoch[1]) if epoch else entry.epoch)
        registered = [name for name in names if name.startswith("custom_checkpoint_")]
        models = [name for name in names if is_model(name) and not name.endswith(".safetensors")]
        for name in (*registered, *(name for name in models if "-of-" not in name)):
            with within(name):
                told = TORCH_FILE.read(replace(entry, path=f"{entry.path}/{name}"))
            if (told := replace(told, path=entry.path)) != entry:
                return told
        return entry if entry.global_step is not None else _with_updates(entry, names)

    def reconcile(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Count saves where others of the series do: one that lost its random states does not show it."""
        found = [*entries]
        for at, one in enumerate(found if any(one.save_number is not None for one in found) else ()):
            number = counts_saves(one.path, ("random_states_0.pkl",))
            if one.save_number is None and one.global_step == number:
                counted = replace(one, global_step=None, save_number=number)
                found[at] = _with_updates(counted, names_in(one.path))
        return found

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Look for what is missing, then into every file. May raise Unreadable for a damaged one."""
        names = names_in(entry.path)
        members, parts = members_of(names), parts_of(names)
        doubted = expected(members, parts)
        missing = missing_within(members, parts) or _less_than(entry, look, {*members, *parts}, doubted)
        if missing:
            return Verdict(whole=False, why=missing, depth=Depth.NAME, provisional=True)
        proved = [_verify_inside(entry, name, look) for name in members]
        proved += [_verify_inside(entry, name, replace(look, siblings=()), part=True) for name in parts]
        check_one_save(entry.path, members)
        why = exported(entry.path, members, parts)
        if doubted and not (why or look.siblings or look.trained_past):
            why = f"it has no file of the {doubted[0]}, and no other save tells whether its script saves one"
        if why:
            return Verdict(whole=False, why=why, depth=Depth.STRUCTURE, provisional=True, unverifiable=True)
        why = f"{len(members) + len(parts)} files, all complete"
        why += "; the model only, as save_only_model has it" if is_model_only(members, parts) else ""
        depth = Depth.CHECKSUM if all(proved) else Depth.STRUCTURE
        # A sibling may yet show that a file is missing; and the entry's stamp does not cover its directories.
        return Verdict(whole=True, why=why, depth=depth, provisional=not look.siblings or bool(parts))


FOLDER = CheckpointFolder()


def _less_than(entry: Entry, look: Look, names: set[str], doubted: Sequence[str]) -> str:
    """What an earlier sibling has and this one lacks; a later one, that may hold more, if ``doubted``."""
    for nth, sibling in enumerate(look.siblings):
        earlier = _is_earlier(sibling, entry)
        theirs = [one for one in names_in(sibling.path) if earlier or stem_of(one) in doubted]
        missing = missing_beside(sibling.path, theirs, names)
        # After a world has shrunk all the later ones have fewer: only the nearest counts.
        missing = missing or (fewer_ranks(sibling.path, theirs, names) if earlier and nth == 0 else "")
        if missing:
            return missing
    gone = (missing_beside(path, theirs, names) for path, theirs in look.gone.items())
    return "" if look.siblings else next(filter(None, gone), "")


def _is_earlier(one: Entry, other: Entry) -> bool:
    """By the number of the save, else by the step, else by the time of writing."""
    if one.save_number is not None and other.save_number is not None:
        return one.save_number < other.save_number
    if one.global_step is not None and other.global_step is not None:
        return (one.global_step, one.mtime_ns) < (other.global_step, other.mtime_ns)
    return one.mtime_ns < other.mtime_ns


def _verify_inside(entry: Entry, name: str, look: Look, *, part: bool = False) -> bool:
    """Return whether every byte was checked. Raises Unreadable, with the file's name, for a damaged one.

    ``part``: a directory within, DeepSpeed's shards or one of torch.distributed.checkpoint.
    """
    inner = replace(entry, path=f"{entry.path}/{name}")
    if name.endswith(".index.json"):
        verify_index(entry.path, name, look)
        return False
    with within(name):
        if part:
            deepspeed = DEEPSPEED if deepspeeds_of(names_in(inner.path)) else FOLDER
            verdict = (TORCH_DCP if is_dcp_part(name) else deepspeed).verify(inner, look)
        elif name.endswith(".json"):
            read_json(inner.path, _MOST_JSON_BYTES)
            return True
        else:
            verdict = (SAFETENSORS if name.endswith(".safetensors") else TORCH_FILE).verify(inner, look)
        if not verdict.whole:
            raise Unreadable(verdict.why)
    return verdict.depth is Depth.CHECKSUM


def _with_updates(entry: Entry, names: Sequence[str]) -> Entry:
    """With the number of updates that the optimizer counts. One that is damaged is told by ``verify``."""
    with suppress(Unreadable):
        if "optimizer_0" in names:
            return replace(TORCH_DCP.read(replace(entry, path=f"{entry.path}/optimizer_0")), path=entry.path)
        for name in ("optimizer.bin", "optimizer.pt"):
            if name in names:
                return replace(entry, global_step=TORCH_FILE.updates_in(f"{entry.path}/{name}"))
    return entry
