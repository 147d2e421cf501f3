"""The first-failure card: one screen that answers what happened, what was lost and what is next.

Shown when the incident is decided, written anew when more is known.
"""

from collections.abc import Sequence
from dataclasses import replace

from faultrun.core.diagnosis.diagnose import describe
from faultrun.core.humanize import rank_names, several, span
from faultrun.core.plan.joint_incident import answered_by
from faultrun.core.recovery.resume_verdict import done_again, logged_place, place_checked
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.incident import Aftermath, Card, Cause, Incident, Save
from faultrun.model.line_tone import Tone, Toned, toned
from faultrun.model.observed.recovery import Began
from faultrun.model.plan import Plan
from faultrun.model.printable import one_line
from faultrun.model.spec.run_settings import RunSettings
from faultrun.model.topology import Replacement
from faultrun.observe.missing_ranks import missing_words

_HOUR_S = 3600.0
_TRY_WHY = "faultrun ckpt list --why"
_SHOWN_S = 0.05  # less would be 0.0 with one digit
_CAME_OVER_IT = {
    Cause.RENDEZVOUS: "stopped to change the scheduler",
    Cause.GROWTH: "stopped to be more",
    Cause.UNHEALED: "was missing for too long",
    Cause.HANG: "hung",
    Cause.ELSEWHERE: "cannot go on",
    Cause.NODE: "was lost",
    Cause.FENCE: "was fenced",
    Cause.REJOIN: "did not rejoin",
    Cause.MEMORY: "has bad memory",
}


def render(card: Card) -> str:
    """The card of CONTRACT §6, without a line end."""
    rows = [
        ("when", f"{card.at_local} on {card.host}" if card.at_local else ""),
        ("cause", _cause(card.incident)),
        ("because", card.incident.raised.because if card.incident.raised is not None else ""),
        ("try", card.incident.finding.hint if card.incident.finding is not None else ""),
        ("stacks", card.incident.stacks),
        ("last log", f'{card.log_name}: "{card.incident.last_line}"' if card.incident.last_line else ""),
        ("saved", _saved(card)),
        ("place", "; ".join(map(place_taken, card.replaced))),
        ("stayed", f"nobody: {card.incident.unkept}" if card.incident.unkept else ""),
        ("workers", card.workers),
        ("missing", _missing(card)),
        ("opened", card.opened),
        ("resume", _resume(card)),
        ("restart", _restart(card)),
    ]
    lines = [headline(card), *(f"  {name:<9} {text}" for name, text in rows if text)]
    return "\n".join(one_line(line) for line in lines)


def agreed_card(
    plan: Plan | None, told: Aftermath, settings: RunSettings, world_size: int, gave_up: str = ""
) -> Card:
    """The card of an incident of several nodes, made of what their plan tells: each writes the same.

    ``plan`` answers the incident, if ``told`` does not say how another did; ``gave_up``: why none did.
    ``world_size`` is that of the next world, or of the last one.
    """
    rank = told.incident.rank
    known = told.answer or (None if plan is None else answered_by(plan))
    answer = None if gave_up else known
    point: RecoveryPoint | None = None if answer is None else answer.point
    return Card(
        incident=told.incident,
        world_size=told.world_size or (world_size if told.answer is None else told.answer.world_size),
        saves=told.saves,
        point=point,
        refused=0,
        restart=None if answer is None else (answer.restarts, settings.policy.max_restarts),
        window_s=settings.policy.window_s,
        why=gave_up,
        log_name=f"{settings.worker_log_name}_{rank}.log" if rank is not None else "",
        unsaved=told.unsaved,
        handed_over=settings.handed_over,
        looked_in=settings.checkpoint_dirs,
        refunded=told.refunded,
        at_local=told.incident.at_utc,
        host=told.incident.node,
        replaced=() if known is None else known.replaced,
        kept=() if answer is None else tuple(sorted(answer.kept)),
        workers="" if answer is None else answer.workers,
    )


def in_colours(text: str) -> Toned:
    """A card's text: what failed, what is lost and what goes on."""
    return toned(text, *(_tone(number, line) for number, line in enumerate(text.split("\n"))))


def headline(card: Card) -> str:
    """Who, out of how many, how and at which step; and who stopped because of it."""
    incident = card.incident
    others = [f"{rank_names(incident.together)} died with it"] if incident.together else []
    if incident.followers:
        others.append(f"{rank_names(incident.followers)} stopped because of it")
    if others and not incident.ordered and incident.cause not in (Cause.NODE, Cause.FENCE):
        others.insert(0, "failed first")
    what = f"{_who(card)} {how_and_where(incident)}"
    return "   ".join(filter(None, (f"incident {incident.number}  {what}", "; ".join(others))))


