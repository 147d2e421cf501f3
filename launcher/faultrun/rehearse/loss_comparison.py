"""Whether training after a restart is that of an undisturbed one, by the losses that both printed. Pure."""

from collections.abc import Mapping

from faultrun.core.logged_losses import LossPlace, widest
from faultrun.rehearse.outcome import Likeness, LossCheck

Losses = Mapping[LossPlace, float]
_WIDE = 0.05
"""The share of the loss by which two undisturbed starts may differ: by more, they are two trainings."""


def compare(undisturbed: Losses, again: Losses, noise: float | None) -> LossCheck:
    """Lay what ``again`` printed after a restart beside ``undisturbed``.

    ``noise`` is by how much two undisturbed trainings differed; None: unknown. The first loss that is
    printed after a restart may be a mean over fewer steps: it alone is no difference. A ``noise`` of more
    than 5 % of the loss, or of all that training has changed it by, leaves nothing to compare by.
    """
    shared = [place for place in again if place in undisturbed]
    if (whole := widest(undisturbed, again)) is None:
        return LossCheck()
    place, apart = whole
    limit = noise or 0.0
    if apart > 0 and _too_wide(limit, undisturbed, place):
        words = f"two undisturbed starts differ by {limit:.2g} (unseeded)"
        return LossCheck(likeness=Likeness.UNSEEDED, compared=len(shared), words=words)
    if apart <= limit:
        words = "" if apart == 0 else f"within {noise:.2g}, as two undisturbed starts"
        return LossCheck(likeness=Likeness.SAME, compared=len(shared), words=words)
    rest = widest(undisturbed, {one: again[one] for one in shared[1:]})
    if rest is not None and rest[1] <= limit:
        words = f"but for the first, {shared[0]}"
        return LossCheck(likeness=Likeness.SAME, compared=len(shared), words=words)
    words = f"by {apart:.3g} at {place}: {again[place]:.6g}, undisturbed {undisturbed[place]:.6g}"
    if noise:
        words += f"; two undisturbed starts differ by {noise:.2g}"
    return LossCheck(likeness=Likeness.DIFFER, compared=len(shared), words=words)


def _too_wide(noise: float, undisturbed: Losses, place: LossPlace) -> bool:
    losses = list(undisturbed.values())
    progress = abs(losses[-1] - losses[0])
    return noise > _WIDE * abs(undisturbed[place]) or (len(losses) > 1 and noise >= progress)


def noise_of(one: Losses, other: Losses) -> float | None:
    """By how much two undisturbed trainings differ; None where they printed no place in common."""
    return None if (found := widest(one, other)) is None else found[1]
