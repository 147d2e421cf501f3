"""What is known in closed form, to check the simulation and to choose an interval: Young 1974, Daly 2006."""

import math


def young_s(save_s: float, mtbf_s: float) -> float:
    """The best time between two saves, to first order: the root of 2 C M."""
    return math.sqrt(2 * save_s * mtbf_s)


def daly_s(save_s: float, mtbf_s: float) -> float:
    """Daly's higher order: shorter by about the save, a little longer where failures are frequent."""
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    small = save_s / (2 * mtbf_s)
    return young_s(save_s, mtbf_s) * (1 + math.sqrt(small) / 3 + small / 9) - save_s


def ettr(every_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    """Daly's complete model for exponential failures that lose all since the last save, also in restarts."""
    longer = math.expm1((every_s + save_s) / mtbf_s)
    return every_s / (mtbf_s * math.exp(restart_s / mtbf_s) * longer)


def best_s(save_s: float, mtbf_s: float) -> float:
    """The maximum of ``ettr`` over the interval, by halving: its slope has one zero."""
    low_s, high_s = 1e-6, 50 * young_s(save_s, mtbf_s) + save_s
    for _ in range(200):
        middle_s = math.sqrt(low_s * high_s)
        share = middle_s / mtbf_s
        rises = math.expm1(-(middle_s + save_s) / mtbf_s) + share < 0
        low_s, high_s = (middle_s, high_s) if rises else (low_s, middle_s)
    return low_s
