"""Files that differ in a second number are one save: shards, parts of devices, files of ranks."""

import os
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from random import Random

import pytest
from benchmarks.campaigns.layouts_files import Op, perform

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.saves.growing_save import GrowingSave
from faultrun.checkpoints.saves.save_learner import SaveLearner
from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import NothingWhole, RecoveryPointChosen
from faultrun.model.observed.saves import NOTHING_SEEN, SavesSeen
from faultrun.model.spec.run_spec import Recovery
from faultrun.supervisor.checkpoints.finder import CheckpointFinder
from faultrun.supervisor.checkpoints.saves_of_runs import SavesKnown
from faultrun.supervisor.reactor import RunClock
from support.stories.specs import a_spec

SPELLINGS = """model_{n}_gpu{r}.pt; ckpt_1_{u}-shard{r}.pt; gpu{r}_{n}.pt; part{r}/step_{n}.pt;
    {n}/shard{r}.pt; step_{n}-0000{r}-of-00008.pt; model-{u}-0000{r}-of-00008.pt; m_{n}_{r}.pt;
    step_{n}_rank{r}.pt; step_{n}/rank_{r}.pt; step_{n}/model.pt step_{n}/optim_states_rank{r}.pt;
    model_{n}.pt optim_{n}_{r}.pt"""
CUT = """{checkpoint} model_{n}.pt optim_rank{r}_{n}.pt; {checkpoint} gpt2_{n}.pt gpt2_opt_{n}.pt;
    {checkpoint} it{n}/model.pt it{n}/opt.pt; {checkpoint} v{n}/model.pt v{n}/opt_rank{r}.pt;
    {checkpoint} {k}/model.pt {k}/optim_rank{r}.pt; {checkpoint} slot{k}/model.pt slot{k}/opt.pt;
    {checkpoint} model.pt optim_rank{r}.pt; {checkpoint_dir}/rank{rank}.pt slot{k}/rank{r}.pt;
    {checkpoint_dir}/rank{rank}.pt {k}/rank{r}.pt; out/last_rank{rank}.pt last_rank{r}.pt;
    out/model_rank{rank}_{global_step}.pt model_rank{r}_{n}.pt optim_rank{r}_{n}.pt;
    {checkpoint} model_ep1_b{n}.pt opt_ep1_b{n}.pt; {checkpoint} ck_epoch_0_{n}.pt opt_epoch_0_{n}.pt;
    out/rank_{rank}/model.pt rank_{r}/model.pt rank_{r}/optim.pt;
    {checkpoint} last/model.pt last/optimizer.pt last/scheduler.pt"""
CASES = ((2, 0, "torn", -1), (3, 1, "skip", -1), (8, 0, "torn", -2), (2, 1, "skip", -2))


class Run(SavesKnown):
    """A run of ``workers`` that saves in ``root``, as the supervisor sees it; no process is started."""

    def __init__(self, root: Path, *told: str, workers: int = 1, had: int = 0) -> None:
        self.root, self._at_s, self._step = root, 1.7e9, 0
        self._untold: list[tuple[GrowingSave, str, int]] = []
        self._learner = SaveLearner(NOTHING_SEEN, (str(root),))
        recovery = Recovery(checkpoint_dirs=(str(root),), resume_args=told)
        spec = a_spec(workers=workers)
        spec = replace(spec, recovery=recovery, logs=replace(spec.logs, log_dir=str(root.parent / "log")))
        catalog = Catalog((str(root),), settle_s=0.0)
        catalog.world_size = had
        self._finder = CheckpointFinder(spec, catalog, RunClock(), saves=self)
        root.mkdir(parents=True)
        self._finder.find(FindRecoveryPoint(incarnation=-1, continuing=False), 0.0)

    @property
    def whole(self) -> bool:
        return True

    def seen(self) -> SavesSeen:
        return self._learner.seen

    def writes(self, step: int, path: str, *, what: str = "write", told: bool = True) -> None:
        """Write a file at ``step``, which is ``told`` at once or later; "torn": half of it, "skip": none."""
        self._step, self._at_s = step, self._at_s + 1.0
        if written := perform(Op(what=what, path=path, who="own", step=0), self.root):
            os.utime(written, (self._at_s, self._at_s))
            if (save := self._learner.wrote(written, root=str(self.root))) is not None:
                self._untold.append((save, written, step))
        while told and self._untold:
            self._learner.saved_at(*self._untold.pop(0))

    def resumes(self) -> tuple[RecoveryPoint | None, str]:
        """What is found after a fault, and why nothing else."""
        self.writes(self._step, "", what="skip")
        request = FindRecoveryPoint(incarnation=1, continuing=True, reached=self._step)
        answer = self._finder.find(request, 0.0)
        assert isinstance(answer, RecoveryPointChosen | NothingWhole)
        point = answer.point if isinstance(answer, RecoveryPointChosen) else None
        return point, " ".join(f"{one.path} {one.why}" for one in answer.refused)


def members(spelling: str, save: int, parts: range) -> list[str]:
    """The files of the save number ``save``, counted from 1."""
    names = (one.format(n=save * 5, u=save * 50, r=part) for part in parts for one in spelling.split())
    return list(dict.fromkeys(names))


