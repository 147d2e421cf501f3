"""One session: death after death in one training, what came of each, and what it all ended in."""

import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.campaigns.broken_runs import copied, shown
from benchmarks.campaigns.promises import Row
from benchmarks.campaigns.stay_judge import (
    Line,
    Truth,
    differing,
    lost_steps,
    missing,
    out_of_order,
    trained_again_s,
)
from benchmarks.campaigns.stay_plan import RANKS, STEPS_A_DEATH, Death, Session
from benchmarks.campaigns.stay_site import GRACE_S, REJOIN_S, Site, lives
from benchmarks.campaigns.stay_strike import Struck, strike
from benchmarks.harness import machine
from benchmarks.jobs.stay_board import Place

_BEGINS_S, _ABLE_S, _PARKED_S, _ENDS_S, _GONE_S = 120.0, 10.0, 40.0, 60.0, 3.0
_RECOVERS_S = REJOIN_S + GRACE_S + 60.0
"""All that a way back may take that falls back, with a cold start of three torch processes."""
_RUNS_STEPS = STEPS_A_DEATH * 2 // 3
_LOOKS_S, _STEPS_ANEW = 5.0, 3
_STUCK = "stuck in a broken process group"
_MOST_WORDS = 3


class Passage:
    """A training under way, and the deaths in it. ``over``: why no more can follow."""

    def __init__(self, site: Site, truths: Sequence[Truth]) -> None:
        self._site = site
        self._truths = truths
        self._judged = [0] * RANKS
        self._plans = 1
        self._stuck = 0
        self._anew: set[int] = set()
        self._from = ""
        self.over = ""

    def begins(self) -> bool:
        """Whether all ranks stand before one of their first steps, and can lose one another.

        Memory for copies may come behind their second step: then they are able behind the third.
        """
        site = self._site
        for limit in range(2, 5):
            site.board.limit = limit
            if not site.wait(partial(site.waits_at, limit), _BEGINS_S, 0.05):
                return False
            if site.wait(site.can_all_rejoin, _ABLE_S, 0.05):
                return True
        return False

    def death(self, place: int, death: Death) -> Row:
        """One row: who died, and what came of it."""
        site, limit = self._site, self._site.board.limit

        def are_parked() -> bool:
            return all(site.parked(rank) for rank in death.victims)

        if death.ready:
            site.wait(are_parked, _PARKED_S, 0.02)
        pids = [site.worker(rank) for rank in range(RANKS)]
        parked = {rank: site.parked(rank) for rank in range(RANKS)}
        last = death.place is Place.ENDS
        step, goal = (site.session.steps,) * 2 if last else (limit + 2, limit + _RUNS_STEPS)
        load = machine.load()
        struck = strike(site, death, pids, parked, goal=goal, step=step)
        row: Row = {
            "session": site.session.number,
            "mode": site.session.mode,
            "place": place,
            "victims": list(death.victims),
            "told": death.told(),
            "parked": all(parked[rank] for rank in death.victims),
            "load": load,
        }
        return {**row, **self._came_of_it(struck, pids, goal, last=last)}

    def ends(self) -> list[str]:
        """Wait for the end; what is wrong with it, and with the whole."""
        site = self._site
        site.board.limit = site.session.steps
        site.wait(lambda: site.process.poll() is not None, _ENDS_S)
        code = site.process.poll()
        broken = [] if code == 0 else [f"ended with {code}"]
        lines = site.lines()
        broken += self._differing(lines)
        for rank, own in enumerate(lines):
            broken += [*out_of_order(rank, own)][:_MOST_WORDS]
            broken += missing(rank, own, site.session.steps)
        until_s = time.monotonic() + _GONE_S
        while (left := [pid for pid in site.left() if lives(pid)]) and time.monotonic() < until_s:
            time.sleep(0.05)
        return broken + ([f"{len(left)} processes are left"] if left else [])

    def _came_of_it(self, struck: Struck, pids: list[int], goal: int, *, last: bool) -> Row:
        site, since_s = self._site, struck.since_s
        again = self._comes_back(goal, since_s, last=last)
        second = struck.second is not None and site.board.struck_s(struck.second, second=True) > 0
        for rank in range(RANKS):
            site.board.disarm(rank)
        plans = site.journal("PlanAdopted")[self._plans :]
        self._plans += len(plans)
        fell_back = any(not plan["plan"]["kept"] for plan in plans)
        lines, stuck = site.lines(), self._newly_stuck()
        if fell_back and site.session.mode == "ddp":
            self._anew = {line["pid"] for line in site.journal("WorkerStarted")[-RANKS:]}
            self._from = str(site.journal("RecoveryPointChosen")[-1]["point"]["path"])
            self.over = "it wraps its model anew, and adds up in another order from then on"
        back_s = trained_again_s(lines, since_s) if struck.killed else since_s
        took_s = None if back_s is None else round(back_s - since_s, 4)
        broken = self._differing(lines)
        if not again:
            broken.append(f"not back at step {goal + 1} within {_RECOVERS_S:g} s")
            self.over = "hang"
        elif took_s is not None and took_s > REJOIN_S * max(1, len(plans)) and not fell_back:
            broken.append(f"{took_s:.1f} s without falling back")
        if again and not last and not fell_back:
            spared = stuck + (struck.second is not None and second)
            gone = [pid for pid in pids if pid not in struck.killed and not lives(pid)]
            if len(gone) > spared:
                broken.append(f"{len(gone)} processes ended that nobody had killed")
        return {
            "killed": len(struck.killed) + second,
            "second": second,
            "took_s": took_s,
            "lost": lost_steps(lines, since_s) if struck.killed else 0,
            "plans": len(plans),
            "fell_back": _said(site) if fell_back else "",
            "stuck": stuck,
            "broken": broken,
        }

    def _comes_back(self, goal: int, since_s: float, *, last: bool) -> bool:
        """Whether all train again; who began anew does some steps more, and is able behind them.

        So does who was behind its last step when a rank died there: nobody looks for the dead in between.
        """
        site, until_s, more = self._site, time.monotonic() + _RECOVERS_S, 0
        while time.monotonic() < until_s:
            back = partial(self._is_back, goal + more, since_s, last=last)
            if site.wait(back, _LOOKS_S) or site.process.poll() is not None:
                return back()
            plans = site.journal("PlanAdopted")[self._plans :]
            anew = any(not plan["plan"]["kept"] for plan in plans)
            if not more and (anew or (plans and site.stands_at(goal))):
                more = _STEPS_ANEW
                site.board.limit = goal + more
        return False

    def _is_back(self, goal: int, since_s: float, *, last: bool) -> bool:
        site = self._site
        if last:
            return site.process.poll() is not None
        if not site.waits_at(goal) or not site.can_all_rejoin():
            return False
        return not since_s or trained_again_s(site.lines(), since_s) is not None

    def _differing(self, lines: Sequence[Sequence[Line]]) -> list[str]:
        """In what was not judged yet. Of a model that is wrapped anew only what it begins with.

        And that of the rank alone whose file all of them read: the others have its buffers for one forward.
        """
        broken: list[str] = []
        for rank, own in enumerate(lines):
            anew = [place for place, line in enumerate(own) if line.pid in self._anew]
            known = own[: anew[0] + (f"/rank_{rank}/" in self._from)] if anew else own
            broken += [*differing(rank, known[self._judged[rank] :], self._truths[rank])][:_MOST_WORDS]
            self._judged[rank] = len(known)
        return broken

    def _newly_stuck(self) -> int:
        """Survivors that ended themselves since last time, because no abort freed them."""
        logs = (self._site.folder / "log").glob("incarnation_*/worker_*.log")
        before = self._stuck
        self._stuck = sum(log.read_text(errors="replace").count(_STUCK) for log in logs)
        return self._stuck - before


