"""Checkpoints of real torch trainings over two hosts: one point for all, and no loss differs by a bit."""

import re
from pathlib import Path
from typing import Any

import pytest

from examples.codes import undisturbed
from support.nodes.several_nodes import LONG_LEASE, Job, job
from support.places import TESTS
from support.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.torch]

TRAIN = TESTS / "faults" / "scripts" / "nodes_ddp.py"
BOTH = ("a", "b")


def configured(folder: Path, *, stops: bool) -> Path:
    folder.mkdir(exist_ok=True)
    config = folder / "train.yaml"
    config.write_text(f"pre_trained: ''  # by hand\nstops: {stops}\n".lower())
    return config


def losses(text: str) -> dict[int, str]:
    """By step; each is there once."""
    found = [(int(step), loss) for step, loss in re.findall(r"^step (\d+) loss (\S+)$", text, re.MULTILINE)]
    assert len(dict(found)) == len(found)
    return dict(found)


def losses_undisturbed(folder: Path, ranks: int) -> list[dict[int, str]]:
    """The losses of each rank of a training on one node that nothing befell."""
    config = configured(folder, stops=False)
    (folder / "ck").mkdir()
    words = (str(config), str(folder / "ck"))
    undisturbed(TRAIN, *words, imports=("torch.nn.parallel", "yaml"), cwd=folder, workers=ranks)
    return [losses((folder / f"undisturbed_{rank}.txt").read_text()) for rank in range(ranks)]


def ranks_on(run: Run, incarnation: int = 0) -> list[int]:
    return sorted(int(line["rank"]) for line in run.events("WorkerStarted", incarnation=incarnation))


def point_of(one: Job, name: str, incarnation: int = 1) -> dict[str, Any]:
    """Where the plan has this node resume."""
    point: dict[str, Any] = one.run(name).event("PlanAdopted", incarnation=incarnation)["plan"]["point"]
    return point


def ranks_that_train(one: Job) -> dict[int, Run]:
    """Each rank of the first life, and the run of its host, once all have come as far as they shall."""
    for name in BOTH:
        one.run(name).event("WorkerStarted", rank=one.rank_on(name))
    by_rank = {rank: one.run(name) for name in BOTH for rank in ranks_on(one.run(name))}
    for rank, run in by_rank.items():
        run.trains([rank])
    return by_rank


def test_two_hosts_resume_from_one_gasp_with_every_configuration_rewritten_and_no_bit_lost(
    tmp_path: Path,
) -> None:
    reference = losses_undisturbed(tmp_path / "undisturbed", 4)
    checkpoints, seen_by_both = tmp_path / "ck", configured(tmp_path / "both", stops=False)
    own = [configured(tmp_path / name, stops=True) for name in BOTH]
    words = (
        f"--checkpoint_dir={checkpoints}",
        "--rewrite=train.yaml:pre_trained",
        f"--rewrite={seen_by_both}:pre_trained",
        "--resume_arg=--resume={checkpoint}",
        LONG_LEASE,
    )
    program = (str(TRAIN), "train.yaml", str(checkpoints))
    with job(tmp_path, *BOTH, program=program, framework="torch", per_node=2, words=words) as one:
        one.start(*BOTH)
        by_rank = ranks_that_train(one)
        torn = checkpoints / "step_990.pt"
        torn.write_bytes((checkpoints / "step_10.pt").read_bytes()[:200])
        by_rank[3].kill(3)
        assert [one.run(name).ends() for name in BOTH] == [0, 0]
        assert all(one.run(name).events("GaspSaved", step=12) for name in BOTH)
        points = [point_of(one, name) for name in BOTH]
        assert points[0] == points[1]
        assert (points[0]["kind"], points[0]["global_step"]) == ("gasp", 12)
        for name in BOTH:
            refused = one.run(name).event("RecoveryPointChosen", incarnation=0)["refused"]
            paths = [refusal["path"] for refusal in refused]
            assert [path for path in paths if "gasp-step_12" not in path] == [str(torn)], (
                "or one not written yet"
            )
        # All ranks hold the same; a node that looked before the others had saved has its own ranks' file.
        own_paths = {file["rank"]: file["path"] for file in points[0]["files"]}
        saved = {points[0]["path"], *own_paths.values()}
        for config in (*own, seen_by_both):
            first = config.read_text().splitlines()[0]
            assert first in {f'pre_trained: "{path}"  # by hand' for path in saved}
        for rank in range(4):
            lives = [by_rank[rank].log(rank, incarnation) for incarnation in (0, 1)]
            path = own_paths.get(rank, points[0]["path"])
            assert f"config {path}\nargument {path}\nresumed {path}\n" in lives[1]
            assert losses("".join(lives)) == reference[rank]
