"""A world that shrinks and grows: how far it may, and which slots of which nodes take no part."""

from dataclasses import dataclass
from enum import Enum

from faultrun.model.fact import Fact
from faultrun.model.topology import NodeId


class Grow(Enum):
    """When a world that shrank takes its workers back."""

    AT_SAVE = "at_save"  # once their slots are well again, at the next whole save
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """The run may go on with fewer workers, no fewer than ``min_workers``, and takes others back by ``grow``.

    ``health_check`` is a command that says with 0 whether a slot that was set aside is well again; empty:
    nobody can say, and none is taken back.
    """

    min_workers: int
    grow: Grow = Grow.AT_SAVE
    health_check: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A slot that gets no worker from ``incarnation`` on, and ``why``.

    ``well``: nothing is known against it, but its worker would be a part of a copy of the model that
    lacks another part.
    """

    node: NodeId
    slot: int
    incarnation: int
    why: str
    well: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Accused:
    """The slot that failed last, and how often in a row, with no other failing in between."""

    node: NodeId
    slot: int
    failures: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLedger:
    """What a run that may shrink knows of its slots. Belongs to the run: it travels in the plan.

    ``groups`` are the replica groups of the whole world where ranks hold different parts of the model, by
    rank of that world; none: all hold the same. ``refused``: why no fewer workers were planned
    although a slot asked for it. ``stays_small``: why no more were although slots are well; that is not
    tried again.
    """

    aside: tuple[SetAside, ...] = ()
    accused: Accused | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    refused: str = ""
    stays_small: str = ""

    @property
    def bad(self) -> tuple[SetAside, ...]:
        """Those that something is known against."""
        return tuple(one for one in self.aside if not one.well)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsUsable(Fact):
    """Slots of ``node`` that had been set aside are well again, and a whole save (``path``) lies there."""

    node: NodeId
    slots: tuple[int, ...]
    path: str = ""
