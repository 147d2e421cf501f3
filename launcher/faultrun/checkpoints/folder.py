"""A directory of files that only together are a checkpoint: model, optimizer, scheduler, random states.

Written by Hugging Face's Trainer (``checkpoint-N/``, ``trainer_state.json``
last), accelerate (``random_states_R.pkl`` last), DeepSpeed
(``global_stepN/``), FSDP and scripts that use the same names. It is whole
only if every file is, no rank's file is missing, and it has all that its
siblings have. Its path is the directory.

A side file holds no model: the optimizer, a scheduler, random states,
arguments. It is never a checkpoint by itself, whatever directory it lies in.

Sources: ``trainer.py`` of transformers 5, ``checkpointing.py`` of accelerate 1.15,
``runtime/engine.py`` of DeepSpeed.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from faultrun.checkpoints.deepspeed import DEEPSPEED
from faultrun.checkpoints.deepspeed import members_of as deepspeeds_of
from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.names import base_name, claim_directory, is_dcp_part, is_side, shown
from faultrun.checkpoints.reading import names_in, opened, read_json
from faultrun.checkpoints.safetensors import SAFETENSORS
from faultrun.checkpoints.torch_dcp import TORCH_DCP
from faultrun.checkpoints.torch_file import TORCH_FILE
from faultrun.model.checkpoint import Depth, Entry, Verdict

TRAINER = "trainer_state.json"
_INCOMPLETE = "checkpoint-is-incomplete.txt"
_TRAINER_HEAD_BYTES = 4096
_TRAINER_STEP = re.compile(rb'"global_step": (\d{1,15})[,\s}]')
_TRAINER_EPOCH = re.compile(rb'"epoch": (\d{1,9})(?:\.\d+)?[,\s}]')
_MOST_JSON_BYTES = 64 << 20
_NAMED_BY_STEP = re.compile(r"checkpoint[-_]\d+")
_OWN_FILES = (".pt", ".pth", ".tar", ".ckpt", ".safetensors")

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=\.)")
_DEEPSPEED_PART = re.compile(r"global_step\d+|pytorch_model(?:_\d{1,2})?")
_DEEPSPEED = r"(?:.*_)?mp_rank_\d+_%s_states\.pt"
_SIDE = re.compile(
    r"(?:optimizer|scheduler|lr_scheduler|scaler|rng_state(?:_\d+)?|optim(?:izer)?_state_dict)\.(?:pt|pth)"
    r"|(?:optimizer|scheduler|sampler|dl_state_dict|training_args)(?:_\d{1,2})?\.bin"
    r"|(?:random_states|custom_checkpoint)_\d+\.pkl|" + _DEEPSPEED % "optim"
)
_MODEL = re.compile(
    r"(?:adapter_|pytorch_|diffusion_pytorch_)?model(?:_\d{1,2}|-\d{5}-of-\d{5})?\.(?:safetensors|bin)"
    r"|pytorch_model_fsdp\.bin|(?:adapter_)?model(?:_state_dict)?\.(?:pt|pth)"
    r"|layer_\d+-model_\d+-model_states\.pt|" + _DEEPSPEED % "model"
)
_TOLD = re.compile(r"trainer_state\.json|.*\.(?:safetensors|bin)\.index\.json")
_BY_RANK = re.compile(r"(?<=_rank_|state_|tates_)\d+")
_BY_NUMBER = re.compile(r"(?<=model|mizer|duler|mpler)_(\d+)(?=\.)")


class CheckpointFolder:
    """The format ``folder``; see the module's text."""

    name = "folder"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim the directory with all files in it that belong together."""
        members = sorted(filter(_belongs, listing.files))
        parts = tuple(_parts_of(listing.directories))
        if members and _is_folder(listing, members, parts):
            unfinished = _unfinished(listing.files, parts)
            yield replace(claim_directory(listing, tuple(members)), parts=parts, unfinished=unfinished)

    def read(self, entry: Entry) -> Entry:
        """Epoch and step from ``trainer_state.json``, else from the model's file if that tells them."""
        names = names_in(entry.path)
        if TRAINER in names:
            return _with_trainer_state(entry)
        for name in filter(_MODEL.fullmatch, names):
            if not name.endswith(".safetensors") and not _SHARD.search(name):
                told = TORCH_FILE.read(replace(entry, path=f"{entry.path}/{name}"))
                return replace(told, path=entry.path)
        return entry

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Look for what is missing, then into every file. May raise Unreadable for a damaged one."""
        names = names_in(entry.path)
        members = list(filter(_belongs, names))
        parts = _parts_of(names)
        missing = _incomplete(members, parts) or _less_than(look.siblings, {*members, *parts})
        if missing:
            return Verdict(whole=False, why=missing, depth=Depth.NAME, provisional=True)
        proved = [_verify_inside(entry, name, look) for name in members]
        proved += [_verify_inside(entry, name, replace(look, siblings=()), part=True) for name in parts]
        why = f"{len(members) + len(parts)} files, all complete"
        depth = Depth.CHECKSUM if all(proved) else Depth.STRUCTURE
        # A sibling may yet show that a file is missing; and the entry's stamp does not cover its directories.
        provisional = not look.siblings or bool(parts)
        return Verdict(whole=True, why=why, depth=depth, provisional=provisional)


FOLDER = CheckpointFolder()


def _belongs(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (_MODEL, _SIDE, _TOLD))


def _parts_of(directories: Iterable[str]) -> list[str]:
    """Which directories within belong to it: DeepSpeed's below Trainer's or accelerate's, and FSDP's.

    Several ``global_step`` are not one checkpoint: that is the folder of all of them.
    """
    found = sorted(name for name in directories if is_dcp_part(name) or _DEEPSPEED_PART.fullmatch(name))
    steps = [name for name in found if name.startswith("global_step")]
    return found if len(steps) < 2 else [name for name in found if name not in steps]


def _is_folder(listing: Listing, members: Sequence[str], parts: Collection[str]) -> bool:
    if any(map(_MODEL.fullmatch, members)) or parts:
        named_by_step = _NAMED_BY_STEP.fullmatch(base_name(listing.path)) is not None
        grouped = any(name.endswith("_states.pt") for name in members)
        return named_by_step or grouped or any(map(is_side, members)) or TRAINER in members
    # A script's own names for its models: what lies beside them is not ours to judge.
    return not any(name.endswith(_OWN_FILES) and not is_side(name) for name in listing.files)


def _unfinished(names: Collection[str], parts: Collection[str]) -> str:
    """What shows that the save was never complete; '' for one that is, or that lost something later."""
    if _INCOMPLETE in names:
        return f"it has {_INCOMPLETE}: the save was cut short"
    roles = set(map(_role, names))
    if TRAINER in names or not (parts or any(map(_MODEL.fullmatch, names))):
        return ""
    if roles & {"training_args.bin", "rng_state.pth"}:
        return f"it has no {TRAINER}, which is written last: the save was not finished"
    if roles & {"optimizer.bin", "scheduler.bin", "sampler.bin"} and "random_states.pkl" not in roles:
        return "it has no random_states_0.pkl, which is written last: the save was not finished"
    return ""


def _incomplete(members: Sequence[str], parts: Sequence[str]) -> str:
    """What the directory's own files show to be missing."""
    roles = set(map(_role, members))
    if not parts and not any(map(_MODEL.fullmatch, members)):
        return "it has no file of the model"
    there = set(members)
    wanted = (one for name in members for one in (*_other_shards(name), *_lower_ranks(name)))
    gap = next((one for one in wanted if one not in there), "")
    if gap:
        return f"it has no {gap}"
    if not parts and roles & {"scheduler.pt", "rng_state.pth"}:
        together = {"optimizer", "scheduler", *({"rng_state"} if TRAINER in roles else ())}
        lacking = sorted(together - {role.partition(".")[0] for role in roles})
        if lacking:
            return f"it has no file of the {lacking[0]}, which is saved with the others"
    return ""


