"""What a platform tells a run about its devices, as values.

The words are those of Ascend's ``reset.json`` and ``fault-npus``; ``platforms/fault_files.py`` reads
them, ``core/phases/platform_notices.py`` judges them. Ranks are global.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class RankStatus(Enum):
    """How the platform sees the device of a rank."""

    UNRECOVERED = "unrecovered"  # being reset; the device plugin waits for its processes to be gone
    RECOVERED = "recovered"
    FAILED = "failed"  # the reset did not help
    FAULT = "fault"  # ClusterD: its process or device is lost to this run


class RestartKind(Enum):
    """``restartType`` beside ``reset.json``: what the platform is about to do."""

    UNSTATED = ""
    HOT_RESET = "hotReset"
    POD_RESCHEDULE = "podReschedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRank:
    """One entry of ``RankList``. ``policy`` and ``error`` (hexadecimal codes) are for people."""

    rank: int
    status: RankStatus
    policy: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetNotice:
    """All of one ``reset.json``: which devices are in trouble and what is to be done about it.

    ``flushing``: more faults are about to be told. ``restart_in_place``: a rank at FAULT may be restarted
    here, no rank needs to leave. ``retry_time`` counts the platform's requests to restart everything;
    ``update_time`` is its clock, in seconds, and only good for telling two notices apart.
    """

    ranks: tuple[ReportedRank, ...] = ()
    flushing: bool = False
    graceful_exit: bool = False
    restart_in_place: bool = False
    retry_time: int = 0
    update_time: int = 0
    kind: RestartKind = RestartKind.UNSTATED

    def having(self, *statuses: RankStatus) -> frozenset[int]:
        """The ranks at one of ``statuses``."""
        return frozenset(one.rank for one in self.ranks if one.status in statuses)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRanks:
    """``fault-npus``: ranks of an earlier incarnation whose devices failed, by the writer's clock."""

    ranks: frozenset[int]
    created_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """The number beside a rank table on shared storage; it grows whenever the table is written anew."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableNotice:
    """A file that cannot be understood. It changes nothing; a person should know."""

    WIRE_NAME: ClassVar[str] = "Unreadable"

    file: str
    why: str

    @property
    def words(self) -> str:
        """For a person."""
        return f"{self.file}: {self.why}; it changes nothing"


Notice = ResetNotice | FaultRanks | TableVersion | UnreadableNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What a run remembers of the platform's words.

    ``lost`` are ranks whose checkpoints the next survey passes over where a replica has one. ``given_up`` are
    ranks of the whole world, as the platform counts them, whose devices it has said since this supervisor
    began to be lost, and not yet to be well again. ``repairing``: workers were stopped for a reset and none
    has started since. ``used_version`` is the rank table's version when workers last started; None without
    such a file. Nothing starts before ``not_before_s`` run-seconds.
    """

    reset: ResetNotice | None = None
    faulty: FaultRanks | None = None
    lost: frozenset[int] = frozenset()
    given_up: frozenset[int] = frozenset()
    repairing: bool = False
    version: int | None = None
    used_version: int | None = None
    not_before_s: float = 0.0
