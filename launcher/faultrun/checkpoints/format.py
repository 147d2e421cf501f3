r"""What a checkpoint format is: three questions about a file, asked in rising order of cost.

1. ``claim``: which of these *names* are yours? Asked once for each directory,
   of tens of thousands of names; nothing is opened.
2. ``read``: what does the *header* say? Less than 5 ms, whatever the size.
3. ``verify``: is it *whole*, to the last byte? Reads as much as it takes.

How to write a format, built in or your own
-------------------------------------------
A format is one object with a ``name`` and these three methods, without state
that matters and without importing the framework that wrote the file::

    class Shards:
        name = "shards"

        def claim(self, listing: Listing) -> Iterator[Claim]:
            for name in listing.files:
                if found := re.fullmatch(r"shard-(\d+)\.bin", name):
                    yield Claim(path=listing.join(name), members=(name,), global_step=int(found[1]))

        def read(self, entry: Entry) -> Entry:
            with opened(entry.path) as file:
                return replace(entry, epoch=_epoch_of(file.read(0, 64)))

        def verify(self, entry: Entry, look: Look) -> Verdict:
            with opened(entry.path) as file:
                ...
            return Verdict(whole=True, why="all 12 tensors are there", depth=Depth.STRUCTURE)

    FORMAT = Shards()

* ``claim`` answers from names alone. ``Claim.members`` are the names within
  *this* listing that make up the checkpoint (a shard directory claims
  ``path=listing.path`` and all its files; a TensorFlow checkpoint its
  ``.index`` and ``.data-*``). The members of a directory that is claimed as
  one checkpoint are no checkpoints of their own. Several formats may claim one path (``.ckpt``
  is MindSpore's and Lightning's): they are asked in the registry's order.
  Helpers for ranks in names: ``names.py``.
* ``read`` gets the entry as the names and ``stat`` describe it and returns
  ``dataclasses.replace(entry, ...)`` with what the header knows better:
  contents beat names. If the header cannot be read it raises
  ``Unreadable("why, for a person")``, or ``Foreign`` when the first bytes
  show that it is somebody else's: then the next claimant is asked.
* ``verify`` returns a Verdict and never raises for what the bytes contain
  (raising ``Unreadable`` is allowed and means "not whole"). Stop after the
  structure when ``look.depth`` is STRUCTURE; at CHECKSUM check whatever
  digest the format carries. Sidecar digests are the catalog's business.
  Read through ``reading.opened(path, look.meter)``: it reports progress and
  never reads past the end. Set ``Verdict.provisional`` when the answer may
  change as other files appear ("no sibling to compare with").
* ``look.siblings`` are up to eight entries of the same series: other steps
  of the same rank, other ranks of the same step. Files cut at a friendly
  place give themselves away by having less than their siblings.
* A fourth method is optional: ``reconcile(entries) -> entries`` gets all
  entries of one series in one place and may correct their steps, when each
  run counted from its own zero (``formats/mindspore/ckpt.py`` does).
* Any bytes at all may come. Bound every length by the file's size before
  allocating; never unpickle; never follow a path that a file contains.

Users register theirs by the entry point group ``faultrun.checkpoint_formats``
(the value names an object like ``FORMAT``). A plug-in that fails to load or
raises is reported and left out; it never ends a run.
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

    ``series`` names the files that the same code wrote for the same purpose
    (usually the prefix): siblings are looked for in it. ``session`` counts
    the runs that wrote into the same place under clashing names (MindSpore's
    ``prefix_N``). ``save_number`` counts saves where the name has no step.
    ``unfinished`` is a reason to refuse by name alone.
    ``parts`` are subdirectories that belong to it: nothing in them is claimed.
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
    """Report progress to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How closely to verify, what to compare with, and whom to tell about progress."""

    depth: Depth = Depth.CHECKSUM
    siblings: Sequence[Entry] = ()
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
