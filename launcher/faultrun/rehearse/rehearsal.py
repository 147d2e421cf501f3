"""The whole rehearsal: an undisturbed part, then faults until all are tried or the time is over."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from errno import EDQUOT, ENOSPC
from pathlib import Path

from faultrun.checkpoints.registry import Registry
from faultrun.errors import FaultrunError
from faultrun.platforms.storage import room
from faultrun.rehearse.find_saves import find_saves
from faultrun.rehearse.inject_faults import RehearsalLimits
from faultrun.rehearse.isolation.choose_isolation import Isolation
from faultrun.rehearse.isolation.private_view import SHARED
from faultrun.rehearse.log_progress import LogsSeen
from faultrun.rehearse.loss_comparison import Losses, compare, noise_of
from faultrun.rehearse.observed_saves import RehearsedSaves
from faultrun.rehearse.outcome import Fate, Trial, Tried, Undisturbed
from faultrun.rehearse.scene import FaultScene, play_undisturbed
from faultrun.rehearse.scene_messages import (
    LossesTold,
    NowDoing,
    SceneFailed,
    SceneOver,
    Told,
    TriedTold,
    UndisturbedTold,
)
from faultrun.rehearse.scene_process import Play, play
from faultrun.rehearse.watched_run import WatchedRun

_LEAST_HANG_S, _ANYBODY_S, _PATIENCE_S = 8.0, 60.0, 20.0
_AGAIN = 2

_LEAST_BYTES, _BLOCK_BYTES = 256 << 10, 512
_SAID = tuple(os.strerror(one) for one in (ENOSPC, EDQUOT))


class CannotRehearse(FaultrunError):
    """This machine, or this training, does not let itself be rehearsed (EX_UNAVAILABLE)."""

    exit_code = 69


class DoesNotTrain(FaultrunError):
    """It fails without any fault: there is nothing to rehearse yet."""

    exit_code = 1


class ScratchFull(FaultrunError):
    """No room is left for what the training writes (EX_OSERR, as a run that has none)."""

    exit_code = 71


def require_room(scratch: Path, said: str = "") -> None:
    """Raise ScratchFull where no room, or no inode, is left in ``scratch``, or ``said`` tells of that."""
    disk = room(scratch)
    if disk.free_bytes >= _LEAST_BYTES and disk.free_inodes != 0 and not any(one in said for one in _SAID):
        return
    written_bytes = sum(path.lstat().st_blocks * _BLOCK_BYTES for path in scratch.rglob("*"))
    left = f"{_mib(disk.free_bytes)} of {_mib(disk.total_bytes)} are"
    left = "no inode is" if disk.free_inodes == 0 else left
    raise ScratchFull(
        f"the scratch folder of the rehearsal ran out of room, and so it says nothing: {scratch.parent}",
        because=f"{_mib(written_bytes)} were written there, and {left} left",
        hint="--scratch=DIR on a disk with room for the checkpoints of some minutes",
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f} MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to rehearse. ``command`` gives the words for a log_dir and a hang limit in seconds (None: unset).

    ``registry`` has the formats that count as saves. ``stop_s`` is how long a stop may take;
    ``handed_over``: something tells the script where to resume. ``hang_by_log``: logs are watched for hangs.
    ``step_pattern``: the lines that tell steps.
    """

    command: Callable[[Path, float | None], tuple[str, ...]]
    handed_over: bool
    hang_by_log: bool
    ranks: int
    save_folders: tuple[str, ...]
    registry: Registry
    trials: tuple[Trial, ...]
    total_s: float
    stop_s: float
    step_pattern: str = ""


