"""The first-failure card as text: one screen that answers what happened, what was lost and what is next."""

from faultrun.core.diagnose import describe
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.incident import Card, Cause, Incident
from faultrun.model.printable import one_line
from faultrun.model.recovery import Began

_LISTED = 8
_TRY_WHY = "faultrun ckpt list --why"


def render(card: Card) -> str:
    """The card of CONTRACT §6, without a line end."""
    rows = [
        ("cause", _cause(card.incident)),
        ("try", card.incident.finding.hint if card.incident.finding is not None else ""),
        ("stacks", card.incident.stacks),
        ("last log", f'{card.log_name}: "{card.incident.last_line}"' if card.incident.last_line else ""),
        ("saved", _saved(card)),
        ("resume", _resume(card)),
        ("restart", _restart(card)),
    ]
    lines = [headline(card), *(f"  {name:<9} {text}" for name, text in rows if text)]
    return "\n".join(one_line(line) for line in lines)


def headline(card: Card) -> str:
    """Who, out of how many, how and at which step; and who merely followed."""
    incident = card.incident
    followers = ""
    if incident.together:
        followers += f"; {_ranks(incident.together)} died with it"
    if incident.followers:
        followers += f"; {_ranks(incident.followers)} followed"
    what = f"{_who(card)} {_how(incident)}{_at_step(incident)}"
    return f"incident {incident.number}  {what}   first failure{followers}"


def lost_steps(card: Card) -> int | None:
    """Steps that must be trained again; None when nobody knows how far training had come."""
    if card.incident.step is None:
        return None
    if card.checked is not None and card.checked.began is Began.ELSEWHERE:
        began = card.checked.step
        return (
            None
            if began is None or card.checked.epoch is not None
            else max(0, card.incident.step - began + 1)
        )
    if card.point is None:
        return card.incident.step
    if not card.handed_over and card.checked is None:
        return None
    if card.point.global_step is None:
        return None
    if card.point.global_step > card.incident.step and card.incident.step_from_log:
        return None
    # A survivor may have made one step more than anybody had reported when the first one died.
    return max(0, card.incident.step - card.point.global_step)


def _who(card: Card) -> str:
    if card.incident.rank is not None:
        return f"rank {card.incident.rank} of {card.world_size}"
    return "all workers" if card.incident.ordered else "scheduler"


def _how(incident: Incident) -> str:
    if incident.status is not None:
        return describe(incident.status)
    if incident.cause is Cause.RENDEZVOUS:
        return "stopped for another scheduler"
    if incident.cause is Cause.HANG:
        return "hung"
    return "stopped for the platform" if incident.ordered else "could not be started"


def _at_step(incident: Incident) -> str:
    by_log = " by its log" if incident.step_from_log else ""
    if incident.step is None and incident.epoch is not None:
        within = f", step {incident.in_epoch} of it," if incident.in_epoch is not None else ""
        return f" in epoch {incident.epoch}{within}{by_log}"
    if incident.own_step is not None and incident.own_step != incident.step:
        others = f", others at {incident.step}" if incident.step is not None else ""
        return f" at step {incident.own_step}{others}"
    if incident.step is None:
        return ""
    epoch = f" (epoch {incident.epoch})" if incident.epoch is not None else ""
    return f" at step {incident.step}{epoch}{by_log}"


def _cause(incident: Incident) -> str:
    """What was recognised, then the exception or the line that says it."""
    finding, raised = incident.finding, incident.raised
    if raised is not None:
        where = f" ({raised.frame})" if raised.frame else ""
        text = f"{raised.kind}: {raised.message}{where}" if raised.message else f"{raised.kind}{where}"
        return f"{finding.says}: {text}" if finding is not None else text
    if finding is not None:
        return f"{finding.says}: {finding.line}"
    if incident.cause is Cause.SIGNAL and "SIGKILL" in incident.explanation:
        return "killed from outside: the kernel's OOM killer, an operator or another program"
    return incident.explanation


def _saved(card: Card) -> str:
    if not card.saves:
        return f"nothing: {_unsaved(card)}" if card.unsaved else ""
    newest = max(save.step for save in card.saves)
    at_newest = [save for save in card.saves if save.step == newest]
    ranks = _ranks(tuple(sorted(save.rank for save in at_newest)))
    text = f"{ranks} saved step {newest} in {max(save.took_s for save in at_newest):.1f} s (dying gasp)"
    return f"{text}; not {_unsaved(card)}" if card.unsaved else text


def _unsaved(card: Card) -> str:
    """The first line of each reason once, with the ranks that gave it."""
    by_reason: dict[str, list[int]] = {}
    for one in card.unsaved:
        by_reason.setdefault(one.why.partition("\n")[0], []).append(one.rank)
    return "; ".join(f"{_ranks(tuple(sorted(ranks)))}: {why}" for why, ranks in by_reason.items())


def _resume(card: Card) -> str:
    """What was chosen, and what came of it: never that a script resumes which nobody tells to."""
    refused = f"   ({card.refused} newer refused: {_TRY_WHY})" if card.refused else ""
    lost, checked, point = lost_steps(card), card.checked, card.point
    by_log = " by the logs" if card.incident.step_from_log else ""
    lost_text = "" if lost is None else f", lost {lost} step{'s' if lost != 1 else ''}{by_log}"
    elsewhere = checked is not None and checked.began is Began.ELSEWHERE
    if point is None:
        if checked is not None and elsewhere:
            return checked.why
        looked_in = (
            f"nothing in {' '.join(card.looked_in)}" if card.looked_in else "no --checkpoint_dir given"
        )
        return f"from the beginning: {looked_in}{lost_text}{refused}" if card.restart else ""
    if checked is not None and elsewhere:
        return f"{checked.why}{lost_text.replace(',', ';', 1)}{refused}"
    began = checked is not None and checked.began is Began.AS_CHOSEN
    if not card.handed_over and not began:
        return (
            f"no hand-over: nothing tells the script of {point.path} ({_step_of(point)}); "
            f"it decides by itself where it begins{refused}"
        )
    proved = f"; {checked.why}" if checked is not None and began else ""
    doubt = ", unverified (--trust)" if point.unverified else ""
    return f"{point.path}   {_step_of(point)}{lost_text}{doubt}{proved}{refused}"


def _step_of(point: RecoveryPoint) -> str:
    if point.global_step is None and point.epoch is not None:
        return f"epoch {point.epoch}"
    return f"step {'?' if point.global_step is None else point.global_step}"


def _restart(card: Card) -> str:
    if card.restart is None:
        return f"none: {card.why.partition(chr(10))[0]}"
    number, allowed = card.restart
    text = f"{number} of {allowed} in {duration(card.window_s)}"
    if card.refunded:
        text += f" ({card.refunded} before given back for progress)"
    if card.incident.ordered:
        text = "not counted"
    if card.trained_after_s is not None:
        return f"{text}; training again after {_took(card.trained_after_s)}"
    if card.restarted_after_s is not None:
        return f"{text}; workers running again after {_took(card.restarted_after_s)}"
    return f"{text}; in {card.backoff_s:.1f} s" if card.backoff_s > 0 else f"{text}; restarting now"


def duration(seconds: float) -> str:
    """``1h``, ``90s``, ``250ms``: the shortest exact spelling that the options accept."""
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _ranks(ranks: tuple[int, ...]) -> str:
    """``rank 3``, ``ranks 0 1 2``, and with hundreds of them ``ranks 0-17 19-511``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= _LISTED:
        return "ranks " + " ".join(str(rank) for rank in ranks)
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    return "ranks " + " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