def lost_steps(card: Card) -> int | None:
    """Steps that must be trained again; None if unknown, as before a log has told where it goes on."""
    if not card.kept and (last := logged_place(card.incident)) is not None:
        first = None if card.checked is None else place_checked(card.checked)
        return None if first is None else done_again(last, first, card.incident.step_every)
    if card.incident.step is None:
        return None
    if card.checked is not None and card.checked.began is Began.ELSEWHERE:
        began = card.checked.step
        return (
            None
            if began is None or card.checked.epoch is not None
            else max(0, card.incident.step - began + 1)
        )
    if card.kept:
        return None if card.rejoined_step is None else max(0, card.incident.step - card.rejoined_step)
    if card.point is None:
        return card.incident.step
    if (not card.handed_over and card.checked is None) or card.point.global_step is None:
        return None
    # A survivor may have made one step more than any had reported when the first one died.
    return max(0, card.incident.step - card.point.global_step)


def _tone(number: int, line: str) -> Tone:
    name, _, told = line.strip().partition(" ")
    match name, told.strip():
        case _ if number == 0:
            return Tone.FAILED
        case (("when" | "last" | "stacks"), _):
            return Tone.QUIET
        case "restart", told if told.startswith("none"):
            return Tone.FAILED
        case (("saved" | "resume"), told) if told.startswith(("nothing", "from the beginning")):
            return Tone.WARNING
        case (("resume" | "restart"), _):
            return Tone.GOOD
        case (("try" | "workers"), _):
            return Tone.WARNING
        case _:
            return Tone.PLAIN


def _who(card: Card) -> str:
    if card.incident.rank is not None:
        return f"rank {card.incident.rank} of {card.world_size}"
    if card.incident.cause is Cause.ELSEWHERE:
        return f"node {card.incident.node}" if card.incident.node else "another node"
    if card.incident.cause in (Cause.NODE, Cause.FENCE):
        return f"node {card.incident.node}"
    scheduler = f"scheduler of node {card.incident.node}" if card.incident.at_utc else "scheduler"
    return "all workers" if card.incident.ordered else scheduler


def how_and_where(incident: Incident) -> str:
    """``killed by SIGKILL at step 1215 (epoch 2)``: what came over the rank, and its own step."""
    return f"{_how(incident)}{_at_step(incident)}"


def _how(incident: Incident) -> str:
    if incident.status is not None:
        return describe(incident.status)
    unknown = "stopped for the platform" if incident.ordered else "could not be started"
    return _CAME_OVER_IT.get(incident.cause, unknown)


def _at_step(incident: Incident) -> str:
    by_log = " by its log" if incident.step_from_log else ""
    if incident.step is None and incident.epoch is not None:
        within = f", step {incident.in_epoch} of it," if incident.in_epoch is not None else ""
        return f" in epoch {incident.epoch}{within}{by_log}"
    if incident.own_step is not None and incident.own_step != incident.step:
        others = f", others at {incident.step}" if incident.step is not None else ""
        return f" at step {incident.own_step}{others}{by_log}"
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
    kept = tuple(sorted(save.rank for save in at_newest if save.memory))
    ranks = rank_names(tuple(sorted(save.rank for save in at_newest)))
    took_s = max(save.took_s for save in at_newest)
    took = f"{took_s:.1f} s" if took_s >= _SHOWN_S else span(took_s)
    text = f"{ranks} saved step {newest} in {took} (dying gasp)"
    if kept:
        text += f", {rank_names(kept)} by {'its' if len(kept) == 1 else 'their'} memory snapshot"
    text += _incomplete(card, at_newest, newest)
    return f"{text}; not saved: {_unsaved(card)}" if card.unsaved else text


def _incomplete(card: Card, saves: Sequence[Save], step: int) -> str:
    """Name the ranks whose part of a sharded state is in no save, where an older step is resumed from."""
    used = card.point.global_step if card.point is not None else None
    if used is None or used >= step or not all(save.group for save in saves):
        return ""
    if not (lacking := set(range(card.world_size)).difference(*(save.group for save in saves))):
        return ""
    return f", which lacks the part of the state that only {rank_names(tuple(sorted(lacking)))} held"


def _unsaved(card: Card) -> str:
    """The first line of each reason once, with the ranks that gave it."""
    by_reason: dict[str, list[int]] = {}
    for one in card.unsaved:
        by_reason.setdefault(one.why.partition("\n")[0], []).append(one.rank)
    return "; ".join(f"{rank_names(tuple(sorted(ranks)))}: {why}" for why, ranks in by_reason.items())


