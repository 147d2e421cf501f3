"""One letter for a rehearsal, and the sentences that explain it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from faultrun.rehearse.outcome import Ailment, Fate, Likeness, RehearsalOutcome, Trial


class Letter(Enum):
    """What each letter says of a training; the worst that applies is given."""

    A = "every fault survived, a dead rank or a stop costs one step at most, losses as undisturbed"
    B = "every fault survived; steps are trained twice, or the losses could not be compared"
    C = "every fault survived, but not cleanly"
    D = "some faults end the run, or lose all of it"
    F = "the death of a rank loses all of it"
    NONE = "nothing was tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """``whole``: every fault there is was tried. If not, the letter is of those that were."""

    letter: Letter
    whole: bool
    reasons: tuple[str, ...]

    @property
    def words(self) -> str:
        """``B``, or with a limit: ``B at best``."""
        if self.letter is Letter.NONE:
            return "none"
        return self.letter.name if self.whole else f"{self.letter.name} at best"


def grade(found: RehearsalOutcome) -> Grade:
    """Judge what was tried."""
    tried = [one for one in found.tried if one.fate is not Fate.NOT_TRIED]
    whole = len(tried) == len(found.tried) and not found.left_out
    letter = _letter(found) if tried else Letter.NONE
    return Grade(letter=letter, whole=whole, reasons=tuple(_reasons(found)))


def _letter(found: RehearsalOutcome) -> Letter:
    lost = {one.trial for one in found.tried if one.fate is Fate.LOST}
    ailments = set(found.ailments)
    if lost & {Trial.RANK, Trial.RANK_0} or Ailment.SAVES_NOTHING in ailments:
        return Letter.F
    if lost:
        return Letter.D
    if ailments:
        return Letter.C
    tried = [one for one in found.tried if one.fate is Fate.SURVIVED]
    asked = [one.lost_steps for one in tried if one.trial in (Trial.RANK, Trial.RANK_0, Trial.STOP)]
    known = any(one.losses.likeness is Likeness.SAME for one in tried)
    return Letter.A if known and all(lost is not None and lost <= 1 for lost in asked) else Letter.B


def _reasons(found: RehearsalOutcome) -> Iterator[str]:
    yield from (_sentence(ailment, found) for ailment in found.ailments)
    late = [one.trial.title for one in found.tried if one.fate is Fate.NOT_TRIED]
    if late:
        yield f"not tried, and so not known: {', '.join(late)}"
    if found.left_out:
        yield f"not asked for, and so not known: {', '.join(one.title for one in found.left_out)}"
    twice = [one.lost_steps for one in found.tried if one.lost_steps]
    every_s = found.undisturbed.save_every_s
    if twice:
        often = f"; it saves every {every_s:.0f} s" if every_s is not None and every_s >= 1 else ""
        steps = "step is" if max(twice) == 1 else "steps are"
        yield f"up to {max(twice)} {steps} trained twice after a fault{often}"
    survived = [one for one in found.tried if one.life >= 0 and one.fate is Fate.SURVIVED]
    if any(one.losses.likeness is Likeness.UNSEEDED for one in survived):
        words = next(one.losses.words for one in survived if one.losses.likeness is Likeness.UNSEEDED)
        yield f"losses could not be compared: {words}; seed the random numbers to know"
    unknown = [one for one in survived if one.losses.likeness is Likeness.UNKNOWN]
    if unknown:
        yield "losses could not be compared after every fault: print `step N loss X` at every step to know"


def _sentence(ailment: Ailment, found: RehearsalOutcome) -> str:
    part = found.undisturbed
    match ailment:
        case Ailment.SAVES_NOTHING:
            step = f" (step {part.last_step})" if part.last_step is not None else ""
            return (
                f"saves nothing: no checkpoint in {part.trained_s:.0f} s of training{step}; if it saves "
                "less often, give the script a shorter interval behind SCRIPT, or more --minutes"
            )
        case Ailment.SAVES_ELSEWHERE:
            folders = " ".join(f"--checkpoint_dir={folder}" for folder in part.elsewhere)
            return f"saves where faultrun is not told to look: {folders} would let it verify and choose"
        case Ailment.SAVES_IN_PLACE:
            return (
                f"saves in place: {part.in_place} is written over, and a kill inside a save takes the old "
                "one with it; write another name and rename it (os.replace)"
            )
        case Ailment.BEGINS_ANEW:
            return f"ignores what it is given to resume from: {_note_of(ailment, found)}"
        case Ailment.NOT_TOLD:
            return "is not told where to resume: --resume_arg, --rewrite, --recipe or lines of faultrun.sdk"
        case Ailment.HIDES_ERRORS:
            return "exits 0 after an error: it ended as if complete, without training a step"
        case Ailment.STUCK_IN_STOP:
            return f"does not end after SIGTERM: {_note_of(ailment, found)}"
        case Ailment.OTHER_LOSSES:
            words = next(one.losses.words for one in found.tried if one.losses.likeness is Likeness.DIFFER)
            return (
                f"trains differently after a resume: the loss differs {words}; random numbers, the place "
                "in the data or the optimizer are not brought back"
            )
        case Ailment.FREEZE_UNSEEN:
            return "a frozen rank is not noticed: --hang_signal=log, or heartbeats of faultrun.sdk"
        case Ailment.NO_STEPS:
            return "reports no steps: neither the SDK nor its log says how far it is"


def _note_of(ailment: Ailment, found: RehearsalOutcome) -> str:
    return next((one.note for one in found.tried if ailment in one.ailments), "")
