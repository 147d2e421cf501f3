"""Process groups as one rank alone has them: what is told of them, and what stays."""

import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from faultrun.sdk.session import Session
from faultrun.sdk.stay.next_group import Join
from faultrun.sdk.stay.rank_places import RankPlaces
from faultrun.sdk.torch.group import process_group
from faultrun.sdk.torch.group.process_group import TrainingGroup, init_process_group
from faultrun.sdk.torch.group.tcp_connections import connections, shut

pytestmark = pytest.mark.torch

TIMEOUT = timedelta(seconds=77)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Of the only worker of a run; torch is as it was afterwards."""
    this = Session(run_id="run", socket="somewhere")
    monkeypatch.setattr(process_group, "worker", lambda: SimpleNamespace(session=this))
    c10d: Any = dist.distributed_c10d
    gloo, level = c10d.ProcessGroupGloo, dist.get_debug_level()
    yield this
    c10d.ProcessGroupGloo, process_group._group = gloo, None
    dist.set_debug_level(level)
    if dist.is_initialized():
        dist.destroy_process_group()


def begins(at: Path, backend: str | None = "gloo") -> TrainingGroup:
    how = {"init_method": f"file://{at}/first", "rank": 0, "world_size": 1}
    init_process_group(backend, timeout=TIMEOUT, **how)
    group = process_group.training_group()
    assert group is not None
    return group


def forms_again(group: TrainingGroup, at: Path) -> None:
    (at / "next").touch()
    group.leave()
    join = Join(incarnation=1, store=str(at / "next"), page="", timeout_s=30.0)
    group.form(join, lambda: False)


def timeouts() -> set[timedelta]:
    """Of what does the work of the group of all ranks."""
    found = set()
    backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))
    while backend is not None:
        found.add(backend.options._timeout)
        backend = getattr(backend, "wrapped_pg", None)
    return found


@pytest.mark.parametrize("level", [dist.DebugLevel.OFF, dist.DebugLevel.DETAIL])
def test_a_group_formed_again_has_the_scripts_timeout(level: Any, session: Session, tmp_path: Path) -> None:
    dist.set_debug_level(level)  # with details torch puts a group of its own around each
    group = begins(tmp_path)
    assert timeouts() == {TIMEOUT}
    forms_again(group, tmp_path)
    assert timeouts() == {TIMEOUT}


def test_a_group_whose_backend_torch_chose_can_be_left_and_formed(session: Session, tmp_path: Path) -> None:
    group = begins(tmp_path, None)
    assert group.why_not == ""
    forms_again(group, tmp_path)
    dist.barrier()


def test_a_newcomer_begins_without_the_checks_of_torch_and_has_them_in_its_group(
    session: Session, tmp_path: Path
) -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    session.is_newcomer = True
    group = begins(tmp_path)
    dist.new_group([0])
    assert dist.get_backend() == "fake"
    forms_again(group, tmp_path)
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    assert timeouts() == {TIMEOUT}


def test_where_gloo_connects_as_it_is_used_nobody_stays_and_groups_are_made_in_any_order(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections would not be known, and who waited for the others might wait for ever."""
    group = begins(tmp_path)
    assert group.why_not == ""
    monkeypatch.setenv("TORCH_GLOO_LAZY_INIT", "1")
    assert "LAZY" in group.why_not
    with group.connecting(dist.HashStore(), 0, 2, TIMEOUT) as limit:
        assert limit == TIMEOUT


def test_who_makes_groups_of_gloo_by_hand_makes_them_as_ever(session: Session, tmp_path: Path) -> None:
    begins(tmp_path)
    gloo: Any = dist.distributed_c10d.ProcessGroupGloo
    options = gloo._Options()
    options._devices, options._timeout = [gloo.create_default_device()], TIMEOUT
    for how in ((), (options,), (TIMEOUT,)):
        made = gloo(dist.HashStore(), 0, 1, *how)
        assert isinstance(made, gloo)
        assert made.options._timeout == (TIMEOUT if how else timedelta(minutes=30))


def test_nothing_of_torch_changes_where_nobody_tells_of_a_lost_peer(session: Session, tmp_path: Path) -> None:
    """A callback has made a worker of a process that another launcher has started."""
    session.socket = ""
    before = dist.distributed_c10d.ProcessGroupGloo
    init_process_group("gloo", init_method=f"file://{tmp_path}/first", rank=0, world_size=1)
    assert dist.distributed_c10d.ProcessGroupGloo is before
    assert process_group.training_group() is None


def test_connections_that_are_closed_are_nobodys_and_nothing_is_kept_open(tmp_path: Path) -> None:
    """Their numbers are those of a file, a pipe and another connection by now."""
    listener = socket.create_server(("127.0.0.1", 0))
    known = [socket.create_connection(listener.getsockname()) for _ in range(4)]
    numbers, theirs = [one.fileno() for one in known], connections()
    assert {number for number, _ in theirs} >= {*numbers}
    for one in known[:3]:
        one.detach()
    with (tmp_path / "file").open("w") as file:
        os.dup2(file.fileno(), numbers[0])
    reads, writes = os.pipe()
    other = socket.create_connection(listener.getsockname())
    os.dup2(writes, numbers[1])
    os.dup2(other.fileno(), numbers[2])
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names
    shut({one for one in theirs if one[0] in numbers})
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - names
    other.sendall(b"it lives")
    with pytest.raises(BrokenPipeError):
        known[3].sendall(b"it does not")
    for number in (*numbers[:3], reads, writes):
        os.close(number)
    for one in (known[3], other, listener):
        one.close()


def test_a_group_of_nccl_has_the_members_by_their_number_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nccl:
        """As far as torch's own is asked here."""

        Options = "options"

        def __init__(self, *how: Any, **named: Any) -> None:
            self.how = how, named

    c10d: Any = dist.distributed_c10d
    group = TrainingGroup("nccl", {})
    monkeypatch.setattr(process_group, "_group", group)
    monkeypatch.setattr(c10d, "ProcessGroupNCCL", Nccl, raising=False)
    process_group._know_groups_of_nccl()
    assert c10d.ProcessGroupNCCL.Options == "options"
    assert isinstance(Nccl(), c10d.ProcessGroupNCCL), "what torch has made itself"
    for missing, place in (((), (2, 4)), ((1,), (1, 3)), ((0, 3), (1, 2))):
        group.places = RankPlaces(4, missing)
        assert c10d.ProcessGroupNCCL("store", 2, 4, "options").how == (("store", *place, "options"), {})
    assert c10d.ProcessGroupNCCL("store", 1, 2).how == (("store", 1, 2), {}), "of some ranks"
