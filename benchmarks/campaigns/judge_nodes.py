"""Which promises a run over several nodes broke: by the ranks' own words, the kernel's and the journals'.

Nothing here asks faultrun what it decided.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.campaigns.everything_plan import LEASE_S
from benchmarks.campaigns.ledgers import Life, Told
from benchmarks.harness.journal import parsed

UNNAMED_S = LEASE_S + 5.0
"""The lease of a lost node, the two seconds that a wait may last unsaid, and three of a crowded machine."""

_NAMED = re.compile(r"waiting for \S|etcd does not answer|etcd has not answered")
_WAIT = re.compile(r"waiting for (.+?)(, until [\d:]+ \(.*\))?$")
_NODE = re.compile(r"\bnodes? [a-d]( [a-d])*\b|\b[a-d]\b(?! (row|word)\b)(?=$|[ ,:;])")


def unnamed_waits(
    told: Sequence[Told],
    born: Sequence[Life],
    said: Sequence[tuple[float, str]],
    since_s: float,
    until_s: float,
) -> Iterator[str]:
    """Times without any training in which no node said what the run waits for.

    They count from when a supervisor has said something: nobody is there to speak when every host is down.
    """
    marks = [(one.at_s, one.life, "step") for one in told if one.what == "step"]
    marks += [(one.born_s, one.life, "birth") for one in born if one.is_rank]
    marks = sorted(mark for mark in marks if since_s - 1 <= mark[0] <= until_s)
    for (from_s, life, what), (to_s, next_life, _) in pairwise(marks):
        if what == "birth" or life == next_life:
            continue
        lines = [(at_s, line) for at_s, line in said if from_s <= at_s <= to_s]
        heard_s = min((at_s for at_s, _ in lines), default=to_s if said else from_s)
        named = [line for at_s, line in lines if at_s <= heard_s + UNNAMED_S and _NAMED.search(line)]
        if to_s - heard_s > UNNAMED_S and not named:
            yield f"for {to_s - heard_s:.1f} s nobody said what the run waits for"


def waits_said(said: Sequence[tuple[float, str]], since_s: float) -> list[str]:
    """What nodes said that they wait for, without names."""
    found = [_WAIT.search(line) for at_s, line in said if at_s >= since_s]
    return [_NODE.sub("NODE", match[1]) for match in found if match is not None]


def unequal_ends(codes: Mapping[str, int], still_running: Sequence[str], wanted: int | None) -> Iterator[str]:
    """How a run must end: on all nodes, with one code."""
    if len(set(codes.values())) > 1:
        yield f"exit codes {dict(codes)}"
    if still_running:
        yield f"{' '.join(still_running)} did not end with the others"
    if wanted is not None and set(codes.values()) - {wanted}:
        yield f"ended with {sorted(set(codes.values()))} instead of {wanted}"


Line = dict[str, object]


def read_journal(text: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """Whole lines, and what is wrong with the file: only its last line may be cut."""
    read = [parsed(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]
    wrong = [f"line {number} of a journal is no JSON" for number, line in enumerate(read, 1) if line is None]
    return [line for line in read if line is not None], wrong


def journals_disagree(journals: Mapping[str, Sequence[Line]]) -> Iterator[str]:
    """Two nodes never have two plans for one incarnation, and nobody goes back to an older one."""
    plans: dict[object, dict[str, str]] = {}
    for name, lines in journals.items():
        newest = -1
        for line in lines:
            life = line["incarnation"]
            if line["event"] == "PlanAdopted":
                plan = line["plan"]
                assert isinstance(plan, dict)
                point = plan.get("point") or {}
                plans.setdefault(life, {})[name] = json.dumps([point.get("path"), point.get("global_step")])
            if line["event"] == "WorkerStarted":
                assert isinstance(life, int)
                if life < newest:
                    yield f"{name} started a rank of incarnation {life} after one of {newest}"
                newest = max(newest, life)
    for life, by_node in plans.items():
        if len(set(by_node.values())) > 1:
            yield f"plans of incarnation {life} differ: {by_node}"
    yield from _ranks_twice(journals)


def cards_differ(cards: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """``cards``: by file, its text on each node. Who leaves the run has no plan to tell of."""
    for card, of_nodes in sorted(cards.items()):
        texts = {node: text for node, text in of_nodes.items() if "  restart   none" not in text}
        if len(set(texts.values())) > 1:
            yield f"{card} is not the same on {' '.join(sorted(texts))}"


def _ranks_twice(journals: Mapping[str, Sequence[Line]]) -> Iterator[str]:
    """No rank of an incarnation was started on two nodes."""
    where: dict[tuple[object, object], set[str]] = {}
    for name, lines in journals.items():
        for line in lines:
            if line["event"] == "WorkerStarted":
                where.setdefault((line["incarnation"], line["rank"]), set()).add(name)
    for (life, rank), names in where.items():
        if len(names) > 1:
            yield f"rank {rank} of incarnation {life} was started on {' and '.join(sorted(names))}"
