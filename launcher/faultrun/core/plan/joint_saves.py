"""What the nodes of a run together saw of its saves, and of what was read before the first step.

Pure. On a network file system the kernel tells a node of its own writers and readers alone.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import chain

from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.incident import Incident
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.observed.saves import KEPT, MOST_FILES, SavesSeen, SeenSave
from faultrun.model.plan import Plan

_USUAL_BYTES, _MOST_BYTES = 1024, 4096
"""All nodes watch it: two saves tell what one is made of, more of them are told only where they are short."""
_ABOUT_A_SAVE, _FEW = 80, 4


def as_told(seen: SavesSeen) -> SavesSeen:
    """What other nodes need of it: which files are one save. The oldest saves go first, then files beyond."""
    saves = [SeenSave(files=one.files[:MOST_FILES], number=one.number) for one in seen.saves]

    def size() -> int:
        texts = chain((seen.opened,), *(one.files for one in saves))
        return _ABOUT_A_SAVE * (len(saves) + 1) + sum(len(json.dumps(text)) + 2 for text in texts)

    while len(saves) > 2 and size() > _USUAL_BYTES:
        del saves[0]
    while saves and size() > _MOST_BYTES:
        most = max(len(one.files) for one in saves) - 1
        saves = [replace(one, files=one.files[:most]) for one in saves if most > 0]
    return SavesSeen(saves=tuple(one for one in saves if one.files), opened=seen.opened)


def joint_saves(before: SavesSeen, facts: Iterable[NodeFact]) -> SavesSeen:
    """What all of them saw, and what was known ``before``: files of one save are together.

    Those of one number are one save. Where there is none, those of one turn are, counted from the newest.
    """
    seens = [fact.seen for fact in facts]
    turns = [(at, seen.saves[-1 - at]) for at in range(KEPT) for seen in seens if at < len(seen.saves)]
    found: dict[tuple[int | None, int], frozenset[str]] = {}
    for turn, save in (*turns, *enumerate(reversed(before.saves))):
        which = (save.number, turn if save.number is None else 0)
        found[which] = found.get(which, frozenset()).union(save.files)
    newest = [SeenSave(files=tuple(sorted(found[which])), number=which[0]) for which in found][:KEPT]
    opened = next((seen.opened for seen in (*seens, before) if seen.opened), "")
    return as_told(SavesSeen(saves=tuple(reversed(newest)), opened=opened))


def opened_first(paths: Iterable[str], point: RecoveryPoint | None) -> tuple[str, ...]:
    """A few of these files, one of ``point`` before all others: that it is not among them says something."""
    unique = dict.fromkeys(paths)
    its = [path for path in unique if point is not None and point.holds(path)]
    return (*its[:1], *(path for path in unique if path not in its))[:_FEW]


def opened_anywhere(incident: Incident, plan: Plan, spoken: Collection[NodeFact]) -> Incident:
    """The incident with what was opened on any node of ``plan``, whose rank may have loaded for all.

    None where a node cannot tell, unless the recovery point was seen to be opened on another.
    """
    if plan.of_one_node:
        return incident
    told = [fact.left.incident for fact in spoken if plan.is_for(fact.node, fact.boot)]
    seen = [one.opened for one in told if one is not None and one.incarnation == plan.incarnation]
    opened = opened_first(chain(*(one for one in seen if one is not None)), plan.point)
    known = len(seen) == len(plan.topology.nodes) and None not in seen
    found = plan.point is not None and any(map(plan.point.holds, opened))
    return replace(incident, opened=opened if known or found else None)
