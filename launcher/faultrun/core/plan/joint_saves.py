"""What the nodes of a run together saw of its saves.

Pure. On a network file system the kernel tells a node of its own writers alone.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.observed.saves import KEPT, MOST_FILES, SavesSeen, SeenSave

_USUAL_BYTES, _MOST_BYTES = 1024, 4096
"""All nodes watch it: two saves tell what one is made of, more of them are told only where they are short."""
_ABOUT_A_SAVE = 80


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
