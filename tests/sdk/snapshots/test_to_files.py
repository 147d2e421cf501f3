"""What memory holds of ranks that are gone becomes the files that they would have written, and no more."""

import json
import os
import subprocess
import sys
import zlib
from collections import OrderedDict
from dataclasses import replace
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.actions import Sweep
from faultrun.model.observed.dying_gasp import GaspSaved
from faultrun.model.spec.windows import NO_TIME, Deadline
from faultrun.model.wire import parse
from faultrun.sdk.snapshots.buffer import SnapshotOwner, Snapshots, Texts, bytes_needed
from faultrun.sdk.snapshots.to_files import SnapshotLabel, inode_of, split, write_torch_file
from faultrun.sdk.stay.common_step import Holding, ToWrite, missing_of
from faultrun.sdk.worker.save_files import Position
from faultrun.supervisor.snapshots.to_files import HeldMemory, HeldStates

steps = st.frozensets(st.integers(0, 6), max_size=3)
holdings = st.lists(
    st.builds(
        Holding,
        rank=st.integers(0, 3),
        group=st.sampled_from([frozenset({0}), frozenset({1}), frozenset({2, 3}), frozenset({0, 1, 2, 3})]),
        saved=steps,
        kept=steps,
    ),
    max_size=6,
)


@given(holdings, st.frozensets(st.integers(0, 3), max_size=4))
def test_afterwards_files_serve_all_at_the_newest_step_that_all_have_and_nothing_is_written_for_less(
    known: list[Holding], ranks: frozenset[int]
) -> None:
    wanted = missing_of(known, ranks, 1)
    had = [{step for one in known if rank in one.group for step in one.saved | one.kept} for rank in ranks]
    common = set.intersection(*had) if had else set()
    if not common:
        assert wanted == ()
        return
    newest = max(common)
    assert {one.step for one in wanted} <= {newest}
    written = {(one.rank, one.step) for one in wanted}
    for rank in ranks:
        filed = any(newest in one.saved and rank in one.group for one in known)
        served = [
            one for one in known if newest in one.kept and rank in one.group and (one.rank, newest) in written
        ]
        assert filed or served
    for one in wanted:
        assert any(one.rank == holding.rank and newest in holding.kept for holding in known)


def test_beside_other_nodes_the_two_newest_steps_are_written() -> None:
    own = Holding(rank=1, group=frozenset({1}), kept=frozenset({6, 7}))
    other = Holding(rank=0, group=frozenset({0}), saved=frozenset({8}), kept=frozenset({6, 7}))
    assert missing_of([own, other], frozenset({0, 1}), 1) == (ToWrite(0, 7), ToWrite(1, 7))
    assert len(missing_of([own, other], frozenset({0, 1}), 2)) == 4


def memory_of(folder: Path, rank: int, *at: int, incarnation: int = 0) -> int:
    """A descriptor of memory in which ``rank`` has its shard at these steps."""
    part = bytearray(os.urandom(1000))
    texts = Texts(plan=b"", label=label(folder, rank, 0, len(part)), pickled=b"\x80\x02N.")
    size_bytes = bytes_needed(texts, [len(part)])
    fd = os.memfd_create(f"rank {rank}")
    os.ftruncate(fd, size_bytes)
    copies = Snapshots(mmap(fd, 0), SnapshotOwner(run_id="run", rank=rank))
    for step in at:
        told = Texts(plan=b"", label=label(folder, rank, step, len(part)), pickled=texts.pickled)
        copies.write(step, incarnation, told, [memoryview(part)])
        copies.add_sum(step)
    return fd


def label(folder: Path, rank: int, step: int, part_bytes: int) -> bytes:
    return SnapshotLabel(
        folder=str(folder / f"rank_{rank}"),
        inode=inode_of(folder / f"rank_{rank}"),
        name=f"gasp-step_{step}.pt",
        position=Position(step, 1, step),
        world_size=2,
        replica_group=(rank,),
        node="here",
        parts=(part_bytes,),
        life=2,
    ).packed()


def ran(
    fds: dict[int, int],
    saved: list[dict[str, Any]],
    *,
    own: tuple[int, ...] = (0, 1),
    lost: tuple[int, ...] = (),
) -> list[dict[str, Any]]:
    told = {"run_id": "run", "ranks": own, "most_steps": 1, "copies": fds, "saved": saved, "lost": lost}
    done = subprocess.run(
        [sys.executable, "-m", "faultrun.sdk.snapshots.to_files"],
        input=json.dumps(told).encode(),
        pass_fds=tuple(fds.values()),
        capture_output=True,
        check=True,
    )
    for fd in fds.values():
        os.close(fd)
    return [content for line in done.stdout.splitlines() if (content := parse(line)) is not None]


def test_the_shard_of_a_killed_rank_is_written_beside_those_that_the_others_saved(tmp_path: Path) -> None:
    fds = {0: memory_of(tmp_path, 0, 11, 12), 1: memory_of(tmp_path, 1, 11, 12)}
    (told,) = ran(fds, [{"rank": 0, "step": 12, "group": [0]}])
    assert (told["kind"], told["rank"], told["step"], told["memory"]) == ("saved", 1, 12, True)
    path = Path(told["path"])
    assert path == tmp_path / "rank_1" / "gasp-step_12.pt"
    assert told["digest"] == f"crc32:{zlib.crc32(path.read_bytes()):08x}"
    manifest = json.loads(Path(f"{path}.manifest.json").read_bytes())
    assert (manifest["step"], manifest["incarnation"], manifest["replica_group"]) == (12, 2, [1])
    assert (manifest["epoch"], manifest["world_size"], manifest["node"]) == (1, 2, "here")


