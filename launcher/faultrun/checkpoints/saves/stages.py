"""Which folders are stages of one training: a later one counts from the beginning again. Pure.

Pre-training and fine-tuning by one script, the phases of a curriculum: ``stage1/step_100`` and then
``stage2/step_10``. The largest step is not the newest there. A folder of best models is no stage, nor is a
copy of older saves: they do not begin where counting begins.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from faultrun.checkpoints.names import place_of, plainly_numbered
from faultrun.model.checkpoint import Entry, Kind


@dataclass(frozen=True, slots=True)
class _Folder:
    """The steps that a folder has, with the times of their newest files, in ns."""

    name: str
    times: Mapping[int, int]

    @property
    def begins_anew(self) -> bool:
        """Whether it has two saves or more, in the order of their times, from the first there can be."""
        steps = sorted(self.times)
        in_order = [self.times[step] for step in steps] == sorted(self.times.values())
        return len(steps) > 1 and in_order and steps[0] <= 2 * (steps[1] - steps[0])

    def follows(self, other: "_Folder") -> bool:
        """Whether it is of a later stage than ``other``, which got no save since."""
        again = min(self.times) < max(other.times)
        return again and min(self.times.values()) > max(other.times.values())


def with_stages(entries: Sequence[Entry]) -> list[Entry]:
    """``entries``, each with the number of its stage where it is of a later one than the first.

    Folders and the times of their files tell where it was not seen in which order they were written.
    """
    folders, stages = _folders(entries), dict[str, int]()
    for folder in sorted(folders, key=lambda one: min(one.times.values())):
        before = [stages.get(one.name, 0) for one in folders if folder.begins_anew and folder.follows(one)]
        stages |= {folder.name: 1 + max(before)} if before else {}
    later = ((one, stages.get(_folder_of(one.path), 0) if stages else 0) for one in entries)
    return [replace(one, stage=stage) if stage else one for one, stage in later]


def _folders(entries: Iterable[Entry]) -> list[_Folder]:
    times: dict[str, dict[int, int]] = defaultdict(dict)
    for one in entries:
        if one.global_step is not None and one.kind is Kind.PERIODIC and one.run_id is None:
            at = times[_folder_of(one.path)]
            at[one.global_step] = max(one.mtime_ns, at.get(one.global_step, 0))
    return [_Folder(name, at) for name, at in times.items()]


def _folder_of(path: str) -> str:
    """The folder that it lies in, or that its own numbered folder lies in; those of all ranks are one."""
    return place_of("/".join(map(plainly_numbered, path.rpartition("/")[0].split("/"))))
