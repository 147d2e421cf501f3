"""Whether a script went on from the recovery point: what it opened, and its first step beside the chosen one.

That a path was handed over proves nothing. A step that fits is no proof either, where the script was seen to
open another checkpoint and not the chosen one.
"""

from collections.abc import Collection
from dataclasses import dataclass

from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import FirstStep
from faultrun.model.incident import Incident
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.recovery import Began, FirstStepLogged, ResumeChecked
from faultrun.model.spec.run_spec import Recovery

First = FirstStep | FirstStepLogged
_STRIDE, _STRIDE_BY_LOG = 10, 100
"""How many steps may lie between two that are told, where the first life did not show it."""
_BY_ITSELF = "; the script resumed by itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlace:
    """A first step, as far as it is known. ``sure``: ``step`` is global and not perhaps one of its epoch."""

    step: int | None
    epoch: int | None = None
    in_epoch: int | None = None
    by_log: bool = False

    @property
    def sure(self) -> bool:
        """Whether ``step`` is a global one: a log that names the epoch, too, may count anew in it."""
        return self.step is not None and (not self.by_log or self.epoch in (None, 0))

    def __lt__(self, other: "StartPlace") -> bool:
        mine, theirs = (self.step, self.epoch, self.in_epoch), (other.step, other.epoch, other.in_epoch)
        return [-1 if one is None else one for one in mine] < [-1 if one is None else one for one in theirs]

    @property
    def words(self) -> str:
        """``step 81``, ``step 2 (epoch 3)``, ``epoch 3, step 2 of it``, with its source."""
        by_log = " by its log" if self.by_log else ""
        if self.step is not None:
            return f"step {self.step}{'' if self.epoch is None else f' (epoch {self.epoch})'}{by_log}"
        within = f", step {self.in_epoch} of it" if self.in_epoch is not None else ""
        if self.epoch is None:
            return f"step {self.in_epoch} of an epoch{by_log}"
        return f"epoch {self.epoch}{within}{by_log}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What was opened to be read between the start of the workers and their first step.

    ``chosen``: the recovery point was; ``others`` are the paths of other checkpoints. ``seen`` is False where
    it could not be seen. ``several``: a rank of another node may have opened the recovery point for all.
    ``refused``: why the SDK did not give it to a program below a rank.
    """

    seen: bool = False
    chosen: bool = False
    others: tuple[str, ...] = ()
    several: bool = False
    refused: str = ""


def opened_of(paths: Collection[str], point: RecoveryPoint, *, several: bool = False) -> Opened:
    """What ``paths`` of opened checkpoints are beside ``point``, on this node of ``several``."""
    others = tuple(path for path in paths if not point.holds(path))
    return Opened(seen=True, chosen=len(others) < len(paths), others=others, several=several)


def place_of(first: First) -> StartPlace:
    """Where an incarnation began."""
    match first:
        case FirstStep(step=step, began=began):
            return StartPlace(step=step if began is None else began)
        case FirstStepLogged(step=step, epoch=epoch, in_epoch=in_epoch):
            return StartPlace(step=step, epoch=epoch, in_epoch=in_epoch, by_log=True)


def logged_place(told: DeathNote | Incident) -> StartPlace | None:
    """The last place that a log tells; None where it tells none, or where ranks report theirs."""
    if isinstance(told, DeathNote):
        step, epoch, within = told.logged_step, told.logged_epoch, told.logged_in_epoch
    else:
        step, epoch, within = (told.step, told.epoch, told.in_epoch) if told.step_from_log else (None,) * 3
    none = step is None and epoch is None
    return None if none else StartPlace(step=step, epoch=epoch, in_epoch=within, by_log=True)


def done_again(last: StartPlace, first: StartPlace, every: int) -> int | None:
    """Steps from ``first`` to ``last``, both told by logs; None where no one count holds both.

    A log need not count as checkpoints do, nor tell every step: one in ``every``.
    """
    if every != 1 or not first.by_log:
        return None
    if last.epoch == first.epoch and last.in_epoch is not None and first.in_epoch is not None:
        return max(0, last.in_epoch - first.in_epoch + 1)
    known = all(one.sure or one.in_epoch is not None for one in (last, first))
    if (known or last.epoch == first.epoch) and last.step is not None and first.step is not None:
        return max(0, last.step - first.step + 1)
    later = first.epoch is not None and last.epoch is not None and first.epoch > last.epoch
    further = first.step is not None and last.step is not None and first.step > last.step
    return 0 if later and (further or last.in_epoch is not None) else None


def place_checked(checked: ResumeChecked) -> StartPlace:
    """The place that was checked."""
    return StartPlace(
        step=checked.step, epoch=checked.epoch, in_epoch=checked.in_epoch, by_log=checked.by_log
    )


def check(
    first: First,
    point: RecoveryPoint | None,
    recovery: Recovery,
    origin: StartPlace | None,
    opened: Opened = Opened(),
) -> ResumeChecked:
    """Compare the ``first`` step of an incarnation with its recovery ``point``.

    ``origin`` is where an incarnation began that had nothing to resume from,
    printed in the same way: a rank that is there again began anew, whatever it counts.
    """
    place = place_of(first)
    began = _from_nothing(place, origin) if point is None else _from(place, point, origin, opened)
    return ResumeChecked(
        at_s=first.at_s,
        incarnation=first.incarnation,
        began=began,
        why=_why(began, place, point, recovery, opened),
        step=place.step,
        epoch=place.epoch,
        in_epoch=place.in_epoch,
        by_log=place.by_log,
        chosen_step=None if point is None else point.global_step,
    )


def _from_nothing(place: StartPlace, origin: StartPlace | None) -> Began:
    """A further step proves nothing: who is slow to report, or prints by the clock, begins there, too."""
    if place == origin:
        return Began.AS_CHOSEN
    further = (
        place.epoch is not None
        and origin is not None
        and origin.epoch is not None
        and place.epoch > origin.epoch
    )
    return Began.ELSEWHERE if further else Began.UNKNOWN


def _from(place: StartPlace, point: RecoveryPoint, origin: StartPlace | None, opened: Opened) -> Began:
    """By the global step where both are sure, by the epoch where both name one; unless it opened another."""
    chosen = point.global_step
    told = origin.step if origin is not None and origin.step else None
    stride = max(1, told) if told is not None else _STRIDE_BY_LOG if place.by_log else _STRIDE
    beyond = None if chosen is None or place.step is None else place.step - chosen
    misfit = beyond not in (0, 1)
    if opened.several:  # a log that tells each tenth step is no evidence against a rank that is not seen here
        misfit = beyond is not None and place.sure and not 0 <= beyond <= stride
    if misfit and opened.others and not opened.chosen:
        return Began.ELSEWHERE
    if beyond is not None and beyond > stride and (opened.others or not opened.chosen):
        return Began.UNKNOWN
    if beyond is not None and beyond >= 0:
        unread = opened.seen and not opened.chosen and place.by_log and place == origin
        return Began.UNKNOWN if unread else Began.AS_CHOSEN
    if place.by_log and opened.chosen and not opened.others:
        return Began.UNKNOWN  # it was loaded, whatever the script counts in its log
    # A step that was only seen is that of the furthest rank, and a script may be right to begin before it.
    near = point.named_step is not None and beyond is not None and -2 * beyond <= (chosen or 0)
    if place.sure and chosen is not None and not near:
        return Began.ELSEWHERE
    if place == origin:
        return Began.ELSEWHERE
    if place.epoch is None or point.epoch is None:
        return Began.UNKNOWN
    if place.epoch >= point.epoch:
        return Began.AS_CHOSEN
    # One counts from 0 and the other from 1, perhaps.
    return Began.UNKNOWN if place.epoch + 1 == point.epoch else Began.ELSEWHERE


def _why(
    began: Began, place: StartPlace, point: RecoveryPoint | None, recovery: Recovery, opened: Opened
) -> str:
    if began is Began.UNKNOWN:
        loaded = point is not None and opened.chosen and not opened.others
        return f"training from {place.words}{', with the chosen checkpoint opened' if loaded else ''}"
    if point is None:
        how = ", as it should" if began is Began.AS_CHOSEN else _BY_ITSELF
        return f"training from {place.words}{how}"
    if began is Began.AS_CHOSEN:
        how = ", as chosen" if recovery.handed_over else _BY_ITSELF
        return f"training again at {place.words}{how}"
    if opened.others and not opened.chosen and not opened.refused:
        name, chosen = opened.others[-1].rpartition("/")[2], point.path.rpartition("/")[2]
        who = "the script on this node" if opened.several else "the script"
        return f"{who} opened {name}, not {chosen}, and began at {place.words}"
    was = "was handed over" if recovery.handed_over else "lies there"
    reason = opened.refused or _reason(recovery)
    return f"the script began at {place.words} although {_chosen(point)} {was}: {reason}"


def _chosen(point: RecoveryPoint) -> str:
    if point.global_step is not None:
        return f"{'' if point.named_step is None else 'about '}step {point.global_step}"
    return f"epoch {point.epoch}" if point.epoch is not None else point.path


def _reason(recovery: Recovery) -> str:
    """The likely one."""
    if recovery.resume_args:
        return f"does it act on {recovery.resume_args[0]}?"
    if recovery.rewrites:
        return f"does it read {recovery.rewrites[0].key} of {recovery.rewrites[0].file}?"
    if recovery.pointers:
        return f"does it follow {recovery.pointers[0].name}, which names it?"
    if recovery.script_asks:
        return "does it load FAULTRUN_RESUME_FROM before its loop?"
    return "nothing tells the script: --resume_arg, --rewrite, or FAULTRUN_RESUME_FROM in the script"
