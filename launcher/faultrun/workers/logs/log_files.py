"""Where the output of an incarnation goes: files under msrun's names, never truncated."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from faultrun.model.spec.output import Logs
from faultrun.model.wire import STACKS_FILE, THREADS_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """Paths of one incarnation's logs and the links that point at them.

    ``incarnation_<n>/<name>_<rank>.log`` is the file, ``<name>_<rank>.log``
    beside it the link that msrun's users know. ``step_pattern``: see ``Logs``.
    """

    log_dir: Path
    worker_name: str
    incarnation: int
    step_pattern: str = ""

    @property
    def folder(self) -> Path:
        """The incarnation's own folder."""
        return self.log_dir / f"incarnation_{self.incarnation}"

    def worker(self, rank: int) -> Path:
        """Standard output (and error) of one rank."""
        return self.folder / f"{self.worker_name}_{rank}.log"

    def worker_errors(self, rank: int) -> Path:
        """Standard error of one rank where it is kept apart."""
        return self.folder / f"{self.worker_name}_{rank}.err.log"

    def parts(self, rank: int) -> tuple[Path, ...]:
        """Where the end of a rank's words may be, the newest last."""
        log = self.worker(rank)
        return (log.with_name(f"{log.name}.1"), log, self.worker_errors(rank))

    def size_bytes(self, rank: int) -> int:
        """How much one rank has printed by now, on both streams."""
        sizes, log = 0, f"{self.log_dir}/incarnation_{self.incarnation}/{self.worker_name}_{rank}"
        for end in (".log.1", ".log", ".err.log"):  # asked of each rank each second: no paths are built
            with contextlib.suppress(OSError):
                sizes += os.stat(log + end).st_size  # noqa: PTH116
        return sizes

    def drop_unused(self) -> None:
        """Remove the files that the SDK keeps open for stacks, where none was asked for."""
        for path in self.folder.glob(STACKS_FILE.format(rank="*")):
            if path.stat().st_size == 0:
                path.unlink(missing_ok=True)
        self.drop_threads()

    def drop_threads(self) -> None:
        """Remove what the SDK wrote of other threads: an incident has kept what it wanted."""
        for path in self.folder.glob(THREADS_FILE.format(rank="*")):
            with contextlib.suppress(OSError):
                path.unlink()

    @property
    def progress(self) -> Path:
        """The page on which the ranks write how far they are."""
        return self.folder / "progress"

    @property
    def picked_out(self) -> Path:
        """Lines of all ranks' standard output that were asked for, under torchrun's name."""
        return self.folder / "filtered_stdout.log"

    @property
    def picked_err(self) -> Path:
        """Lines of all ranks' standard error that were asked for, under torchrun's name."""
        return self.folder / "filtered_stderr.log"

    @property
    def scheduler(self) -> Path:
        """Output of MindSpore's scheduler process."""
        return self.folder / "scheduler.log"

    def error_file(self, rank: int) -> Path:
        """Where a rank may leave its own account of its death (TORCHELASTIC_ERROR_FILE)."""
        return self.folder / f"error_{rank}.json"

    def open(self, ranks: tuple[int, ...]) -> None:
        """Make the folder and point the links at it, each replaced in one step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for rank in ranks:
            point_link(self.log_dir / self.worker(rank).name, self.worker(rank))

    def link_scheduler(self) -> None:
        """Point ``scheduler.log`` at this incarnation's."""
        point_link(self.log_dir / self.scheduler.name, self.scheduler)


def files_of(logs: Logs, log_dir: Path, incarnation: int) -> LogFiles:
    """The files of ``incarnation``, as the run was told to call and to read them."""
    return LogFiles(
        log_dir=log_dir,
        worker_name=logs.worker_log_name,
        incarnation=incarnation,
        step_pattern=logs.step_pattern,
    )


def point_link(link: Path, target: Path) -> None:
    """Have ``link`` point at ``target`` (relative); a foreign regular file of that name is left alone."""
    if link.exists() and not link.is_symlink():
        return
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(os.path.relpath(target, link.parent))
    fresh.replace(link)
