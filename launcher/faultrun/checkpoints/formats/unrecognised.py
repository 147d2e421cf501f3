"""Files where checkpoints are looked for that no format knows and that may be some, in words for people.

By names and sizes; nothing is opened. Asked only where no candidate was found: a folder that
is not empty and yet "no checkpoint" leaves people wondering. Logs, settings, sources, pictures and side
files of checkpoints are no reason to say anything.
"""

import re
import shlex
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from faultrun.checkpoints.format import Format, Listing, Stamp
from faultrun.checkpoints.listing import claimed, walk
from faultrun.checkpoints.names import base_name, is_side, is_unfinished, shown
from faultrun.model.checkpoint import Refusal

_MOST_DIRECTORIES = 1000
_OWN = re.compile(r"(.+)/(?:(?:incarnation|incident)_\d+|original|edited|etcd|compile_cache)(?:/.*)?")
_NUMBER = re.compile(r"\d+")
_OF_PEOPLE = re.compile(
    r"\..*|.*\.(?:log|txt|md|rst|out|err|json|jsonl|ya?ml|toml|ini|cfg|conf|xml|html?|csv|tsv|py|sh|ipynb|lock|pid"
    r"|png|jpe?g|svg|gif|pdf|gz|arrow|parquet|idx|so|o|pyc|sha256|meta|pb|pbtxt|mindir|onnx|model|jinja|vocab|trace)|.*tfevents.*|.*-log"
    r"|checkpoint|latest|latest_checkpointed_iteration|random-state|state-digests|batches-read",
    re.IGNORECASE,
)


def unknown_files(roots: Sequence[str], formats: Sequence[Format]) -> str:
    """How many there are, one by its name, and what to try, as one sentence; '' when there are none."""
    found = [
        (stamp.size_bytes, listing.join(name))
        for root in roots
        for listing in islice(walk(root), _MOST_DIRECTORIES)
        if not isinstance(listing, Refusal) and not _is_own(listing.path)
        for name, stamp in _unclaimed(listing, root, formats).items()
    ]
    if not found:
        return ""
    _, example = max(found)
    name = base_name(example)
    there = f"{len(found)} files of no known format, such as {shown(name)}, lie"
    if len(found) == 1:
        there = f"a file of no known format, {shown(name)}, lies"
    return (
        f"{there} in {shown(example[: -len(name) - 1])}; if that is a checkpoint, try "
        f"--checkpoint_pattern={shlex.quote(pattern_of(name))} or a recipe (faultrun recipes)"
    )


def _is_own(folder: str) -> bool:
    """Whether it is one that faultrun fills: it lies in a log_dir, which may hold checkpoints, too."""
    found = _OWN.fullmatch(folder)
    return found is not None and Path(found[1], "journal.jsonl").exists()


def _unclaimed(listing: Listing, root: str, formats: Sequence[Format]) -> dict[str, Stamp]:
    taken = {
        base_name(member)
        for one in claimed(listing, root, formats)
        if not isinstance(one, Refusal)
        for member in one.members
    }
    return {
        name: stamp
        for name, stamp in listing.files.items()
        if name not in taken
        and stamp.size_bytes
        and not (_OF_PEOPLE.fullmatch(name) or is_side(name) or is_unfinished(name))
    }


def pattern_of(name: str) -> str:
    """A pattern for names that differ in their numbers; the only number of a name is taken for the step."""
    name = "".join(one if one.isprintable() else "?" for one in name)
    numbers = _NUMBER.findall(name)
    words = [re.escape(word).replace(r"\?", ".") for word in _NUMBER.split(name)]
    return (r"(?P<step>\d+)" if len(numbers) == 1 else r"\d+").join(words)
