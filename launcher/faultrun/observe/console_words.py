"""Parts of what the console says: whose output it shows, what a stop saved, how many workers run."""

from collections.abc import Collection

from faultrun.core.humanize import rank_names, several
from faultrun.model.plan import Plan
from faultrun.model.run import RunState
from faultrun.model.spec.output import LogFormat, Stream
from faultrun.model.spec.run_spec import RunSpec
from faultrun.observe.missing_ranks import missing_words


def shown_output(spec: RunSpec) -> str:
    """Say whose output the console shows by default, and how to see more, so that no user misses it."""
    logs = spec.logs
    if logs.tee or logs.redirects or spec.view.log_format is LogFormat.JSON or not spec.supervision.join:
        return ""
    ranks = sorted(spec.topology.all_ranks)
    here = [rank for rank in ranks if logs.console(rank, rank % spec.slots) is not Stream.NONE]
    if len(here) == len(ranks):
        return ""
    names = " ".join(map(str, here))
    return f"; showing rank {names} (--tee=3 shows all)" if here else " (--tee=3 shows them here)"


def saved_words(state: RunState) -> str:
    """What a stop saved, or where the same command goes on without."""
    saves = state.life.saves
    if saves:
        step = max(save.step for save in saves)
        read = any(save.verified for save in saves if save.step == step)
        return f"; saved step {step}" if read else f"; saved step {step}, not read back"
    begun = None if state.plan is None or state.plan.point is None else state.plan.point.global_step
    newest = state.life.newest
    if begun is not None and newest is not None and newest.step <= begun:
        return f"; nothing new to save; the same command continues from step {begun}"
    if state.run.known_save:
        return "; no save was reported; the same command continues from the newest whole checkpoint"
    return "; no save was reported"


def running_words(
    ranks: Collection[int],
    plan: Plan | None,
    port: int,
    parked: Collection[int],
    finished: Collection[int] = (),
) -> str:
    """``4 workers running, port 8118``; where some stayed, who comes (was ``parked``), and who is missing."""
    if plan is None or not plan.kept:
        return f"{several(len(ranks), 'worker')} running, port {port}"
    if finished:
        left, has = sorted(plan.kept.difference(finished)), "has" if len(finished) == 1 else "have"
        goes_on = f", {rank_names(left)} {'goes' if len(left) == 1 else 'go'} on without" if left else ""
        return f"{rank_names(sorted(finished))} {has} finished{goes_on}"
    anew, stayed = tuple(sorted(plan.newcomers)), several(len(plan.kept), "worker")
    back = "comes back" if len(anew) == 1 else "come back"
    comes = back if plan.heals and plan.newcomers.issubset(parked) else "started again"
    told = [f"{rank_names(anew)} {comes}, {stayed} stayed"] if anew else []
    if plan.missing:
        told.append(missing_words(sorted(plan.missing), sorted(plan.topology.all_ranks), plan.barred()))
    return "; ".join(told) or f"{stayed} stayed, one of them repaired in place"