@dataclass(slots=True)
class Rehearser:
    """``ways`` are tried in turn. ``say`` hears what is done, ``tick`` is called several times a second."""

    request: Request
    scratch: Path
    ways: tuple[Isolation, ...]
    say: Callable[[str], None]
    tick: Callable[[], None]
    part: Undisturbed = field(default_factory=lambda: Undisturbed(trained_s=0.0))
    _reference: Losses = field(default_factory=dict)
    _folders: tuple[str, ...] = ()
    _end_s: float = 0.0
    _tried: list[Tried] = field(default_factory=list)
    _scenes: int = 0

    def rehearse(self) -> tuple[Tried, ...]:
        """Play it all; every trial is answered for. CannotRehearse, DoesNotTrain, ScratchFull."""
        self._end_s = time.monotonic() + self.request.total_s
        self._choose()
        self._folders = self.request.save_folders
        self._undisturbed()
        left, again = list(self.request.trials), 0
        while left and time.monotonic() + (self.part.first_step_s or 0.0) < self._end_s:
            done, why = self._scene(tuple(left))
            self._tried += done
            left = left[len(done) :]
            again = 0 if done else again + 1
            if again == _AGAIN:
                self._tried.append(Tried(trial=left.pop(0), fate=Fate.NOT_TRIED, note=why))
                again = 0
        minutes = self.request.total_s / 60
        late = f"the {minutes:g} minutes were over"
        self._tried += [Tried(trial=trial, fate=Fate.NOT_TRIED, note=late) for trial in left]
        return tuple(self._tried)

    @property
    def isolation(self) -> Isolation:
        """The way that this machine allows."""
        return self.ways[0]

    def _choose(self) -> None:
        """Keep to the first of the ways that can be had. CannotRehearse: none can."""
        whys: list[str] = []
        while True:
            place = self._place()
            failed = next(self._told(place, lambda _: None), None)
            if not isinstance(failed, SceneFailed):
                return
            whys.append(failed.why)
            if len(self.ways) == 1:
                raise CannotRehearse(
                    "this machine does not allow a safe rehearsal",
                    because=f"what it writes cannot be kept apart from your files: {'; '.join(whys)}",
                    hint="as root with CAP_SYS_ADMIN, with user namespaces, or on Linux 5.13 or later",
                )
            self.ways = self.ways[1:]
            self.say(f"{failed.why}: going on in a copy of the working directory")

    def _undisturbed(self) -> None:
        began_at = time.time()
        place = self._place()

        def inside(tell: Callable[[Told], None]) -> None:
            play_undisturbed(self._run(place, None), self.request.total_s, tell)

        for told in self._play(place, inside):
            if isinstance(told, UndisturbedTold):
                in_place = self.isolation.outside(place, told.part.in_place)
                self.part, self._reference = replace(told.part, in_place=in_place), dict(told.losses)
        if self.part.first_save_s is None:
            found = find_saves(self.isolation.written(place), self.request.registry)
            self._folders = (*self._folders, *found.folders)
            self.part = found.known_to(self.part, began_at)
        if self.part.failed:
            require_room(self.scratch, self.part.last_words)
            caution = f" (here {self.isolation.caution})" if self.isolation.caution else ""
            raise DoesNotTrain(
                f"the training {self.part.failed} without any fault",
                because=f"the log of its first start ends so:\n{self.part.last_words}",
                hint=f"the same command without `rehearse`, until it trains{caution}",
            )

    def _scene(self, trials: Sequence[Trial]) -> tuple[list[Tried], str]:
        """What came of the first of ``trials``, and why no more of them were tried."""
        place = self._place()
        hang_s = max(_LEAST_HANG_S, 3 * self.part.silent_s)
        limits = RehearsalLimits(
            again_s=_PATIENCE_S + 3 * (self.part.first_step_s or _ANYBODY_S),
            stop_s=self.request.stop_s,
            hang_s=hang_s,
            handed_over=self.request.handed_over,
            hang_by_log=self.request.hang_by_log,
            end_s=self._end_s,
            final_step=self.part.last_step if self.part.exit_code == 0 else None,
            by_saves=self.part.first_step_s is None,
        )

        def inside(tell: Callable[[Told], None]) -> None:
            FaultScene(self._run(place, hang_s), self.part, limits, tell).play(tuple(trials))

        done: list[Tried] = []
        losses: dict[int, Losses] = {}
        why = "its process ended early"
        for told in self._play(place, inside):
            match told:
                case TriedTold(tried=tried):
                    done.append(replace(tried, note=self.isolation.outside(place, tried.note)))
                case LossesTold(life=life, losses=pairs):
                    losses[life] = dict(pairs)
                case SceneOver(why=said):
                    why = said
        require_room(self.scratch, "".join(one.note for one in done if one.fate is Fate.LOST))
        return [self._compared(one, losses) for one in done], why

    def _compared(self, one: Tried, losses: dict[int, Losses]) -> Tried:
        """With its losses laid beside those of the undisturbed part; behind its end, of the lives before."""
        if one.life not in losses or one.fate is not Fate.SURVIVED:
            return one
        before = dict(self._reference)
        for life in sorted(life for life in losses if life < one.life):
            before = {**losses[life], **before}
        noise = noise_of(self._reference, losses.get(0, {}))
        return replace(one, losses=compare(before, losses[one.life], noise))

    def _play(self, place: Path, inside: Play) -> list[Told]:
        heard: list[Told] = []
        for told in self._told(place, inside):
            match told:
                case NowDoing(text=text):
                    self.say(text)
                case SceneFailed(why=why):
                    require_room(self.scratch, why)
                    raise RuntimeError(why)
                case _:
                    heard.append(told)
        return heard

    def _told(self, place: Path, inside: Play) -> Iterator[Told]:
        return play(lambda: self.isolation.enter(place), inside, self._end_s, self.tick)

    def _place(self) -> Path:
        self._scenes += 1
        place = self.scratch / f"scene_{self._scenes}"
        require_room(self.scratch)
        try:
            self.isolation.prepare(place)
        except OSError as error:
            require_room(self.scratch, str(error))
            raise
        return place

    def _run(self, place: Path, hang_s: float | None) -> WatchedRun:
        log_dir = place / SHARED / "faultrun_log"
        command = [self.isolation.inside(place, word) for word in self.request.command(log_dir, hang_s)]
        folders = tuple(self.isolation.inside(place, folder) for folder in self._folders)
        saves = RehearsedSaves(folders, self.request.registry)
        logs = LogsSeen(log_dir, self.request.ranks, self.request.step_pattern)
        return WatchedRun(command, log_dir, logs=logs, saves=saves)