@pytest.mark.parametrize(("parts", "first", "what", "struck"), CASES)
@pytest.mark.parametrize("spelling", SPELLINGS.split(";"))
def test_a_save_of_which_a_part_is_torn_or_missing_is_refused_and_the_older_one_taken_whole(
    spelling: str, parts: int, first: int, what: str, struck: int, tmp_path: Path
) -> None:
    run, numbers = Run(tmp_path / "out"), range(first, first + parts)
    for save in (1, 2, 3):
        for path in members(spelling, save, numbers):
            run.writes(save * 5, path)
    paths = members(spelling, 4, numbers)
    for path in paths:
        run.writes(20, path, what=what if path == paths[struck] else "write")
    point, why = run.resumes()
    assert point is not None
    assert os.path.relpath(point.path, run.root) in members(spelling, 3, numbers)
    broken = paths[struck] if what == "torn" else members(spelling, 3, numbers)[struck]
    assert Path(broken).name in why


@pytest.mark.parametrize("what", ["torn", "skip"])
@pytest.mark.parametrize(
    ("told", "spelling"),
    [
        ("--resume={checkpoint_dir}/step_{step}_rank{rank}.pt", "step_{n}_rank{r}.pt"),
        ("--resume={checkpoint_dir}/step_{step}.pt --rank={rank}", "rank_{r}/step_{n}.pt"),
        ("--resume={checkpoint_dir}", "step_{n}/rank{r}.pt"),
        ("--resume={checkpoint_dir}/../rank_{rank}/{checkpoint_name}", "rank_{r}/step_{n}.pt"),
    ],
)
def test_ranks_that_load_files_of_their_own_get_those_of_the_newest_save_that_all_have(
    told: str, spelling: str, what: str, tmp_path: Path
) -> None:
    run = Run(tmp_path / "out", told, workers=2)
    for step, rank in product((5, 10, 15), (0, 1)):
        run.writes(step, spelling.format(n=step, r=rank), what=what if (step, rank) == (15, 1) else "write")
    point, _ = run.resumes()
    assert point is not None
    own = [os.path.relpath(point.path_for(rank), run.root) for rank in (0, 1)]
    assert own == [spelling.format(n=10, r=rank) for rank in (0, 1)]


@pytest.mark.parametrize("noted", [0, 2, 3])
@pytest.mark.parametrize("spelling", ["step_{n}/rank_{r}.pt", "step_{n}_rank_{r}.pt", "rank_{r}/step_{n}.pt"])
def test_files_of_three_ranks_are_not_handed_to_two(spelling: str, noted: int, tmp_path: Path) -> None:
    """The supervisor of the three was killed when it had ``noted`` so many saves; all are in its list."""
    run = Run(tmp_path / "out", workers=2, had=3)
    for save, rank in product((1, 2, 3), (0, 1, 2)):
        run.writes(save * 5, spelling.format(n=save * 5, r=rank))
    run._finder.note(run.seen())
    run._learner = SaveLearner(replace(run.seen(), saves=run.seen().saves[:noted]), (str(run.root),))
    point, why = run.resumes()
    assert point is None
    assert "written by more than 2 ranks" in why


@pytest.mark.parametrize("told", CUT.split(";"))
def test_a_save_that_is_cut_anywhere_is_refused_and_the_one_before_taken_whole_if_it_is_there(
    told: str, tmp_path: Path
) -> None:
    option, *names = told.split()
    for seed in range(8):
        run, chance = Run(tmp_path / f"{seed}" / "out", f"--resume={option}", workers=2), Random(seed)
        saves = [
            [[one.format(n=save * 50, k=save % 2, r=rank) for rank in (0, 1)] for one in names]
            for save in range(1, 6)
        ]
        for save, every in enumerate(saves, 1):
            files = [*dict.fromkeys(chain(*every))]
            chance.shuffle(files)
            for path in files[: chance.randrange(1, len(files)) if save == len(saves) else None]:
                run.writes(save * 50, path, told=chance.random() < 0.5 or path == files[-1])
        point, why = run.resumes()
        given = point and [os.path.relpath(point.path_for(rank), run.root) for rank in (0, 1)]
        assert given == (saves[-2][0] if "{n}" in told or "{k}" in told else None), (seed, why)


@pytest.mark.parametrize(
    "told", ["--resume=out/rank_{rank}/last.pt", "--resume={checkpoint_dir}/../rank_{rank}/last.pt"]
)
def test_an_older_file_under_another_name_than_each_rank_is_told_is_no_recovery_point(
    told: str, tmp_path: Path
) -> None:
    run = Run(tmp_path / "out", told, workers=2)
    for step, name, rank in ((5, "last", 0), (5, "last", 1), (5, "prev", 0), (10, "last", 0)):
        run.writes(step, f"rank_{rank}/{name}.pt")
    point, why = run.resumes()
    assert point is None
    assert "prev.pt" in why


def test_a_folder_in_which_saves_follow_one_another_is_no_save_whatever_its_number(tmp_path: Path) -> None:
    run = Run(tmp_path / "out")
    for fold, last in ((0, 60), (1, 40)):
        for step in range(10, last + 1, 10):
            run.writes(step, f"{fold}/{step}.pt")
    point, why = run.resumes()
    assert point is not None, why
    assert os.path.relpath(point.path, run.root) == "1/40.pt"
