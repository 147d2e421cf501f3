"""The zoo of layouts: what is chosen is the newest save that was whole, or it was said that nobody knows."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.campaigns.layouts_files import Op, perform
from benchmarks.campaigns.layouts_names import KINDS
from benchmarks.campaigns.layouts_plan import RIGHT, TOLD, UNKNOWABLE, Case, Fault, draw
from benchmarks.tests.campaign import carried_out

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.reading import sampled_digest
from faultrun.checkpoints.saves.growing_save import GrowingSave
from faultrun.checkpoints.saves.save_learner import SaveLearner
from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.events import RecoveryPointChosen
from faultrun.model.observed.saves import NOTHING_SEEN, SavesSeen
from faultrun.model.spec.run_spec import Recovery, Replicas
from faultrun.supervisor.checkpoints.finder import CheckpointFinder
from faultrun.supervisor.checkpoints.saves_of_runs import SavesKnown
from faultrun.supervisor.reactor import RunClock
from support.stories.specs import a_spec


def test_a_seeded_piece_of_the_zoo_gets_what_it_should(tmp_path: Path) -> None:
    assert_right(range(500), seed=1, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_ten_thousand_of_the_zoo_get_what_they_should(tmp_path: Path) -> None:
    assert_right(range(10_000), seed=1, folder=tmp_path)


@pytest.mark.slow
def test_scripts_that_are_killed_get_what_they_should() -> None:
    said = carried_out("layouts", "--layouts=5", "--seed=3", within_s=300)
    assert "5 of 5 layouts kept every promise" in said


def test_a_seed_draws_the_same_cases_and_all_that_there_is() -> None:
    cases = [draw(number, seed=5) for number in range(400)]
    assert cases == [draw(number, seed=5) for number in range(400)]
    assert {one.layout.kind for one in cases} == set(KINDS)
    assert {fault for one in cases for fault in one.faults} == set(Fault)


def assert_right(numbers: range, *, seed: int, folder: Path) -> None:
    """Of no case is the last verdict anything else than that it was right, or that nobody could know."""
    counts: Counter[str] = Counter()
    for number in numbers:
        case = draw(number, seed)
        place = folder / str(number)
        place.mkdir()
        *_, verdict = Played(case, place).verdicts()
        assert verdict in {RIGHT, TOLD, UNKNOWABLE}, f"{number}: {case.told()}: {verdict}"
        counts[verdict] += 1
    assert counts[RIGHT] > 0.9 * len(numbers), counts


class Watched(SavesKnown):
    """What a run would have seen of its saves, without a kernel to tell it."""

    def __init__(self, root: Path, known: SavesSeen = NOTHING_SEEN) -> None:
        self.learner = SaveLearner(known, (str(root),))

    @property
    def whole(self) -> bool:
        """Whether nothing was missed."""
        return True

    def seen(self) -> SavesSeen:
        """What was learned."""
        return self.learner.seen


class Played:
    """One case, with all that it writes on the disk, and without a process."""

    def __init__(self, case: Case, folder: Path) -> None:
        self._case, self._folder, self._root = case, folder, folder / "out"
        self._at_s, self._step, self._known = 1.7e9, 0, ""
        self._trained = self._told = False
        self._members: set[int] = set()
        self._early: list[str] = []
        self._written: list[tuple[GrowingSave, str, int]] = []
        self._watch(NOTHING_SEEN)

    def _watch(self, known: SavesSeen) -> None:
        """As a supervisor begins, which another one may have left ``known`` to."""
        ranks, lost = self._case.layout.ranks, "supervisor lost" in self._case.more
        spec = a_spec(workers=1 + ranks)
        replicas = Replicas.GROUP_INFO if ranks else Replicas.AUTO
        spec = replace(
            spec,
            recovery=Recovery(checkpoint_dirs=(str(self._root),), replicas=replicas),
            logs=replace(spec.logs, log_dir=str(self._folder)),
        )
        memory = str(self._folder / "memory.jsonl") if lost else None
        catalog = Catalog((str(self._root),), memory_path=memory, settle_s=0.0)
        self._watched = Watched(self._root, known)
        self._finder = CheckpointFinder(spec, catalog, RunClock(), saves=self._watched)

    def verdicts(self) -> Iterator[str]:
        """The verdict after each life, until one is not right or nothing is left to go on from."""
        for op in self._case.before():
            self._perform(op)
        self._finder.find(FindRecoveryPoint(incarnation=-1, continuing=False), 0.0)
        start, opened = None, tuple[str, ...]()
        for life in range(len(self._case.lives)):
            if "supervisor lost" in self._case.more:
                self._watch(self._watched.seen())
            self._watched.learner.resumed_from(opened)
            self._watched.learner.begins_life()
            self._early, self._trained = [], False
            for op in self._case.life(life, start):
                self._do(op)
            self._settle()
            written = frozenset(self._members)
            due = self._case.newest_whole(self._root, written, life) if written else None
            opened = self._chosen(life + 1)
            verdict = self._case.verdict(self._root, due, opened, told=self._told)
            yield verdict
            if due is None or verdict != RIGHT:
                return
            start = due.save

    def _do(self, op: Op) -> None:
        if op.what in {"told", "step"}:
            self._settle()
        if op.what == "told":
            said = self._finder.first_save(0)
            self._told |= said is not None and (bool(said.instead) or not said.path)
        elif op.what == "step":
            self._step, self._trained = op.step, True
            self._watched.learner.before_training(self._early)
            self._early = []
        path = self._perform(op)
        if path and not self._trained:
            self._early.append(path)
        elif op.what == "move" and self._watched.learner.moved(str(self._root / op.who), path):
            pass
        elif path and (save := self._watched.learner.wrote(path, root=str(self._root))) is not None:
            self._written.append((save, path, self._step))
            if self._case.number % 2:
                self._settle()
        if op.who.startswith("own ") and op.what not in {"tmp", "skip"}:
            self._members.add(int(op.who[-1]))
            self._known = self._known or path

    def _settle(self) -> None:
        written, self._written = self._written, []
        for save, path, step in written:
            self._watched.learner.saved_at(save, path, step, sampled_digest((save.path(path),)))

    def _perform(self, op: Op) -> str:
        path = perform(op, self._root)
        self._at_s += 1.0
        if path and os.path.lexists(path) and op.what != "move":
            os.utime(path, (self._at_s, self._at_s))
        return path

    def _chosen(self, incarnation: int) -> tuple[str, ...]:
        request = FindRecoveryPoint(
            incarnation=incarnation, continuing=True, reached=self._step, expects=self._known
        )
        answer = self._finder.find(request, 0.0)
        point = answer.point if isinstance(answer, RecoveryPointChosen) else None
        ranks = range(1 + self._case.layout.ranks)
        return () if point is None else tuple(dict.fromkeys(map(point.path_for, ranks)))
