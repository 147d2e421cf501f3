"""Which names belong to a checkpoint folder, and what the names alone show to be missing from it.

Knows the names that Hugging Face's Trainer (transformers 5.23: ``trainer.py``), accelerate (1.15:
``checkpointing.py``, ``utils/fsdp_utils.py``), DeepSpeed (``runtime/engine.py``) and FSDP give to
files. Opens nothing.
"""

import re
from collections.abc import Collection, Iterable, Sequence

from faultrun.checkpoints.names import base_name, is_dcp_part, is_side, step_in

TRAINER = "trainer_state.json"
"""Trainer's end mark: rank 0 writes it last."""

_INCOMPLETE = "checkpoint-is-incomplete.txt"
_NAMED_BY_STEP = re.compile(r"checkpoint[-_]\d+")
_OWN_FILES = (".pt", ".pth", ".tar", ".ckpt", ".safetensors")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=\.)")
_DEEPSPEED_PART = re.compile(r"global_step\d+|pytorch_model(?:_\d{1,2})?")
_DEEPSPEED = r"(?:.*_)?mp_rank_\d+_%s_states\.pt"
_SIDE = re.compile(
    r"(?:optimizer|scheduler|lr_scheduler|scaler|rng_state(?:_\d+)?|optim(?:izer)?_state_dict)\.(?:pt|pth)"
    r"|(?:optimizer|scheduler|sampler|dl_state_dict|training_args)(?:_\d{1,2})?\.bin|optimizer_\d{1,2}_rank\d+\.bin"
    r"|(?:random_states|custom_checkpoint)_\d+\.pkl|" + _DEEPSPEED % "optim"
)
_MODEL = re.compile(
    r"(?:adapter_|pytorch_|diffusion_pytorch_)?model(?:_\d{1,2}|-\d{5}-of-\d{5})?\.(?:safetensors|bin)"
    r"|pytorch_model_fsdp(?:_\d{1,2})?(?:_rank\d+)?\.bin|(?:adapter_)?model(?:_state_dict)?\.(?:pt|pth)"
    r"|layer_\d+-model_\d+-model_states\.pt|" + _DEEPSPEED % "model"
)
_TOLD = re.compile(r"trainer_state\.json|.*\.(?:safetensors|bin)\.index\.json")
_SETTINGS = frozenset({"config.json", "generation_config.json", "adapter_config.json"})
_BY_RANK = re.compile(r"(?:(?<=_rank_|state_|tates_)|(?<=_rank))\d+")
_BY_NUMBER = re.compile(r"(?<=model|mizer|duler|mpler)_(\d+)(?=\.)")
_OF_RANK = re.compile(r"rng_state_\d+\.pth|random_states_\d+\.pkl")
_OF_ACCELERATE = frozenset({"optimizer.bin", "scheduler.bin", "sampler.bin", "pytorch_model_fsdp.bin"})
_OF_TRAINING = frozenset(
    {"optimizer", "scheduler", "rng_state", "random_states", "optim_state_dict", "optimizer_state_dict"}
)


def is_model(name: str) -> bool:
    """Whether the file holds the model, or a part of it."""
    return _MODEL.fullmatch(name) is not None


def members_of(names: Iterable[str]) -> list[str]:
    """Which files belong to the checkpoint, sorted; the model's settings only beside the model."""
    there = set(names)
    members = [name for name in there if any(one.fullmatch(name) for one in (_MODEL, _SIDE, _TOLD))]
    return sorted({*members, *(there & _SETTINGS)}) if any(map(is_model, members)) else sorted(members)


def parts_of(directories: Iterable[str]) -> list[str]:
    """Which directories within belong to it: DeepSpeed's below Trainer's or accelerate's, and FSDP's.

    Several ``global_step`` are not one checkpoint: that is the folder of all of them.
    """
    found = sorted(name for name in directories if is_dcp_part(name) or _DEEPSPEED_PART.fullmatch(name))
    steps = [name for name in found if name.startswith("global_step")]
    return found if len(steps) < 2 else [name for name in found if name not in steps]


def is_folder(path: str, files: Iterable[str], members: Sequence[str], parts: Collection[str]) -> bool:
    """Whether the directory is one checkpoint of these ``members`` and ``parts``."""
    if any(map(is_model, members)) or parts:
        named_by_step = _NAMED_BY_STEP.fullmatch(base_name(path)) is not None
        grouped = any(name.endswith("_states.pt") for name in members)
        return named_by_step or grouped or any(map(is_side, members)) or TRAINER in members
    # A script's own names for its models: what lies beside them is not ours to judge.
    return not any(name.endswith(_OWN_FILES) and not is_side(name) for name in files)


def unfinished(path: str, names: Collection[str], parts: Collection[str]) -> str:
    """What shows that it never became a checkpoint; '' for one that may be one."""
    if _INCOMPLETE in names:
        return f"it has {_INCOMPLETE}: the save was cut short"
    return exported(path, names, parts) if step_in(base_name(path)) is None else ""


def exported(path: str, names: Collection[str], parts: Collection[str]) -> str:
    """Why it looks like a model that Trainer exported; '' if it does not."""
    alone = any(map(is_model, names)) and is_model_only(names, parts)
    if (
        alone
        and {TRAINER, "training_args.bin"} & set(names)
        and not _NAMED_BY_STEP.fullmatch(base_name(path))
    ):
        return "it is a model that was exported: it has no optimizer and no random states"
    return ""


