"""Where output goes, and how a run is watched."""

from dataclasses import dataclass
from enum import Enum

from faultrun.model.spec.assumptions import Assumptions


class Stream(Enum):
    """Which of a worker's streams ``--redirects`` or ``--tee`` mean (torchrun's 0 1 2 3)."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Where output goes. ``tail`` lists ranks copied to the console; None copies none.

    ``worker_log_name`` is msrun's: ``<name>_<rank>.log``, {ip} and {hostname} already replaced. ``tee`` and
    ``redirects`` are torchrun's, a stream for each local rank; empty when not asked for. Every stream is
    always in the log file: ask ``console`` what else is copied. A log of more than ``max_bytes`` is cut, its
    first part and its newest kept; 0: never. ``shown`` are the local ranks that the console may show, None:
    all. Lines with one of ``picked_out`` or ``picked_err`` are copied to a file of their stream.
    ``step_pattern``: the lines that tell steps; empty: which do is learnt.
    """

    log_dir: str = "faultrun_log"
    worker_log_name: str = "worker"
    tail: frozenset[int] | None = None
    tee: tuple[Stream, ...] = ()
    redirects: tuple[Stream, ...] = ()
    termination_log: str = "/dev/termination-log"
    max_bytes: int = 1 << 30
    shown: frozenset[int] | None = None
    picked_out: tuple[str, ...] = ()
    picked_err: tuple[str, ...] = ()
    step_pattern: str = ""

    def console(self, rank: int, local_rank: int) -> Stream:
        """What of this worker is copied to the console.

        torchrun leaves on the console what ``--redirects`` does not take away,
        so naming redirects asks for the rest; tee and tail add to it.
        """
        if not self.shows(local_rank):
            return Stream.NONE
        shown = Stream.ALL.value if self.tail is not None and rank in self.tail else Stream.NONE.value
        if local_rank < len(self.tee):
            shown |= self.tee[local_rank].value
        if local_rank < len(self.redirects):
            shown |= Stream.ALL.value & ~self.redirects[local_rank].value
        return Stream(shown)

    def shows(self, local_rank: int) -> bool:
        """Whether anything of this worker may be shown or picked."""
        return self.shown is None or local_rank in self.shown


class LogFormat(Enum):
    """What faultrun itself says on stderr."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How the run is watched, and who is told of it. Empty texts: no outlet."""

    log_format: LogFormat = LogFormat.TEXT
    live_line: bool = True
    report: bool = True
    assume: Assumptions = Assumptions()
    metrics_port: int | None = None
    metrics_addr: str = "127.0.0.1"
    metrics_file: str = ""
    on_event: str = ""
    webhook: str = ""
