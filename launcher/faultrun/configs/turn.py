"""Several runs that rewrite one configuration take turns, so that workers read their own run's value.

A turn lasts from before a run writes its value until its workers have read it, or the run is over. The locks
lie beside the file, one for each run, so that the nodes of a run have their turn together.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from glob import escape
from pathlib import Path
from zlib import crc32

from faultrun.configs.files import locked
from faultrun.errors import ConfigError
from faultrun.locks import Busy, Lock, held, hold

_LEASE = ".lease"


class ConfigTurns:
    """The turns of run ``run`` (its id, and what tells it from others with that id)."""

    def __init__(self, run: str) -> None:
        self._suffix = f"{crc32(run.encode()):08x}"
        self._held: dict[Path, Lock] = {}

    def take(self, files: Iterable[Path], *, within_s: float, pause: Callable[[], None]) -> None:
        """Have the turn for each of ``files``, until ``release``; ``pause`` is called while another has it.

        ConfigError when another run still has it after ``within_s``.
        """
        until_s = time.monotonic() + within_s
        for file in files:
            while file not in self._held:
                if not (holder := self._tried(file)):
                    break
                if time.monotonic() > until_s:
                    because = f"{holder} has written its own value, and its workers have shown no step yet"
                    hint = "a configuration of its own for each run, or start this one later"
                    raise ConfigError(f"{file} is rewritten by another run, too", because=because, hint=hint)
                pause()

    def release(self) -> None:
        """Let others have theirs."""
        while self._held:
            file, lock = self._held.popitem()
            with suppress(OSError):
                self._lock_of(file).unlink(missing_ok=True)
            lock.release()

    def _tried(self, file: Path) -> str:
        with suppress(OSError):  # where no lock can be made the file is not replaced either
            with locked(file):
                if not (other := self._others(file)):
                    with suppress(Busy):  # by another node of this run
                        self._held[file] = hold(self._lock_of(file))
            return other
        return ""

    def _others(self, file: Path) -> str:
        """Which other run has its turn now, in words; '' if none has."""
        for path in file.parent.glob(f"{escape(self._lock_of(file, '').name)}*"):
            lock = path.with_name(path.name.removesuffix(_LEASE))
            if lock == self._lock_of(file):
                continue
            try:
                with held(lock, wait_s=0.0):  # one that was killed has left it
                    pass
            except Busy as busy:
                return busy.holder
        return ""

    def _lock_of(self, file: Path, suffix: str | None = None) -> Path:
        return file.with_name(f".{file.name}.faultrun.turn.{self._suffix if suffix is None else suffix}")
