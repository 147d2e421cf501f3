"""Configurations that a run rewrites in its turn, or restores: for a run that has any."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from faultrun.configs.apply import carry_out, check, in_place, take_back
from faultrun.configs.originals import restore
from faultrun.configs.pointer import point as point_at
from faultrun.configs.turn import ConfigTurns
from faultrun.core import template
from faultrun.errors import ConfigError
from faultrun.model.checkpoint import Kind
from faultrun.model.edit import EditedCopy, EditResult
from faultrun.model.plan import Plan
from faultrun.model.spec.run_spec import RunSpec

_LOOK_AGAIN_S = 0.25
_FIRST_TURN_S, _TURN_S = 120.0, 600.0
"""A run that trains already has more to lose by not going on."""


class Rewriting:
    """Sets the recovery point of a plan; remembers the edited ``copies`` that workers must be pointed at.

    ``incarnation`` is the one whose workers read the files that this run has the turn for.
    """

    def __init__(
        self, spec: RunSpec, originals: Path, say: Callable[[str], None], pause: Callable[[float], None]
    ) -> None:
        self._spec, self._originals, self._say, self._pause = spec, originals, say, pause
        self.copies: tuple[EditedCopy, ...] = ()
        self.incarnation = -1
        self._files = in_place(spec.recovery.rewrites)
        self._turns = ConfigTurns(name_of_run(spec, originals))

    def rewrite(self, plan: Plan, chosen: template.Values | None) -> tuple[EditResult, ...]:
        """Have configurations name what is ``chosen``; None: nothing is resumed from.

        ConfigError or OSError where that cannot be done.
        """
        if self._files:
            self._take_turn(plan)
        if chosen is None or plan.point is None:
            # Nothing to resume from: no recovery point must be found there.
            self._restore()
            if plan.incarnation == 0:
                self._tell_begin()
            self.copies = ()
            return ()
        recovery = self._spec.recovery
        results: tuple[EditResult, ...] = ()
        if recovery.rewrites:
            results = carry_out(recovery.rewrites, chosen, originals=self._originals)
            self.copies = tuple(result.copy for result in results if result.copy is not None)
        if chosen.is_directory and plan.point.kind is not Kind.GASP:  # the code itself knows nothing else
            results += point_at(recovery.pointers, chosen, originals=self._originals)
        return results

    def release(self) -> None:
        """Let other runs have their turn."""
        self._turns.release()

    def _take_turn(self, plan: Plan) -> None:
        """Until its workers have shown a step they may still read their configuration."""
        waits = count()

        def pause() -> None:
            if not next(waits):
                names = " ".join(map(str, self._files))
                self._say(f"another run rewrites {names}, too: waiting until its workers have begun")
            self._pause(_LOOK_AGAIN_S)

        self.incarnation = plan.incarnation
        within_s = _FIRST_TURN_S if plan.incarnation == 0 else _TURN_S
        self._turns.take(self._files, within_s=within_s, pause=pause)

    def _restore(self) -> None:
        try:
            if self._originals.exists():
                restore(self._originals)
            for file in take_back(self._files):
                self._say(f"{file} named the recovery point of another run; it is as it was before that")
        except ConfigError as error:
            self._say(f"a configuration may still name an earlier checkpoint:\n{error}")

    def _tell_begin(self) -> None:
        """A value that the user set is theirs; that a first life begins from it is better said."""
        with suppress(ConfigError):
            for result in check(self._spec.recovery.rewrites, originals=self._originals):
                for change in result.changes:
                    there = (change.before or "").strip("\"' ")
                    if there and Path(there).exists():
                        self._say(f"{result.file}: {change.key} names {there}: the script may begin there")


def name_of_run(spec: RunSpec, originals: Path) -> str:
    """By what this run, with all its nodes, is known to others that rewrite the same files."""
    return spec.run_id if spec.agreement is not None else f"{spec.run_id} {originals}"
