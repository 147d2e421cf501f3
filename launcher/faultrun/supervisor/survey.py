"""Which checkpoint to resume from: the catalog's findings under the run's rules."""

from dataclasses import replace
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.survey import Survey as Found
from faultrun.checkpoints.survey import survey
from faultrun.core import recover
from faultrun.core.recover import Need
from faultrun.model.actions import Survey
from faultrun.model.checkpoint import Depth, RecoveryPoint, Refusal, Verdict
from faultrun.model.events import NothingWhole, RecoveryPointChosen
from faultrun.model.spec import Resume, RunSpec
from faultrun.supervisor.reactor import RunClock
from faultrun.supervisor.replicas import KnownReplicas, known_replicas
from faultrun.supervisor.survey_meter import SurveyMeter

_SHOWN = 50


class CheckpointSurveyor:
    """Implements ``ports.Surveyor``.

    ``meter`` is told how far a verification is.
    """

    def __init__(
        self,
        spec: RunSpec,
        catalog: Catalog,
        clock: RunClock,
        meter: SurveyMeter | None = None,
    ) -> None:
        self._meter = meter
        self._spec = spec
        self._catalog = catalog
        self._clock = clock

    def survey(self, request: Survey, at_s: float) -> RecoveryPointChosen | NothingWhole:
        """See ``ports.Surveyor``."""
        try:
            return self._surveyed(request, at_s)
        finally:
            if self._meter is not None:
                self._meter.over()

    def _surveyed(self, request: Survey, at_s: float) -> RecoveryPointChosen | NothingWhole:
        if not self._spec.recovery.checkpoint_dirs:
            return self._chosen(request, at_s)
        if not request.continuing and self._spec.recovery.resume is not Resume.ALWAYS:
            left_alone, mine = self._leave_others_alone()
            if not mine:
                return self._chosen(request, at_s, left_alone=left_alone)
        replicas = known_replicas(self._spec)
        need = self._need(request, replicas)
        found = survey(self._catalog, need, watch=self._meter)
        if isinstance(found.choice, recover.NothingWhole) and need.lost_ranks:
            # No replica can stand in: what a faulty rank wrote while it was well is verified like any other.
            need = replace(need, lost_ranks=frozenset())
            found = survey(self._catalog, need, watch=self._meter)
        if isinstance(found.choice, recover.NothingWhole) and need.quarantine:
            # Nothing older is left to fall back to: the quarantined file is still better than none.
            found = survey(self._catalog, replace(need, quarantine=()), watch=self._meter)
        self._never_trust_later(found, need)
        self._catalog.know(one for one in found.scan.entries if not (need.after_fault and one.doubtful))
        self._catalog.tidy(found.scan)
        match found.choice:
            case recover.Chosen(point=point):
                return self._chosen(request, at_s, point=point, refused=(*found.refused, *replicas.refused))
            case recover.NothingFound():
                return self._chosen(request, at_s, refused=found.refused)
            case recover.NothingWhole():
                return self._nothing(request, found, replicas)

    def read_back(self, path: str) -> Verdict:
        """See ``ports.Surveyor``. What is learnt here need not be read again by the survey."""
        entries = self._catalog.scan().entries
        # Workers run in our own working directory, so a path that they say is relative to it.
        wanted = Path(path).absolute()
        entry = next((one for one in entries if Path(one.path) == wanted), None)
        if entry is None:
            return Verdict(whole=False, why="not a candidate under --checkpoint_dir", depth=Depth.NAME)
        return self._catalog.verify(entry)

    def _need(self, request: Survey, replicas: KnownReplicas) -> Need:
        resume_any = self._spec.recovery.resume is Resume.ALWAYS
        return Need(
            world_size=self._spec.topology.world_size,
            groups=replicas.groups,
            run_id=None if resume_any else self._spec.run_id,
            quarantine=request.quarantine,
            lost_ranks=frozenset(request.lost),
            after_fault=request.fault_at_s is not None and self._spec.topology.world_size > 1,
        )

    def _leave_others_alone(self) -> tuple[int, int]:
        """Mark what is older than this run so that no restart takes it; how many, and how many are ours."""
        scan = self._catalog.scan()
        auto = self._spec.recovery.resume is Resume.AUTO
        others = [entry for entry in scan.entries if not (auto and entry.run_id == self._spec.run_id)]
        self._catalog.leave_alone(others)
        return len(others), len(scan.entries) - len(others)

    def _never_trust_later(self, found: Found, need: Need) -> None:
        """A gasp that is doubtful now is doubtful for ever; a stop without a fault does not clear it."""
        if need.after_fault:
            self._catalog.leave_alone(one for one in found.scan.entries if one.doubtful and not one.known)

    def _chosen(
        self,
        request: Survey,
        at_s: float,
        *,
        point: RecoveryPoint | None = None,
        refused: tuple[Refusal, ...] = (),
        left_alone: int = 0,
    ) -> RecoveryPointChosen:
        now_s = self._clock.now()
        return RecoveryPointChosen(
            at_s=now_s,
            incarnation=request.incarnation,
            point=point,
            refused=refused[:_SHOWN],
            left_alone=left_alone,
            took_s=now_s - at_s,
        )

    def _nothing(self, request: Survey, found: Found, replicas: KnownReplicas) -> NothingWhole:
        newest = found.refused[0] if found.refused else None
        count = len(found.scan.entries) + len(found.scan.refused)
        roots = " ".join(self._spec.recovery.checkpoint_dirs)
        because = f"{count} found, none whole" + (f"; {newest.path}: {newest.why}" if newest else "")
        because += "".join(f"; {doubt.path}: {doubt.why}" for doubt in replicas.refused)
        return NothingWhole(
            at_s=self._clock.now(),
            incarnation=request.incarnation,
            refused=(*found.refused, *replicas.refused)[:_SHOWN],
            why=f"no whole checkpoint in {roots}\n  because: {because}\n"
            f"  try:     faultrun ckpt list --why {roots}",
        )
