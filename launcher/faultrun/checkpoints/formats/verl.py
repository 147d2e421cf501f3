"""verl's folder of one save: ``<default_local_dir>/global_step_N/``: ``actor/``, ``critic/``, ``data.pt``.

The trainer's process saves the actor, the critic, then ``data.pt`` (where its data loader stands), and last
``<default_local_dir>/latest_checkpointed_iteration.txt``. With FSDP each role has a file for each rank and
kind of state, ``model_world_size_8_rank_0.pt``; with Megatron ``dist_ckpt/``, a folder of Megatron's.
``huggingface/`` is for others to load; it is looked into all the same.

Source: verl's documentation of its checkpoints (``verl/trainer/ppo/ray_trainer.py``); nothing here ran it.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.formats.deepspeed import verified_inside
from faultrun.checkpoints.formats.megatron import MEGATRON
from faultrun.checkpoints.formats.safetensors import SAFETENSORS
from faultrun.checkpoints.names import base_name, claim_directory
from faultrun.checkpoints.reading import names_in
from faultrun.model.checkpoint import Depth, Entry, Verdict

_STEP = re.compile(r"global_step_(\d{1,15})")
_ROLES = frozenset({"actor", "critic"})
_LAST = "data.pt"
_SHARD = re.compile(r"(.+)_world_size_(\d{1,6})_rank_(\d{1,6})\.pt")


class Verl:
    """The format ``verl``; see the module's text."""

    name = "verl"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim a folder of one step with a role in it."""
        roles = tuple(sorted(_ROLES & listing.directories))
        if not roles or not _STEP.fullmatch(base_name(listing.path)):
            return
        there = _LAST in listing.files
        unfinished = "" if there else f"it has no {_LAST}, which is written last: the save was not finished"
        claim = claim_directory(listing, (_LAST,) if there else ())
        yield replace(claim, rank=None, parts=roles, unfinished=unfinished)

    def read(self, entry: Entry) -> Entry:
        """Nothing but its name tells the step."""
        return entry

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Look for every rank's file of every role, then into each. May raise Unreadable."""
        roles = sorted(_ROLES & set(names_in(entry.path)))
        count, proved = 1, [verified_inside(entry, _LAST, look)]
        for role in roles:
            names = names_in(f"{entry.path}/{role}")
            if missing := _missing(names):
                why = f"it has no {role}/{missing}"
                return Verdict(whole=False, why=why, depth=Depth.NAME, provisional=True)
            inner = [f"{role}/{name}" for name in names if name.endswith(".pt")]
            proved += [verified_inside(entry, name, look) for name in inner]
            count += len(inner)
            for folder in {"dist_ckpt", "huggingface"} & set(names):
                _verify_folder(entry, f"{role}/{folder}", look)
        depth = Depth.CHECKSUM if all(proved) else Depth.STRUCTURE
        why = f"{count} files of {' and '.join(roles)}, all complete"
        return Verdict(whole=True, why=why, depth=depth, provisional=True)  # the stamp covers no directories


VERL = Verl()


def _missing(names: list[str]) -> str:
    there = set(names)
    for found in filter(None, map(_SHARD.fullmatch, names)):
        for rank in range(min(int(found[2]), 1 << 17)):
            if (wanted := f"{found[1]}_world_size_{found[2]}_rank_{rank}.pt") not in there:
                return wanted
    kinds = {found[1] for found in map(_SHARD.fullmatch, names) if found}
    return "" if kinds or "dist_ckpt" in there else "file of the model"


def _verify_folder(entry: Entry, name: str, look: Look) -> None:
    inner = replace(entry, path=f"{entry.path}/{name}")
    if name.endswith("dist_ckpt"):
        _raise_unless(MEGATRON.verify(inner, look), name)
        return
    for file in names_in(inner.path):
        if file.endswith(".safetensors"):
            path = f"{inner.path}/{file}"
            _raise_unless(SAFETENSORS.verify(replace(inner, path=path), look), f"{name}/{file}")


def _raise_unless(verdict: Verdict, name: str) -> None:
    if not verdict.whole:
        raise Unreadable(f"its {name}: {verdict.why}")
