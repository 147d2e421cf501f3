"""A job whose ranks say something now and then, and an observer with a clock of its own."""

from dataclasses import dataclass, field, replace

from faultrun.core.hangs import detector
from faultrun.core.hangs.limits import Beat, Pause, Watch
from faultrun.model.observed.hang import Activity, HangPolicy, HangWarned, PauseHistory, Suspicion
from faultrun.model.observed.progress import WorkPhase
from support.stories import hang_stories

LOOK_S = 0.125


@dataclass
class Job:
    """Ranks that say something, and somebody who looks at them every ``look_s``."""

    ranks: int = 2
    policy: HangPolicy = HangPolicy()
    now_s: float = 0.0
    beats: dict[int, Beat] = field(default_factory=dict)
    stopped: frozenset[int] = frozenset()
    patience: PauseHistory = PauseHistory()
    look_s: float = LOOK_S

    def __post_init__(self) -> None:
        self.watch = Watch(policy=self.policy, at_s=self.now_s, run=self.patience)
        self.beats = {rank: Beat(rank=rank, begun=False) for rank in range(self.ranks)}

    def begin(self) -> "Job":
        for rank in self.beats:
            self.say(rank, WorkPhase.COMPUTING)
        return self

    def say(self, rank: int, phase: WorkPhase, step: int | None = None) -> None:
        before = self.beats[rank]
        self.beats[rank] = Beat(
            rank=rank,
            begun=True,
            stepped=before.stepped or step is not None,
            step=before.step if step is None else step,
            phase=phase,
            spoke_at_s=self.now_s,
        )

    def step(self, *ranks: int, to: int) -> None:
        for rank in ranks or tuple(self.beats):
            self.say(rank, WorkPhase.COMPUTING, to)

    def passes(self, seconds: float) -> Suspicion | None:
        """Time passes and nobody says anything; what is suspected first, if anything is."""
        until_s = self.now_s + seconds
        while self.now_s < until_s - 1e-9:
            self.now_s += self.look_s
            self.watch = detector.observe(self.watch, self.beats.values(), self.now_s, self.look_s)
            found = detector.suspect(self.watch, self.stopped)
            if found is not None:
                return found
        return None

    def suspects(self, seconds: float) -> Suspicion:
        """Time passes until somebody is suspected, which must be within ``seconds``."""
        found = self.passes(seconds)
        assert found is not None
        return found

    def trains(self, steps: int, *, pace_s: float = 0.25, first: int = 1) -> "Job":
        for number in range(first, first + steps):
            assert self.passes(pace_s) is None
            self.step(to=number)
        return self

    def is_warned_of(self, found: Suspicion, stance: Activity = Activity.SLEEPING) -> None:
        """What the watch hears when nobody was found at work."""
        self.watch = detector.warned(self.watch, warning(found, stance))

    def goes_on(self, to: int) -> Pause | None:
        """All ranks finish a step, and somebody looks; the pause that is told, if it is worth it."""
        self.step(to=to)
        assert self.passes(self.look_s) is None
        return self.watch.over


def warning(found: Suspicion, stance: Activity = Activity.SLEEPING) -> HangWarned:
    told = hang_stories.warned(0.0, 0, found.behind[0], stance)
    return replace(told, silent_s=found.silent_s, acts_s=found.acts_s)