def _other_shards(name: str) -> Iterable[str]:
    found = _SHARD.search(name)
    if found is None:
        return
    if name.endswith((".safetensors", ".bin")):
        yield f"{name[: found.start()]}{name[found.end() :]}.index.json"
    for number in range(1, min(int(found[2]), 10_000) + 1):
        yield f"{name[: found.start()]}-{number:05d}-of-{found[2]}{name[found.end() :]}"


def _lower_ranks(name: str) -> Iterable[str]:
    """The same file of the rank before, or of the object before: accelerate gives the first no number."""
    for found in _BY_RANK.finditer(name):
        if int(found[0]):
            before = str(int(found[0]) - 1).zfill(len(found[0]))
            yield name[: found.start()] + before + name[found.end() :]
    for found in _BY_NUMBER.finditer(name):
        before = f"_{int(found[1]) - 1}" if int(found[1]) > 1 else ""
        yield name[: found.start()] + before + name[found.end() :]


def _less_than(siblings: Sequence[Entry], names: Collection[str]) -> str:
    """What other checkpoints of the series have and this one lacks.

    Another number of ranks has another number of random states, but
    DeepSpeed's shards are of no use without each other.
    """
    there = set(map(_compared_as, names))
    for sibling in siblings:
        theirs = names_in(sibling.path)
        for name in (*filter(_belongs, theirs), *_parts_of(theirs)):
            if _compared_as(name) not in there:
                return f"it has no {name}, which {base_name(sibling.path)} has"
    return ""


def _compared_as(name: str) -> str:
    return name if name.endswith("_states.pt") else _role(name)


def _role(name: str) -> str:
    """The name without numbers: what the file is for."""
    return re.sub(r"[-_]?\d+(?:-of-\d+)?", "", name)


def _verify_inside(entry: Entry, name: str, look: Look, *, part: bool = False) -> bool:
    """Return whether every byte was checked. Raises Unreadable, with the file's name, for a damaged one.

    ``part``: a directory within, DeepSpeed's shards or one of torch.distributed.checkpoint.
    """
    inner = replace(entry, path=f"{entry.path}/{name}")
    try:
        if part:
            kind = (
                TORCH_DCP
                if is_dcp_part(name)
                else DEEPSPEED
                if deepspeeds_of(names_in(inner.path))
                else FOLDER
            )
            verdict = kind.verify(inner, look)
        elif name.endswith(".json"):
            read_json(inner.path, _MOST_JSON_BYTES)
            return True
        else:
            verdict = (SAFETENSORS if name.endswith(".safetensors") else TORCH_FILE).verify(inner, look)
    except Unreadable as damaged:
        raise Unreadable(f"its {shown(name)}: {damaged.why}") from damaged
    if not verdict.whole:
        raise Unreadable(f"its {shown(name)}: {verdict.why}")
    return verdict.depth is Depth.CHECKSUM


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
