"""Whether the files of a folder are of one save, by the order in which they were written.

Rank 0 writes the model, the optimizer, the scheduler and so on, one after the other: Trainer
(transformers 5.23: ``Trainer._save_checkpoint``) ends with ``trainer_state.json``, accelerate (1.15:
``save_accelerator_state``, ``Accelerator.save_state``) with ``random_states_0.pkl`` and what the
script registered. A save into a used folder that is killed leaves the first of them new and the rest
old. Contents tell nothing: the folder's step is that of both. Other ranks write their random
numbers when they like; the model's settings and arguments may be edited.
"""

import re
from collections.abc import Iterable
from itertools import pairwise

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.formats.folder_members import TRAINER, is_model
from faultrun.checkpoints.listing import stamp_of

_Stage = tuple[int, int]

_SAME_SAVE_NS, _ONE_AFTER_THE_OTHER_NS = 2_000_000_000, 50_000_000
_FIRST_OF_ACCELERATE = "random_states_0.pkl"
_AFTER_THE_MODEL = (
    re.compile(r"optimizer(?:_\d+)?\.(?:pt|bin)"),
    re.compile(r"scheduler(?:_\d+)?\.(?:pt|bin)"),
    re.compile(r"(?:sampler|dl_state_dict)(?:_\d+)?\.bin"),
    re.compile(r"scaler\.pt"),
    re.compile(r"rng_state(?:_0)?\.pth|random_states_0\.pkl"),
    re.compile(r"custom_checkpoint_\d+\.pkl|trainer_state\.json"),
)


def check_one_save(path: str, members: Iterable[str]) -> None:
    """Refuse a mixture of two saves. Raises Unreadable.

    A file that is more than 2 s newer than the one written last counts where no file that is written
    before it is old: a copy without times has any order, mostly another one. A shorter distance, down
    to 50 ms, counts where the new files and the old ones are each in the order of writing. All of a
    Trainer's files newer than its mark is a copy that began with the mark, or a save that lacks only
    the mark, of the same step.
    """
    if not (names := set(members)) & {TRAINER, _FIRST_OF_ACCELERATE}:
        return
    stages = {name: stage for name in names if (stage := _stage(name)) is not None}
    stamps = {name: stamp_of(f"{path}/{name}") for name in sorted(stages, key=lambda one: (stages[one], one))}
    written = {name: stamp.mtime_ns for name, stamp in stamps.items() if stamp is not None}
    if len(written) < 2:
        return
    last = max(written, key=stages.__getitem__)
    ended_at = written[last]
    new = {name: at for name, at in written.items() if at > ended_at}
    if not new or (last == TRAINER and len(new) == len(written) - 1):
        return
    old = written.keys() - new.keys()
    if max(stages[name] for name in new) > min(stages[name] for name in old):
        return
    far = max(new.values()) - ended_at > _SAME_SAVE_NS
    near = min(new.values()) - ended_at > _ONE_AFTER_THE_OTHER_NS
    if far or (near and _ascends(written, stages, new) and _ascends(written, stages, old)):
        raise Unreadable(
            f"its {next(iter(new))} is newer than its {last}, which is written last: a later save into the "
            "same folder was not finished (if it is a copy: copy it again with the files' times, cp -a)"
        )


def _stage(name: str) -> _Stage | None:
    """When in a save rank 0 writes it; None for what tells nothing. The shards of a model are one."""
    if is_model(name):
        return (0, 0)
    nth = next((nth for nth, one in enumerate(_AFTER_THE_MODEL, 1) if one.fullmatch(name)), None)
    number = re.search(r"_(\d{1,9})\.", name)
    return None if nth is None else (nth, int(number[1]) if number else 0)


def _ascends(written: dict[str, int], stages: dict[str, _Stage], names: Iterable[str]) -> bool:
    """Whether each stage of ``names`` was written no earlier than the stage before."""
    order = sorted((stages[name], written[name]) for name in names)
    return all(one[0] == other[0] or one[1] <= other[1] for one, other in pairwise(order))
