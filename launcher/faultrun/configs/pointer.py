"""Files in which a training code notes its newest checkpoint: DeepSpeed's ``latest``, Megatron's tracker.

The code reads them by itself when it resumes, so they must name what was chosen: not a
torn checkpoint, and not nothing, which DeepSpeed takes for a fresh start. What was there before is
kept as any original is, but the code writes such a file too, and what it wrote since is newer than any
original. So a run never gives one back; a person does, who names it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from faultrun.configs.files import (
    LOCAL,
    TRIES,
    Attributes,
    Disk,
    FileSnapshot,
    explained,
    locked,
    replace_file,
    restless,
    snapshot,
    still,
)
from faultrun.configs.originals import Originals, holding
from faultrun.core import template
from faultrun.model.edit import Change, EditResult
from faultrun.model.spec.run_spec import Pointer

_LONGEST_SHOWN = 200


def point(
    pointers: Sequence[Pointer], values: template.Values, *, originals: Path, disk: Disk = LOCAL
) -> tuple[EditResult, ...]:
    """Let every pointer name the checkpoint that it lies beside; one result for each that named another.

    Each holds the filled template to the byte: no end of line. A missing one is made. ConfigError,
    with the old file still whole, where a field is unknown or the file cannot be written.
    """
    beside = Path(values.checkpoint).absolute().parent
    wanted = [(beside / one.name, template.render(template.parse(one.template), values)) for one in pointers]
    results = [_written(file.resolve(), text, originals, disk) for file, text in wanted]
    return tuple(result for result in results if result is not None)


def _written(file: Path, text: str, originals: Path, disk: Disk) -> EditResult | None:
    data = text.encode()
    with explained(file), locked(file):
        for _ in range(TRIES):
            there = file.exists()
            seen = snapshot(file) if there else _absent(file)
            if there and seen.data == data:
                return None
            with holding(originals):
                Originals(originals, disk).keep_pointer(file, seen, data, there=there)
            if still(file, seen) if there else not file.exists():
                replace_file(disk, file, data, seen.attributes)
                before = seen.data.decode(errors="replace")[:_LONGEST_SHOWN] if there else None
                change = Change(key="content", line=1, before=before, after=text)
                return EditResult(file=str(file), changes=(change,))
    raise restless(file)


def _absent(file: Path) -> FileSnapshot:
    """What a file is before it is made: empty, and for those who may use its folder."""
    folder = file.parent.stat()
    owner = (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else None
    return FileSnapshot(data=b"", attributes=Attributes(mode=folder.st_mode & 0o666, owner=owner), mark=())