def _resume(card: Card) -> str:
    """What was chosen, and what came of it: never that a script resumes that is not told to."""
    why = f"; {card.refused_why};" if card.refused_why else ":"
    refused = f"   ({card.refused} newer refused{why} {_TRY_WHY})" if card.refused else ""
    lost, checked, point = lost_steps(card), card.checked, card.point
    by_log = " by the logs" if card.incident.step_from_log else ""
    lost_text = "" if lost is None else f", lost {lost} step{'s' if lost != 1 else ''}{by_log}"
    elsewhere = checked is not None and checked.began is Began.ELSEWHERE
    if card.kept and card.recovers_itself:
        return f"in the training's own way: {rank_names(card.kept)} stayed"
    if card.kept:
        step = "" if card.rejoined_step is None else f"step {card.rejoined_step} in "
        if len(card.kept) == card.world_size:
            return (
                f"{step}the memory of all ranks: rank {card.incident.rank} was repaired in place{lost_text}"
            )
        return f"{step}the memory of {rank_names(card.kept)}, which stayed{lost_text}"
    if point is None:
        if checked is not None and elsewhere:
            return checked.why
        looked_in = (
            f"no known checkpoint in {' '.join(card.looked_in)}"
            if card.looked_in
            else "no --checkpoint_dir given"
        )
        there = f" but {card.refused_why}" if card.refused_why and not card.refused else ""
        return f"from the beginning: {looked_in}{there}{lost_text}{refused}" if card.restart else ""
    if checked is not None and elsewhere:
        return f"{checked.why}{lost_text.replace(',', ';', 1)}{refused}"
    began = checked is not None and checked.began is Began.AS_CHOSEN
    if card.told_by and not began:
        newest = f"{point.path} ({_step_of(point)})"
        return f"by the script itself, told {card.told_by}; the newest whole one is {newest}{refused}"
    if not card.handed_over and not began:
        return (
            f"not handed over: no option tells the script of {point.path} ({_step_of(point)}); "
            f"the script decides where it begins{refused}"
        )
    proved = f"; {checked.why}" if checked is not None and began else ""
    doubt = ", unverified (--trust)" if point.unverified else ""
    return f"{point.path}   {_step_of(point)}{lost_text}{doubt}{proved}{refused}"


def _missing(card: Card) -> str:
    """Without whom the others train on, and until when they did."""
    if not card.missing:
        return ""
    if card.healed_after_s is None and not card.unhealed:
        return missing_words(card.missing, range(card.world_size), card.barred)
    heals = "" if card.healed_after_s is None else f" for {span(card.healed_after_s)}"
    how = "in which the others trained on" if heals else "which did not come back; the others trained on"
    return f"{rank_names(card.missing)}{heals}, {how} with the same global batch"


def _step_of(point: RecoveryPoint) -> str:
    if point.global_step is None and point.epoch is not None:
        return f"epoch {point.epoch}"
    return "step ?" if point.global_step is None else replace(point, epoch=None, unverified=False).position


def place_taken(one: Replacement) -> str:
    """Which node has whose ranks now."""
    return f"node {one.by} takes the place of node {one.node}: {rank_names(one.ranks)}"


def _restart(card: Card) -> str:
    if card.restart is None:
        return f"none: {card.why.partition(chr(10))[0]}"
    if card.trained_after_s is not None:
        begins = f"training again after {span(card.trained_after_s)}"
    elif card.restarted_after_s is not None:
        begins = f"workers running again after {span(card.restarted_after_s)}"
    else:
        begins = f"in {card.backoff_s:.1f} s" if card.backoff_s > 0 else "restarting now"
    if card.incident.ordered or card.incident.cause in (Cause.NODE, Cause.FENCE, Cause.ELSEWHERE):
        return f"{begins}; not counted"
    if card.incident.of_before:
        return f"{begins}; not counted, as it is one fault with incident {card.incident.number - 1}"
    number, allowed = card.restart
    window = "this hour" if card.window_s == _HOUR_S else f"in {duration(card.window_s)}"
    earlier = several(card.refunded, "earlier one")
    given_back = f" ({earlier} given back for progress)" if card.refunded else ""
    return f"{begins}; {max(0, allowed - number)} of {allowed} left {window}{given_back}"


def duration(seconds: float) -> str:
    """``1h``, ``90s``, ``250ms``: the shortest exact spelling that the options accept."""
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
