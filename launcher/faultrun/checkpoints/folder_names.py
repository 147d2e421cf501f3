"""Names of files that only together are a checkpoint, and which of them a directory lacks. Opens nothing.

A side file holds no model: the optimizer, a scheduler, random states,
arguments. It is never a checkpoint by itself, whatever directory it lies in.
"""

import re
from collections.abc import Iterable

_DCP_PART = re.compile(r"(?:pytorch_model_fsdp|optimizer)_\d+")
_DEEPSPEED_PART = re.compile(r"global_step\d+|pytorch_model(?:_\d{1,2})?")

SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=\.)")

_DEEPSPEED = r"(?:.*_)?mp_rank_\d+_%s_states\.pt"
_SIDE = re.compile(
    r"(?:optimizer|scheduler|lr_scheduler|scaler|rng_state(?:_\d+)?|optim(?:izer)?_state_dict)\.(?:pt|pth)"
    r"|(?:optimizer|scheduler|sampler|dl_state_dict|training_args)(?:_\d{1,2})?\.bin"
    r"|(?:random_states|custom_checkpoint)_\d+\.pkl|" + _DEEPSPEED % "optim"
)
_NEVER_ALONE = re.compile(
    r"(?:optimizer|scheduler|lr_scheduler|scaler|grad_scaler|sampler|rng_state|random_states|training_args"
    r"|custom_checkpoint|dl_state_dict|optim(?:izer)?_state_dict)(?![a-z]).*|.*_optim_states\.pt",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"(?:adapter_|pytorch_|diffusion_pytorch_)?model(?:_\d{1,2}|-\d{5}-of-\d{5})?\.(?:safetensors|bin)"
    r"|pytorch_model_fsdp\.bin|(?:adapter_)?model(?:_state_dict)?\.(?:pt|pth)"
    r"|layer_\d+-model_\d+-model_states\.pt|" + _DEEPSPEED % "model"
)
_TOLD = re.compile(r"trainer_state\.json|.*\.(?:safetensors|bin)\.index\.json")
_BY_RANK = re.compile(r"(?<=_rank_|state_|tates_)\d+")
_BY_NUMBER = re.compile(r"(?<=model|mizer|duler|mpler)_(\d+)(?=\.)")


def is_side(name: str) -> bool:
    """Whether a file of such a name is no checkpoint by itself."""
    return _NEVER_ALONE.fullmatch(name) is not None


def is_model(name: str) -> bool:
    """Whether the name is that of a model, or a shard of it, beside such files."""
    return _MODEL.fullmatch(name) is not None


def belongs(name: str) -> bool:
    """Whether a file of such a name belongs to the checkpoint that its directory is."""
    return is_model(name) or _SIDE.fullmatch(name) is not None or _TOLD.fullmatch(name) is not None


def parts_of(directories: Iterable[str]) -> list[str]:
    """Which directories within belong to it: DeepSpeed's below Trainer's or accelerate's, and FSDP's.

    Several ``global_step`` are not one checkpoint: that is the folder of all of them.
    """
    found = sorted(name for name in directories if is_dcp_part(name) or _DEEPSPEED_PART.fullmatch(name))
    steps = [name for name in found if name.startswith("global_step")]
    return found if len(steps) < 2 else [name for name in found if name not in steps]


def is_dcp_part(name: str) -> bool:
    """Whether such a directory, by ``torch.distributed.checkpoint``, is only one part of FSDP's."""
    return _DCP_PART.fullmatch(name) is not None


def role_of(name: str) -> str:
    """The name without numbers: what the file is for."""
    return re.sub(r"[-_]?\d+(?:-of-\d+)?", "", name)


def missing_number(names: Iterable[str]) -> str:
    """A file of a rank or shard that must have been there, as those with other numbers show; '' if none."""
    there = set(names)
    for name in sorted(there):
        for wanted in (*_other_shards(name), *_lower_ranks(name)):
            if wanted not in there:
                return wanted
    return ""


def _other_shards(name: str) -> Iterable[str]:
    found = SHARD.search(name)
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