def run(session: Session, truths: Sequence[Truth], folder: Path, kept: Path) -> Iterator[Row]:
    """All deaths of ``session``; a row for each, and one for its end."""
    site = Site(session, folder / f"session_{session.number}")
    try:
        passage = Passage(site, truths)
        begun = passage.begins()
        for place, death in enumerate(session.deaths if begun else ()):
            yield _kept(site, passage.death(place, death), kept)
            if passage.over or site.process.poll() is not None:
                break
        broken = passage.ends() if begun else [f"it did not begin: {site.console[-500:]}"]
        end: Row = {"session": session.number, "mode": session.mode, "place": -1, "told": "the end"}
        yield _kept(site, {**end, "load": machine.load(), "broken": broken}, kept)
    finally:
        site.close()
        shutil.rmtree(site.folder, ignore_errors=True)


def _said(site: Site) -> str:
    """Why faultrun left the way by which survivors stay, as its newest card has it."""
    cards = sorted((site.folder / "log").glob("incident_*.txt"), key=lambda card: int(card.stem[9:]))
    for card in reversed(cards):
        lines = [line.strip() for line in card.read_text().splitlines()]
        why = [line for line in lines if "rejoin" in line or "start" in line]
        if why:
            return why[0]
    return "no card says why"


def _kept(site: Site, row: Row, kept: Path) -> Row:
    """With what there is to see, if a promise was broken."""
    if not (row["broken"] or row.get("fell_back")):
        return row
    return shown(row, kept, lambda to: copied(site.folder, to, "*.sock", "*.pt", "board"))
