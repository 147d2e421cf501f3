"""What a checkpoint format is: three questions about a file, asked in rising order of cost.

1. ``claim``: which of these *names* are yours? Asked once for each directory, of tens of thousands of names;
   nothing is opened.
2. ``read``: what does the *header* say? Less than 5 ms, whatever the size.
3. ``verify``: is it *whole*, to the last byte? Reads as much as it takes.

``docs/checkpoints.md`` (A format of your own) tells what a plug-in has to know; built-in formats keep to it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from faultrun.model.checkpoint import Depth, Entry, Kind, Verdict


class Unreadable(Exception):
    """A file is not what its name promised; the message says why, for a person."""

    @property
    def why(self) -> str:
        """The reason as a clause, ready for a refusal."""
        return str(self)


class Foreign(Unreadable):
    """The first bytes are not of this format; another format that claimed the name may know them."""


class Stamp(NamedTuple):
    """What ``stat`` said: enough to notice that a file was replaced, grew or was written to."""

    inode: int
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One directory as the scan saw it: regular files with their stamps, and subdirectories by name.

    ``links`` are those of ``files`` that are links to a file below the same
    root, with its stamp. ``links_out`` are symbolic links that leave the root, with their targets;
    they are never followed and formats need not look at them.
    """

    path: str
    files: Mapping[str, Stamp]
    directories: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    links_out: Mapping[str, str] = field(default_factory=dict)

    def join(self, name: str) -> str:
        """The full path of ``name``."""
        return f"{self.path}/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What names alone say about one checkpoint. None means that the name does not say.

    ``series`` names the files that the same code wrote for the same purpose (usually the prefix): siblings
    are looked for in it. ``session`` counts the runs that wrote into the same place under clashing names
    (MindSpore's ``prefix_N``). ``save_number`` counts saves where the name has no step. ``unfinished`` is a
    reason to refuse by name alone. ``parts`` are subdirectories that belong to it: nothing in them is
    claimed.
    """

    path: str
    members: tuple[str, ...]
    parts: tuple[str, ...] = ()
    kind: Kind = Kind.PERIODIC
    rank: int | None = None
    epoch: int | None = None
    step_in_epoch: int | None = None
    global_step: int | None = None
    series: str = ""
    session: int = 0
    save_number: int | None = None
    unfinished: str = ""


Meter = Callable[[int], None]
"""Told how many bytes were just read; drives progress bars."""


def no_meter(_size_bytes: int) -> None:
    """Drop all progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How closely to verify, what to compare with, and whom to tell about progress."""

    depth: Depth = Depth.CHECKSUM
    siblings: Sequence[Entry] = ()
    gone: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The files, by folder, of other saves of its series that were seen and are not there any more."""
    trained_past: bool = False
    """Training was seen to go on after a save under this name."""
    meter: Meter = field(default=no_meter)


class Format(Protocol):
    """One kind of checkpoint; see the module's text for what each method owes."""

    @property
    def name(self) -> str:
        """Short and stable: it appears in ``ckpt list`` and in the journal."""
        ...

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Yield the checkpoints that the names of one directory promise. Opens nothing."""
        ...

    def read(self, entry: Entry) -> Entry:
        """Return ``entry`` with what its header says. Raises Unreadable."""
        ...

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Say whether ``entry`` is whole, and why. May raise Unreadable for "no"."""
        ...
