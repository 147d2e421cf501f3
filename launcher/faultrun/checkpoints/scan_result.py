"""What one look through the folders collects on its way, and what it found."""

from dataclasses import dataclass, field

from faultrun.checkpoints.listing import Named
from faultrun.checkpoints.verdict_cache import stamp_in
from faultrun.model.checkpoint import Entry, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What one look found.

    ``entries`` are candidates; those whose header cannot be read are as
    their names say. ``refused`` are links out of the root and directories
    that cannot be listed. ``unfinished`` never became checkpoints: names and
    directories that writers use before the final rename; also what a broken
    format could not look at. ``left_alone`` were there before this run
    began.
    """

    entries: tuple[Entry, ...]
    refused: tuple[Refusal, ...] = ()
    unfinished: tuple[Refusal, ...] = ()
    left_alone: tuple[Entry, ...] = ()


@dataclass(slots=True)
class Pile:
    """Claims, links, and what is no checkpoint.

    ``parts`` are directories that belong to a checkpoint which was found above them.
    """

    named: dict[str, Named] = field(default_factory=dict)
    linked: dict[str, Refusal] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    unfinished: list[Refusal] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)

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

    def keep_one_name_each(self) -> None:
        """Leave out links to what was found under a name of its own, or under another link."""
        own = {stamp_in(one.first) for one in self.named.values() if not one.linked}
        for path, one in sorted(self.named.items()):
            if one.linked:
                if stamp_in(one.first) in own:
                    del self.named[path]
                own.add(stamp_in(one.first))