def counts_saves(path: str, members: Iterable[str]) -> int | None:
    """N of accelerate's ``checkpoint_N``: which save it is, and no step; None for any other name."""
    numbered = re.fullmatch(r"checkpoint_(\d{1,15})", base_name(path))
    by_accelerate = any(name.startswith("random_states_") for name in members)
    return int(numbered[1]) if numbered and by_accelerate else None


def is_model_only(members: Iterable[str], parts: Collection[str]) -> bool:
    """Whether nothing of the training but the model was saved, as ``save_only_model`` has it."""
    return not parts and _OF_TRAINING.isdisjoint(map(stem_of, members))


def ranks_of(names: Iterable[str]) -> int | None:
    """How many ranks wrote it: the random numbers are a file of each; None where there are none.

    A numbered file of Trainer's is never the only one: the others are lost, or lie elsewhere.
    """
    names = set(names)
    numbered = [name for name in names if _OF_RANK.fullmatch(name)]
    if len(numbered) == 1 and numbered[0].startswith("rng_state_"):
        return None
    return len(numbered) or (1 if "rng_state.pth" in names else None)


def missing_within(members: Sequence[str], parts: Sequence[str]) -> str:
    """What the directory's own files show to be missing."""
    if not parts and not any(map(is_model, members)):
        return "it has no file of the model"
    there = set(members)
    wanted = (one for name in members for one in (*_other_shards(name), *_other_ranks(name)))
    return next((f"it has no {one}" for one in wanted if one not in there), "")


def expected(members: Iterable[str], parts: Sequence[str]) -> list[str]:
    """What Trainer and accelerate save with such files and is not there, by its name without numbers.

    A script may save under the same names and nothing else: only other saves, or that training went on after
    this one, tell whether that is so here. Neither of the two calls a model ``model.pt``.
    """
    roles, directories = set(map(_role, members)), set(filter(is_dcp_part, parts))
    stems, wanted = set(map(stem_of, (*roles, *directories))), set[str]()
    if TRAINER in roles and roles & {"scheduler.pt", "rng_state.pth"}:
        wanted = {"optimizer", "scheduler", "rng_state"}
    elif roles & {"training_args.bin", "rng_state.pth"}:
        wanted = {"trainer_state"}
    elif TRAINER not in roles and (directories or roles & _OF_ACCELERATE):
        wanted = {"random_states"}
    if stems & {"trainer_state", "random_states"} and stems & {"scheduler", "pytorch_model_fsdp"}:
        wanted.add("optimizer")
    if any(map(_DEEPSPEED_PART.fullmatch, parts)):
        wanted -= {"optimizer", "scheduler", "rng_state"}
    return [] if roles & {"model.pt", "model.pth"} else sorted(wanted - stems)


def missing_beside(sibling: str, theirs: Sequence[str], ours: Iterable[str]) -> str:
    """What ``sibling``, another checkpoint of the series, has and this one lacks.

    Random states are counted by ``fewer_ranks``; DeepSpeed's shards are of no use without each other.
    """
    there = set(map(_compared_as, ours))
    for name in (*members_of(theirs), *parts_of(theirs)):
        if _compared_as(name) not in there:
            return f"it has no {name}, which {base_name(sibling)} has"
    return ""


def fewer_ranks(sibling: str, theirs: Iterable[str], ours: Iterable[str]) -> str:
    """Whether the nearest ``sibling`` has random states of more ranks: others were killed before they saved.

    Trainer's ``rng_state.pth`` says that there was one rank.
    """
    there, here = (sum(_OF_RANK.fullmatch(name) is not None for name in names) for names in (theirs, ours))
    if 0 < here < there:
        return f"it has the random states of {here} ranks, {base_name(sibling)} those of {there}"
    return ""


def stem_of(name: str) -> str:
    """What the file is for, without its extension and rank."""
    return _role(name).partition(".")[0].removesuffix("_rank")


def _other_shards(name: str) -> Iterable[str]:
    if (found := _SHARD.search(name)) is None:
        return
    if name.endswith((".safetensors", ".bin")):
        yield f"{name[: found.start()]}{name[found.end() :]}.index.json"
    for number in range(1, min(int(found[2]), 10_000) + 1):
        yield f"{name[: found.start()]}-{number:05d}-of-{found[2]}{name[found.end() :]}"


def _other_ranks(name: str) -> Iterable[str]:
    """Yield ``name`` with a rank or object number one lower; accelerate's first object has no number."""
    if name == "rng_state_0.pth":  # one rank alone would have written rng_state.pth
        yield "rng_state_1.pth"
    for found in _BY_RANK.finditer(name):
        if int(found[0]):
            before = str(int(found[0]) - 1).zfill(len(found[0]))
            yield name[: found.start()] + before + name[found.end() :]
    for found in _BY_NUMBER.finditer(name):
        before = f"_{int(found[1]) - 1}" if int(found[1]) > 1 else ""
        yield name[: found.start()] + before + name[found.end() :]


def _compared_as(name: str) -> str:
    return name if name.endswith("_states.pt") else _role(name)


def _role(name: str) -> str:
    """The name without numbers: what the file is for."""
    return re.sub(r"[-_]?\d+(?:-of-\d+)?", "", name)
