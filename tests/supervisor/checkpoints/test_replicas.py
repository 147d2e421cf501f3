"""Replica groups from the workers' files: believed when they agree, and in doubt no rank has a replica."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.model.spec.run_spec import Replicas, RunSpec
from faultrun.supervisor.checkpoints.replicas import known_replicas
from support.asking import plan, plan_of_several
from support.checkpoints.group_infos import group_info

ALONE = tuple(frozenset({rank}) for rank in range(4))
TWO = (frozenset({0, 2}), frozenset({1, 3}))


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    """Four workers, and a log_dir for their files."""
    script = tmp_path / "train.py"
    script.write_text("import mindspore\n")
    return plan("--worker_num=4", f"--log_dir={tmp_path / 'log'}", str(script)).spec


def write(spec: RunSpec, lists: Mapping[int, tuple[int, ...]], run_id: str = "job") -> None:
    for rank, ranks in lists.items():
        folder = Path(spec.logs.log_dir) / f"device{rank}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "group_info.pb").write_bytes(group_info(ranks))
        (folder.parent / "run.json").write_text(json.dumps({"run_id": run_id}))


def needing_groups(spec: RunSpec) -> RunSpec:
    return replace(spec, recovery=replace(spec.recovery, replicas=Replicas.GROUP_INFO))


def test_without_files_all_ranks_hold_the_same(spec: RunSpec) -> None:
    assert known_replicas(spec, 4).groups is None


def test_where_slices_are_expected_no_file_means_no_replica(spec: RunSpec) -> None:
    assert known_replicas(needing_groups(spec), 4).groups == ALONE


def test_files_that_agree_are_believed(spec: RunSpec) -> None:
    write(spec, {0: (0, 2), 1: (1, 3), 2: (2, 0), 3: (3, 1)})
    for one in (spec, needing_groups(spec)):
        known = known_replicas(one, 4)
        assert (known.groups, known.refused) == (TWO, ())


def test_a_lost_or_torn_file_is_made_up_for_by_the_peers(spec: RunSpec) -> None:
    write(spec, {0: (0, 2), 1: (1, 3), 2: (0, 2)})
    torn = Path(spec.logs.log_dir) / "device2" / "group_info.pb"
    torn.write_bytes(torn.read_bytes()[:-1])
    assert known_replicas(spec, 4).groups == TWO


@pytest.mark.parametrize(
    ("lists", "why"),
    [
        ({0: (0, 2), 2: (1, 2)}, "contradict each other"),
        ({0: (0, 2)}, "rank 1 is in no group_info list"),
        ({0: (0, 4), 1: (1, 5)}, "names rank 4, but the world has 4 ranks"),
    ],
)
def test_in_doubt_none_has_a_replica(spec: RunSpec, lists: Mapping[int, tuple[int, ...]], why: str) -> None:
    write(spec, lists)
    known = known_replicas(spec, 4)
    assert known.groups == ALONE
    assert why in known.refused[0].why
    assert known.refused[0].path.endswith("device*/group_info.pb")


@pytest.fixture
def node(tmp_path: Path) -> Callable[[str], RunSpec]:
    """One of two nodes that share a log_dir."""
    script = tmp_path / "train.py"
    script.write_text("import mindspore\n")
    told = ("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:1")
    words = (*told, "--rdzv-id=job", f"--log_dir={tmp_path / 'log'}", str(script))
    return lambda name: plan_of_several(f"--node_name={name}", *words)


def test_nodes_that_share_a_log_dir_read_each_others_files(node: Callable[[str], RunSpec]) -> None:
    a, b, old = node("a"), node("b"), node("old")
    write(a, {0: (0, 1), 1: (0, 1)})
    write(b, {2: (2, 3), 3: (2, 3)})
    write(old, {2: (2,), 3: (3,)}, run_id="another")
    pairs = (frozenset({0, 1}), frozenset({2, 3}))
    for spec in (a, b):
        known = known_replicas(spec, 4)
        assert (known.groups, known.refused) == (pairs, ())


def test_where_nodes_do_not_share_it_the_missing_files_are_named(node: Callable[[str], RunSpec]) -> None:
    a = node("a")
    write(a, {0: (0, 1), 1: (0, 1)})
    known = known_replicas(a, 4)
    assert known.groups == ALONE
    (refused,) = known.refused
    assert refused.why.startswith(
        f"group_info.pb of ranks 2 3 is not in {a.logs.log_dir}, and no other node of the run has a folder "
        "beside it (--log_dir=DIR on a file system that all nodes share); rank 2 is in no group_info list"
    )
