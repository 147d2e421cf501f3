"""Rows of faults: what befell whom, by which way it came back, and what was broken."""

import time
from datetime import datetime, timezone

from benchmarks.campaigns.everything_judge import lost_steps, way_back
from benchmarks.campaigns.everything_plan import Fault, Session
from benchmarks.campaigns.everything_site import Site
from benchmarks.campaigns.everything_strike import Struck
from benchmarks.campaigns.judge_nodes import waits_said
from benchmarks.campaigns.promises import Broken, Row
from benchmarks.harness import machine
from benchmarks.jobs.everything_notes import boot_s

_CLOCK = time.time() - boot_s()


def row_of(place: int, fault: Fault, struck: Struck, life: int) -> Row:
    """A fault as it struck."""
    return {
        "place": place,
        "kind": fault.kind.value,
        "struck": struck.whom or "nobody",
        "when": fault.when.value,
        "at": fault.place,
        "ready": fault.ready,
        "at_s": struck.at_s,
        "life": life,
    }


def unbegun(session: Session, place: int, wrong: list[str]) -> Row:
    """A run that did not begin."""
    about = {"place": place, "kind": "the start", "struck": "nobody", "when": "-", "at_s": 0.0, "life": -1}
    none: Row = {"lives": 0, "way": "-", "recovery_s": None, "lost": 0, "waits": [], "alone": []}
    row: Row = {"session": session.number, "run": session.setting.name, **about, **none, "ended": None}
    return {**row, "load": machine.load(), "broken": {"recovery": wrong}}


def finished(site: Site, row: Row, wrong: Broken, began_s: float) -> Row:
    """What came of it until now. ``began_s``: of the run (CLOCK_BOOTTIME)."""
    life, at_s = site.steps.newest_life(), float(row["at_s"])
    restarted = life > row["life"]
    worlds = {one: site.steps.world(one) for one in range(life + 1)}
    smaller = [one for one in worlds if one > row["life"] and worlds[one] < worlds.get(row["life"], 0)]
    firsts = (site.steps.trained_in(one, at_s) for one in (*smaller, life)) if restarted else ()
    trained_s = next((first for first in firsts if first is not None), None)
    said = [line for node in site.nodes.values() for line in node.said]
    journal = site.journal()
    ended = sorted(set(site.codes.values())) if site.ended and row["place"] >= 0 else None
    return {
        "session": site.session.number,
        "run": site.session.setting.name,
        **row,
        "at_s": round(at_s - began_s, 2),
        "at_utc": datetime.fromtimestamp(at_s + _CLOCK, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lives": life - row["life"],
        "way": "ended" if ended else way_back(journal, row["life"], life, worlds),
        "recovery_s": None if trained_s is None else round(trained_s - at_s, 2),
        "lost": lost_steps(site.steps.lines, row["life"], life) if restarted else 0,
        "waits": waits_said(said, at_s)[:5],
        "alone": _ended_alone(site),
        "ended": ended,
        "load": machine.load(),
        "broken": wrong.by_name(),
    }


def _ended_alone(site: Site) -> list[str]:
    """Nodes that have ended by themselves since the last row, each with its code."""
    alone = [f"{node.name} {code}" for node in site.nodes.values() for code in node.alone]
    for node in site.nodes.values():
        node.alone.clear()
    return alone