def test_a_module_of_the_training_with_a_name_of_pythons_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not the one that was meant')")
    monkeypatch.chdir(tmp_path)
    memory = HeldMemory(fds={0: memory_of(tmp_path, 0, 12)})
    held = HeldStates(run_id="run", ranks=frozenset({0}), alone=True, memory=memory)
    by = Deadline(at_s=60.0)
    (saved,) = held.write(Sweep(incarnation=3, dead=(0,), write_by=by), by, 0.0)
    assert isinstance(saved, GaspSaved)
    assert (saved.rank, saved.step) == (0, 12)


def test_what_is_known_only_later_to_be_lost_is_written_then_and_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "rank_1").mkdir()
    fds = {rank: memory_of(tmp_path, rank, 12) for rank in (0, 1)}
    by = Deadline(at_s=60.0)
    order = Sweep(incarnation=3, dead=(0,), write_by=by)
    swept = HeldStates(run_id="run", ranks=frozenset({0}), alone=False, memory=HeldMemory(fds=fds))
    assert [*swept.write(order, by, 60.0), *swept.write(replace(order, write_by=NO_TIME), by, 0.0)] == []
    (own,) = swept.write(order, by, 0.0)
    assert isinstance(own, GaspSaved)
    assert own.rank == 0
    assert swept.lost_since(swept) is None
    now = replace(swept, memory=HeldMemory(fds=fds, lost=frozenset({1})))
    late = now.lost_since(swept)
    assert late is not None
    (saved,) = late.write(order, by, 0.0)
    assert isinstance(saved, GaspSaved)
    assert (saved.rank, saved.step) == (1, 12)
    assert now.lost_since(now) is None


def test_a_damaged_copy_is_told_and_the_step_before_is_written_instead(tmp_path: Path) -> None:
    fds = {0: memory_of(tmp_path, 0, 11, 12), 1: memory_of(tmp_path, 1, 11, 12)}
    with mmap(fds[1], 0) as memory:
        half = len(memory) // 2
        at = half + len(memory[half:].rstrip(b"\0")) - 1
        memory[at] ^= 1
    told = ran(fds, [{"rank": 0, "step": 12, "group": [0]}])
    assert [(one["kind"], one["rank"], one.get("step")) for one in told] == [
        ("failed", 1, None),
        ("saved", 0, 11),
        ("saved", 1, 11),
    ]
    assert told[0]["why"] == "its memory snapshot of step 12 is damaged: its checksum is another"


def test_what_is_here_of_a_lost_node_is_written_in_the_places_of_its_ranks(tmp_path: Path) -> None:
    (tmp_path / "rank_1").mkdir()
    fds = {rank: memory_of(tmp_path, rank, 11, 12) for rank in (0, 1)}
    told = ran(fds, [{"rank": 0, "step": 13, "group": [0]}], own=(0,), lost=(1,))
    assert [(one["kind"], one["rank"], one["step"]) for one in told] == [("saved", 1, 12), ("saved", 1, 11)]
    assert {Path(one["path"]).parent.name for one in told} == {"rank_1"}


def test_on_a_disk_of_the_nodes_own_nothing_is_written_for_another(tmp_path: Path) -> None:
    (tmp_path / "rank_1").mkdir()
    fds = {rank: memory_of(tmp_path, rank, 11, 12) for rank in (0, 1)}
    (tmp_path / "rank_1").rename(tmp_path / "moved")
    (tmp_path / "rank_1").mkdir()
    (told,) = ran(fds, [{"rank": 0, "step": 13, "group": [0]}], own=(0,), lost=(1,))
    assert (told["kind"], told["rank"]) == ("failed", 1)
    assert told["why"].endswith(f"but does not share {tmp_path / 'rank_1'}")


def test_of_a_node_that_lives_nothing_is_written_and_of_a_lost_one_nothing_stale(tmp_path: Path) -> None:
    (tmp_path / "rank_1").mkdir()
    for lost in ((), (1,)):
        fds = {0: memory_of(tmp_path, 0, 12, incarnation=1), 1: memory_of(tmp_path, 1, 12, incarnation=0)}
        told = ran(fds, [{"rank": 0, "step": 12, "group": [0]}], own=(0,), lost=lost)
        assert told == []


def test_what_is_no_snapshot_of_this_run_is_nothing(tmp_path: Path) -> None:
    fd = os.memfd_create("noise")
    os.write(fd, os.urandom(8192))
    assert ran({0: fd, 1: memory_of(tmp_path, 1, 12)}, []) == []


@pytest.mark.torch
def test_torch_reads_the_file_as_if_it_had_saved_it(tmp_path: Path) -> None:
    import torch

    from faultrun.sdk.torch.state.packing import pack, pickled
    from faultrun.sdk.torch.state.trees import same

    kinds = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn)
    state = {
        "tensors": [torch.ones(2, 3).to(kind) for kind in kinds],
        "turned": torch.arange(6).reshape(2, 3).t(),
        "none": torch.empty(0, 4),
        "number": torch.tensor(3),
        "plain": OrderedDict(a=(1, 2.5, "x", None, True), b={3: torch.ones(70000)}),
    }
    packed = pack(state)
    content = bytearray()
    for part in packed.parts():
        content += part
        content += bytes(-len(content) % 64)
    parts = split(memoryview(content), [one.nbytes for one in packed.tensors])
    write_torch_file(str(tmp_path / "a.pt"), pickled(state), parts)
    assert same(torch.load(tmp_path / "a.pt", weights_only=True), state)
    assert same(torch.load(tmp_path / "a.pt", weights_only=True, mmap=True), state)
