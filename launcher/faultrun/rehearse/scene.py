"""One run in its private view: trained undisturbed for comparison, or with faults, one after the other."""

import time
from collections.abc import Callable

from faultrun.rehearse.inject_faults import RehearsalLimits, Striker
from faultrun.rehearse.outcome import Fate, Trial, Undisturbed
from faultrun.rehearse.scene_messages import (
    LossesTold,
    NowDoing,
    Pairs,
    SceneOver,
    Told,
    TriedTold,
    UndisturbedTold,
)
from faultrun.rehearse.watched_run import WatchedRun

_ENOUGH_SAVES = 6
_ENOUGH_LOSSES = 3
_LINGER_S, _LAST_S = 5.0, 2.0


def shares_s(total_s: float) -> tuple[float, float, float]:
    """Seconds that the undisturbed part may take: at least, usually, and while nothing has been saved.

    What is left of ``total_s`` is for the faults.
    """
    return 0.08 * total_s, 0.22 * total_s, 0.35 * total_s


def play_undisturbed(run: WatchedRun, total_s: float, tell: Callable[[Told], None]) -> None:
    """Train until enough is known: steps, losses, how often it saves. The run is killed at the end."""
    began_s = time.monotonic()
    least_s, usual_s, most_s = shares_s(total_s)
    tell(NowDoing(text="training undisturbed, to compare with"))
    run.start()
    first_step_s: list[float] = []

    def enough() -> bool:
        if run.trains and not first_step_s:
            first_step_s.append(time.monotonic() - began_s)
        passed_s = time.monotonic() - began_s
        trained_s = passed_s - first_step_s[0] if first_step_s else 0.0
        saves = len(run.saves.times_s)
        return (
            run.exit_code is not None
            or run.view.incarnation > 0
            or (saves >= _ENOUGH_SAVES and trained_s >= least_s)
            or (saves > 0 and passed_s >= usual_s)
        )

    run.wait(enough, began_s + most_s)
    run.look()
    code = run.exit_code
    run.kill()
    run.look()
    life = run.life
    saved_s = run.saves.times_s
    part = Undisturbed(
        trained_s=time.monotonic() - began_s,
        first_step_s=first_step_s[0] if first_step_s else None,
        last_step=None if life is None else life.reached,
        first_save_s=saved_s[0] - began_s if saved_s else None,
        save_every_s=run.saves.every_s,
        first_save=run.view.first_save,
        silent_s=run.silent_s,
        saves=run.saves.paths,
        in_place=run.saves.in_place,
        exit_code=code,
        failed=_failed(run, code),
        last_words=_last_words(run),
    )
    tell(UndisturbedTold(part=part, losses=_pairs(run, run.view.incarnation)))


class FaultScene:
    """One run through several faults; it is over when the run is, or when nothing is left to try."""

    def __init__(
        self, run: WatchedRun, known: Undisturbed, limits: RehearsalLimits, tell: Callable[[Told], None]
    ) -> None:
        self._run, self._known, self._limits = run, known, limits
        self._tell = tell
        self._striker = Striker(run, limits)

    def play(self, trials: tuple[Trial, ...]) -> None:
        """Each fault from a training with a checkpoint, until one is not survived."""
        self._tell(NowDoing(text="starting"))
        self._run.start()
        why = ""
        for trial in trials:
            self._tell(NowDoing(text=f"{trial.title}: waiting for a step and a save"))
            if why := self._not_ready():
                break
            self._tell(NowDoing(text=trial.title))
            tried = self._striker.strike(trial)
            self._tell(TriedTold(tried=tried))
            if tried.fate is not Fate.SURVIVED or self._run.exit_code is not None:
                break
        self._linger()
        self._run.kill()
        self._run.look()
        for life in self._run.lives:
            self._tell(LossesTold(life=life, losses=_pairs(self._run, life)))
        self._tell(SceneOver(why=why))

    def _not_ready(self) -> str:
        """Wait for a life that trains and has saved; why it does not, empty when it does."""
        run, known = self._run, self._known
        saves, save_s = len(run.saves.times_s), known.save_every_s or known.first_save_s or 0.0
        start_s = known.first_step_s or 0.0

        def trains() -> bool:
            return run.trains or (known.first_step_s is None and len(run.saves.times_s) > saves)

        def over() -> bool:
            return run.exit_code is not None

        if not run.wait(lambda: trains() or over(), self._limits.until(self._limits.again_s)):
            if known.first_step_s is not None or known.first_save_s is not None:
                return f"it did not train within {self._limits.again_s:.0f} s"
            return "neither steps nor saves show whether it trains"
        begun = run.life.reached if run.life is not None else None
        patience_s = 2 * save_s + _LAST_S

        def moved() -> bool:
            reached = run.life.reached if run.life is not None else None
            further = reached is not None and (begun is None or reached > begun + 1)
            return len(run.saves.times_s) > saves if known.first_save_s is not None else further

        run.wait(lambda: moved() or over(), self._limits.until(max(patience_s, _LAST_S)))
        self._between_saves(over)
        if over():
            return f"training had ended (exit code {run.exit_code}) before the fault could be made"
        if time.monotonic() + start_s + _LAST_S > self._limits.end_s:
            return "the time is over"
        return ""

    def _between_saves(self, over: Callable[[], bool]) -> None:
        """Half way to the next save: right behind one nothing is lost, so what may be is not learned."""
        every_s, saved_s = self._known.save_every_s, self._run.saves.times_s
        if every_s is not None and saved_s:
            self._run.wait(over, self._limits.until(saved_s[-1] + every_s / 2 - time.monotonic()))

    def _linger(self) -> None:
        """Let the newest life print some losses, to be compared."""
        run = self._run
        life = run.view.incarnation
        run.wait(
            lambda: run.exit_code is not None or len(run.logs.losses(life)) >= _ENOUGH_LOSSES,
            self._limits.until(_LINGER_S),
        )


def _failed(run: WatchedRun, code: int | None) -> str:
    """What went wrong in an undisturbed training; empty where nothing did."""
    if code:
        return f"ends with exit code {code}"
    return "fails and is started again" if run.view.incarnation > 0 else ""


def _last_words(run: WatchedRun) -> str:
    """Last words of the rank that failed first: ranks that were stopped after it may have written nothing."""
    rank = run.failed_first.get(0, 0)
    return run.logs.last_words(0, rank) or f"(rank {rank} wrote nothing)"


def _pairs(run: WatchedRun, life: int) -> Pairs:
    return tuple(run.logs.losses(life).items())
