"""What people are told of files that are no recovery point, and what else they can do."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from faultrun.checkpoints.reading import naming
from faultrun.model.checkpoint import Entry, Refusal


def as_opened(refused: Refusal, opened: Collection[str]) -> Refusal:
    """With the word that the script opened this very file, and the small file beside it that names it."""
    if refused.path not in opened:
        return refused
    folder, _, name = refused.path.rpartition("/")
    pointers = (one for place in (folder, folder.rpartition("/")[0]) for one in naming(place, name))
    names = next(pointers, "")
    led = f", led there by {names}" if names else ""
    return replace(refused, why=f"{refused.why}; the script opened it{led}")


def of_no_save(entry: Entry) -> Refusal:
    """Why a file that the script wrote before it began to train is no recovery point."""
    why = "written before the first step of training: no save of this run"
    return Refusal(path=entry.path, global_step=entry.global_step, why=why)


def made_to_fit(entries: Sequence[Entry]) -> str:
    """What else a person can do for another number of workers."""
    if any(one.replica_group and not one.replicated for one in entries):
        return ": a shard serves no other world"
    if all(one.rank is not None for one in entries):
        return "; or move the files of all ranks but rank 0 away, if all of them hold the same"
    return "; or a recipe with world_size: any, if the script loads them into another number"
