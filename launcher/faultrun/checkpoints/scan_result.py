"""What one look through the folders collects on its way, and what it found."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from faultrun.checkpoints.format import Listing
from faultrun.checkpoints.listing import Named
from faultrun.checkpoints.names import has_part_of_step, step_in
from faultrun.checkpoints.verdict_cache import stamp_in
from faultrun.model.checkpoint import Entry, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What one look found.

    ``entries`` are candidates; those whose header cannot be read are as their names say. ``refused`` are
    links out of the root and directories that cannot be listed. ``unfinished`` never became checkpoints:
    names and directories that writers use before the final rename; also what a broken format could not look
    at. ``left_alone`` were there before this run began.
    """

    entries: tuple[Entry, ...]
    refused: tuple[Refusal, ...] = ()
    unfinished: tuple[Refusal, ...] = ()
    left_alone: tuple[Entry, ...] = ()


@dataclass(slots=True)
class Pile:
    """Claims, links, and what is no checkpoint.

    ``parts`` are directories that belong to a checkpoint which was found above them. ``listings`` are
    what the run's own folders hold.
    """

    named: dict[str, Named] = field(default_factory=dict)
    linked: dict[str, Refusal] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    unfinished: list[Refusal] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)
    listings: list[Listing] = field(default_factory=list)

    def add(self, one: Named | Refusal) -> None:
        """Sort in what is claimed, or why a format could not claim."""
        if isinstance(one, Refusal):
            self.unfinished.append(one)
            return
        self.parts.update(one.parts)
        if one.unfinished:
            step = one.first.global_step
            self.unfinished.append(Refusal(path=one.first.path, global_step=step, why=one.unfinished))
        else:
            self.named[one.first.path] = one

    def without_part_steps(self, entries: Sequence[Entry]) -> list[Entry]:
        """``entries``, where names of one folder say no step if one of them spells one that cannot be read.

        Of ``step_900``, ``step_1,000`` and ``step_1,100`` the first would be the newest.
        """
        found = {one.path: one for one in entries}
        for listing in self.listings:
            if not any(map(has_part_of_step, {*listing.files, *listing.directories})):
                continue
            begin = len(listing.path) + 1
            inside = {
                path: path[begin:].partition("/")[0] for path in found if path.startswith(f"{listing.path}/")
            }
            if any(
                found[path].global_step is None and has_part_of_step(name) for path, name in inside.items()
            ):
                said = {path: (step_in(name) or ("", -1))[1] for path, name in inside.items()}
                found |= {
                    path: replace(found[path], global_step=None)
                    for path, step in said.items()
                    if found[path].global_step == step
                }
        return list(found.values())

    def keep_one_name_each(self) -> None:
        """Leave out links to what was found under a name of its own, or under another link."""
        own = {stamp_in(one.first) for one in self.named.values() if not one.linked}
        for path, one in sorted(self.named.items()):
            if one.linked:
                if stamp_in(one.first) in own:
                    del self.named[path]
                own.add(stamp_in(one.first))
