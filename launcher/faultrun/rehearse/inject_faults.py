"""Each fault, done to a run that trains, and what came of it as seen in its journal, its logs and its end."""

import signal
import time
from dataclasses import dataclass, replace

from faultrun.model.checkpoint import Kind
from faultrun.model.observed.recovery import Began
from faultrun.rehearse.observed_saves import tear
from faultrun.rehearse.outcome import Ailment, Fate, Trial, Tried
from faultrun.rehearse.watched_run import LifeSeen, WatchedRun

_DATA_ERROR = 65
_WAKING_S = 20.0
_JUDGED_S = 10.0
"""From a first step to the line that compares it with the recovery point: milliseconds on a quiet machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalLimits:
    """Seconds: until a restarted training must have done a step, until a stop must be over, what is a hang.

    ``handed_over``: something tells the script where to resume. ``hang_by_log``: without heartbeats, logs are
    watched. ``end_s`` is the end of the whole rehearsal on the monotonic clock, ``final_step`` the last step
    of the training where it came that far undisturbed. ``by_saves``: no rank tells of steps, so that a new
    save must show that it trains.
    """

    again_s: float
    stop_s: float
    hang_s: float
    handed_over: bool
    hang_by_log: bool
    end_s: float
    final_step: int | None = None
    by_saves: bool = False

    def until(self, wait_s: float) -> float:
        """The deadline of a wait of so long: not beyond the end."""
        return min(time.monotonic() + wait_s, self.end_s)


class Striker:
    """Does faults to one run."""

    def __init__(self, run: WatchedRun, limits: RehearsalLimits) -> None:
        self._run, self._limits = run, limits

    def strike(self, trial: Trial) -> Tried:
        """Do it, watch until it is over or clearly lost, and tell."""
        match trial:
            case Trial.RANK:
                return self._killed(trial, self._run.logs.ranks - 1)
            case Trial.RANK_0:
                return self._killed(trial, 0)
            case Trial.STOP:
                return self._stopped(trial)
            case Trial.SUPERVISOR:
                return self._supervisor_killed(trial)
            case Trial.TORN:
                return self._torn(trial)
            case Trial.FREEZE:
                return self._frozen(trial)

    def _killed(self, trial: Trial, rank: int) -> Tried:
        before, at = self._run.view.incarnation, time.time()
        if not self._run.signal_rank(rank, signal.SIGKILL):
            return Tried(trial=trial, fate=Fate.NOT_TRIED, note=f"rank {rank} had already ended")
        return self._goes_on(trial, before, at)

    def _torn(self, trial: Trial) -> Tried:
        """No rank can save any more when the file is cut: that is what a kill inside a save leaves."""
        run = self._run
        if not (paths := run.saves.paths):
            return Tried(trial=trial, fate=Fate.NOT_TRIED, note="there is no checkpoint to tear")
        before, at = run.view.incarnation, time.time()
        for rank in range(run.logs.ranks):
            run.signal_rank(rank, signal.SIGSTOP)
        cut = tear(paths[-1])
        for rank in range(run.logs.ranks):
            run.signal_rank(rank, signal.SIGKILL)
        done = self._goes_on(trial, before, at)
        if not cut:
            return Tried(trial=trial, fate=Fate.NOT_TRIED, note=f"{paths[-1]} is no file that can be cut")
        return done

    def _stopped(self, trial: Trial) -> Tried:
        run, before, at = self._run, self._run.view.incarnation, time.time()
        run.signal(signal.SIGTERM)
        if not run.wait(lambda: run.exit_code is not None, self._limits.until(self._limits.stop_s)):
            note = f"it had not ended {time.time() - at:.0f} s after SIGTERM"
            if time.monotonic() >= self._limits.end_s:
                return Tried(trial=trial, fate=Fate.NOT_TRIED, note=f"{note}, when the time was over")
            return Tried(trial=trial, fate=Fate.LOST, ailments=(Ailment.STUCK_IN_STOP,), note=note)
        stuck = run.cut_at >= at
        again_at = time.time()
        run.start()
        found = self._goes_on(trial, before, again_at)
        if not stuck:
            return found
        note = f"the ranks did not end after SIGTERM and were killed after {again_at - at:.0f} s"
        return _with(found, Ailment.STUCK_IN_STOP, note)

    def _supervisor_killed(self, trial: Trial) -> Tried:
        run, before, at = self._run, self._run.view.incarnation, time.time()
        run.kill()
        run.start()
        return self._goes_on(trial, before, at)

    def _frozen(self, trial: Trial) -> Tried:
        run, before, at = self._run, self._run.view.incarnation, time.time()
        rank = run.logs.ranks - 1
        if not run.signal_rank(rank, signal.SIGSTOP):
            return Tried(trial=trial, fate=Fate.NOT_TRIED, note=f"rank {rank} had already ended")

        def answered() -> bool:
            return run.hang_over_at >= at or run.view.incarnation > before or self._over()

        watched = self._limits.hang_by_log or any(run.view.progress(run.log_dir))
        wait_s = 2 * self._limits.hang_s + _WAKING_S if watched else self._limits.hang_s
        if not run.wait(answered, self._limits.until(wait_s)):
            run.signal_rank(rank, signal.SIGCONT)
            waited_s = time.time() - at
            if time.monotonic() >= self._limits.end_s:
                note = f"the time was over {waited_s:.0f} s after the freeze, and no look had found it"
                return Tried(trial=trial, fate=Fate.NOT_TRIED, note=note)
            note = f"not noticed within {waited_s:.0f} s: the run would have stood still for ever"
            return Tried(trial=trial, fate=Fate.LOST, ailments=(Ailment.FREEZE_UNSEEN,), note=note)
        if run.view.incarnation == before and not self._over():
            again_s, fate = run.hang_over_at - at, Fate.SURVIVED
            return Tried(trial=trial, fate=fate, lost_steps=0, again_s=again_s, resumed="woken by SIGCONT")
        return self._goes_on(trial, before, at)

    @property
    def _origin(self) -> int | None:
        """What the very first life called its first step."""
        return None if (first := self._run.lives.get(0)) is None else first.first

    @property
    def _anew(self) -> Ailment:
        """Why a script begins at the beginning although there is a checkpoint."""
        return Ailment.BEGINS_ANEW if self._limits.handed_over else Ailment.NOT_TOLD

    def _over(self) -> bool:
        return self._run.exit_code is not None

    def _goes_on(self, trial: Trial, before: int, at: float) -> Tried:
        """Wait for a life after ``before`` that trains; lost where none does."""
        run = self._run
        saves = len(run.saves.times_s)

        def trains() -> bool:
            if (life := run.life) is None or life.number <= before:
                return False
            return life.trains_at is not None or (self._limits.by_saves and len(run.saves.times_s) > saves)

        run.wait(lambda: trains() or self._over(), self._limits.until(self._limits.again_s))
        if self._over():
            run.look()  # what its end left in journal and logs
        if trains():
            if not self._limits.by_saves:
                run.wait(lambda: _is_judged(run.life) or self._over(), self._limits.until(_JUDGED_S))
            return self._came_back(trial, at)
        if self._over():
            return self._ended(trial)
        waited_s = time.time() - at
        if time.monotonic() >= self._limits.end_s:
            note = f"the time was over {waited_s:.0f} s after the fault, and it did not train yet"
            return Tried(trial=trial, fate=Fate.NOT_TRIED, note=note)
        return Tried(trial=trial, fate=Fate.LOST, note=f"it did not train again within {waited_s:.0f} s")

    def _came_back(self, trial: Trial, at: float) -> Tried:
        run, life = self._run, self._run.life
        assert life is not None
        reached, start = run.reached_before(life.number), start_of(life, self._origin)
        lost = None if reached is None or start is None else max(0, reached - start)
        found = Tried(
            trial=trial,
            fate=Fate.SURVIVED,
            lost_steps=lost,
            again_s=None if life.trains_at is None else max(0.0, life.trains_at - at),
            resumed=resumed_from(life, self._origin),
            life=life.number,
        )
        if life.point is not None and _ignored(life):
            began = f"it began at step {life.first} although step {life.point.global_step} was chosen"
            why = began if life.checked is None else life.checked.why
            return _with(found, self._anew, why, fate=Fate.LOST)
        if not _is_judged(life):
            note = "where it went on was not seen in time"
            return replace(found, lost_steps=None, resumed="unknown", note=note)
        if start == 0 and reached is not None and reached > 1:
            ailment = self._anew if run.saves.times_s else Ailment.SAVES_NOTHING
            note = f"it began at the beginning again: all {reached} steps are lost"
            return _with(found, ailment, note, fate=Fate.LOST)
        return found

    def _ended(self, trial: Trial) -> Tried:
        run = self._run
        code, why = run.view.ended or (run.exit_code or 0, "it ended without a reason")
        note = f"exit code {code}: {why.splitlines()[0] if why else 'no reason given'}"
        life = run.life
        if code != 0:
            if code == _DATA_ERROR and trial is Trial.TORN:
                note = f"{note}; there is no older checkpoint: save under a new name and keep two"
            return Tried(trial=trial, fate=Fate.LOST, note=note)
        start = None if life is None else start_of(life, self._origin)
        if (
            life is not None
            and start is not None
            and self._limits.final_step is not None
            and start >= self._limits.final_step
        ):
            resumed = resumed_from(life, self._origin)
            note = "nothing was left to train"
            return Tried(trial=trial, fate=Fate.SURVIVED, lost_steps=0, resumed=resumed, note=note)
        note = "it ended with exit code 0 without training a step: an error that the script hides"
        return Tried(trial=trial, fate=Fate.LOST, ailments=(Ailment.HIDES_ERRORS,), note=note)


def start_of(life: LifeSeen, origin: int | None) -> int | None:
    """The global step behind which ``life`` began; None where that is not known.

    ``origin`` is what the very first life called its first step: a log that prints every tenth step shows
    nothing smaller, and a rank that is there again began anew.
    """
    if life.point is not None and not _ignored(life):
        return None if _unknown(life) else life.point.global_step
    if life.first is None:
        return None
    return 0 if life.first == origin else max(0, life.first - 1)


def resumed_from(life: LifeSeen, origin: int | None) -> str:
    """In a few words, for the table."""
    if _unknown(life):
        return "unknown"
    if life.point is not None and not _ignored(life):
        step = life.point.global_step
        name = life.point.path.rstrip("/").rpartition("/")[2]
        kind = " (dying gasp)" if life.point.kind is Kind.GASP else ""
        return f"step {step}{kind}, {name}" if step is not None else f"{name}{kind}"
    if (start := start_of(life, origin)) is None:
        return "unknown"
    return f"step {start}, by the script itself" if start > 1 else "the beginning"


def _is_judged(life: LifeSeen | None) -> bool:
    """Whether its first step was compared with the point that it was given, if it was given one."""
    return life is None or life.point is None or life.checked is not None


def _ignored(life: LifeSeen) -> bool:
    """Whether it began elsewhere: by the comparison, else by the first step that was seen."""
    if life.checked is not None or life.point is None:
        return life.checked is not None and life.checked.began is Began.ELSEWHERE
    chosen = life.point.global_step
    return life.first is not None and chosen is not None and life.first < chosen


def _unknown(life: LifeSeen) -> bool:
    """Whether it is unknown if it went on from its point."""
    return life.point is not None and life.checked is not None and life.checked.began is Began.UNKNOWN


def _with(found: Tried, ailment: Ailment, note: str, *, fate: Fate | None = None) -> Tried:
    return replace(
        found,
        fate=found.fate if fate is None else fate,
        ailments=(*found.ailments, ailment),
        note="; ".join(filter(None, (found.note, note))),
    )
