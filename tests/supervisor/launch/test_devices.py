"""Devices and rank tables of workers: by what the platform has written now, for who is left."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faultrun.model.observed.elastic import Elastic, SlotLedger, Vacant
from faultrun.model.plan import Plan
from faultrun.model.spec.run_spec import Rendezvous
from faultrun.model.topology import NodeId, NodeSlots, Topology
from faultrun.platforms.rank_table.rank_table import read_rank_table
from faultrun.platforms.rank_table.subset import smaller_table
from faultrun.platforms.rank_table.wait import NotFinished
from faultrun.supervisor.launch.devices import Abandoned, DeviceAssignment
from support.checkpoints.platform_files import INITIALIZING, table_v0, table_v1, table_v2, table_v12, text
from support.stories.specs import a_spec
from support.stories.story import first_plan, topology


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the platform writes the table."""
    return tmp_path / "hccl.json"


TWO_HERE = topology(2)
OTHER = NodeSlots(node=NodeId("other"), slots=2)


class Unhurried(DeviceAssignment):
    """Looks again at once."""

    def pause(self, seconds: float) -> None:
        super().pause(0.0)


def seating(
    path: Path, *devices: int, said: list[str] | None = None, within_s: float = 20.0, **environ: str
) -> DeviceAssignment:
    rendezvous = Rendezvous(rank_table_file=str(path), rank_table_wait_s=within_s)
    spec = a_spec(workers=len(devices), devices=devices, rendezvous=rendezvous)
    return Unhurried(spec, environ, (said if said is not None else []).append, path.parent)


def of(seats: Topology, *vacant: int) -> Plan:
    """A plan for them; nobody has the seats of these numbers."""
    gone = tuple(Vacant(seat=seat, node=NodeId("gone"), incarnation=1, why="it was lost") for seat in vacant)
    return first_plan(0, topology=seats, slots=SlotLedger(vacant=gone) if gone else None)


def test_before_every_start_the_devices_are_looked_up_again(path: Path) -> None:
    path.write_text(text(table_v1(2, devices=(6, 7))))
    assert seating(path, 0, 1).look(of(TWO_HERE)) == (6, 7)
    assert seating(path).look(of(TWO_HERE)) == ()


def test_workers_of_a_smaller_world_get_a_table_without_the_devices_of_the_others(path: Path) -> None:
    path.write_text(text(table_v1(3, devices=(5, 6, 7))))
    (seat,) = topology(3).nodes
    fewer = Topology(nodes=(replace(seat, slots=2, places=(0, 2)),))
    seats = seating(path, 0, 1, 2)
    assert seats.look(of(fewer)) == (5, 7)
    made = read_rank_table(seats.table)
    assert made.servers[0].devices == (5, 7)
    assert made.servers[0].ranks == (0, 1)
    assert Path(seats.table) == path.parent / "rank_table_of_0_2.json"
    assert seats.look(of(topology(3))) == (5, 6, 7)
    assert seats.table == ""  # the platform's own serves again
    path.write_text(text(table_v1(2, devices=(5, 7))))  # the platform has written a smaller one itself
    assert seats.look(of(fewer)) == (5, 7)
    assert seats.table == ""


def test_a_table_of_another_size_is_not_for_this_run(path: Path) -> None:
    path.write_text(text(table_v1(4)))
    with pytest.raises(NotFinished) as caught:
        seating(path, 0, 1).look(of(TWO_HERE))
    assert caught.value.because == ("it now gives this node 4 of 4 ranks, and the run has 2 workers here")


def test_a_run_that_ends_does_not_wait_for_the_table(path: Path) -> None:
    path.write_text(INITIALIZING)
    said: list[str] = []
    seats = seating(path, 0, 1, said=said)
    seats.abandon()
    with pytest.raises(Abandoned):
        seats.look(of(TWO_HERE))
    assert "waiting for the rank table" in said[0]


def test_of_several_nodes_each_has_the_ranks_that_the_table_gives_it_or_waits_and_says_so(path: Path) -> None:
    seats = Topology(nodes=(OTHER, *TWO_HERE.nodes))
    path.write_text(text(table_v1(2, 2)))
    first, second = (f"10.0.0.{number}" for number in (1, 2))
    assert seating(path, 0, 1, XDL_IP=second).look(of(seats)) == (0, 1)
    assert seating(path, XDL_IP=second).look(of(seats)) == (0, 1), "one that was no part of it at its start"
    assert seating(path).look(of(seats)) == (), "nothing says which of its servers this node is"
    for address, because in (
        (first, "it gives this node ranks 0 1, and the run ranks 2 3"),
        ("10.0.0.9", "none of its servers is this node (10.0.0.9), which has ranks 2 3"),
    ):
        with pytest.raises(NotFinished) as caught:
            seating(path, 0, 1, XDL_IP=address, within_s=0.0).look(of(seats))
        assert (caught.value.because, caught.value.exit_code) == (because, 69)
    path.write_text(text(table_v2(2, 2)))
    assert seating(path, XDL_IP=second).look(of(seats)) == (), "a table that names no servers"
    path.write_text(text(table_v1(2, 2)))
    assert seating(path, XDL_IP=first).look(of(Topology(nodes=(OTHER, OTHER, *TWO_HERE.nodes)))) == ()


THREE = (2, 2, 2)
AT_SECOND_AND_THIRD = Topology(nodes=(OTHER, *TWO_HERE.nodes))


def of_nodes(path: Path, address: str = "10.0.0.3", said: list[str] | None = None) -> DeviceAssignment:
    """A node of three that may be fewer."""
    rendezvous = Rendezvous(rank_table_file=str(path), rank_table_wait_s=0.0)
    spec = a_spec(
        devices=(0, 1),
        rendezvous=rendezvous,
        topology=Topology(nodes=(NodeSlots(node=NodeId(""), slots=2),) * 3),
        elastic=Elastic(min_workers=2, min_nodes=1, fixed_seats=True),
    )
    environ = {"XDL_IP": address} if address else {}
    return Unhurried(spec, environ, (said if said is not None else []).append, path.parent)


@pytest.mark.parametrize("table", [table_v0, table_v1, table_v12, table_v2])
def test_of_fewer_nodes_workers_get_the_rows_of_those_that_are_left(
    path: Path, table: Callable[..., dict[str, Any]]
) -> None:
    path.write_text(text(table(*THREE)))
    node = of_nodes(path)
    assert node.look(of(AT_SECOND_AND_THIRD, 0)) == (0, 1)
    made = read_rank_table(node.table)
    whole = read_rank_table(str(path))
    assert [server.ranks for server in made.servers] == [(0, 1), (2, 3)]
    assert [server.names for server in made.servers] == [server.names for server in whole.servers[1:]]
    assert Path(node.table) == path.parent / "rank_table_of_2_nodes.json"
    assert node.look(of(Topology(nodes=(OTHER, OTHER, *TWO_HERE.nodes)))) == (0, 1)
    assert node.table == "", "with all of them the platform's own serves again"
    assert node.look(of(TWO_HERE, 0, 1)) == (0, 1)
    assert [server.names for server in read_rank_table(node.table).servers] == [whole.servers[2].names]


def test_while_the_platform_places_a_pod_anew_nobody_who_stays_waits_for_its_row(path: Path) -> None:
    path.write_text(text(table_v1(*THREE)))
    said: list[str] = []
    node = of_nodes(path, said=said)
    node.look(of(Topology(nodes=(OTHER, OTHER, *TWO_HERE.nodes))))
    path.write_text(INITIALIZING)
    assert node.look(of(AT_SECOND_AND_THIRD, 0)) == (0, 1)
    assert said == [f"the rank table {path} is being written; its rows of who is left stand as they were"]
    assert [server.ranks for server in read_rank_table(node.table).servers] == [(0, 1), (2, 3)]
    with pytest.raises(NotFinished, match="is not finished"):
        node.look(of(Topology(nodes=(OTHER, OTHER, *TWO_HERE.nodes))))
    with pytest.raises(NotFinished, match="is not finished"):
        of_nodes(path).look(of(AT_SECOND_AND_THIRD, 0))


def test_a_smaller_table_of_the_platform_itself_is_used_if_it_says_the_same(path: Path) -> None:
    table = table_v1(*THREE)
    path.write_text(text(table))
    smaller = smaller_table(path.read_bytes(), (2, 3, 4, 5))
    path.write_bytes(smaller)
    node = of_nodes(path)
    assert (node.look(of(AT_SECOND_AND_THIRD, 0)), node.table) == ((0, 1), "")
    for address, content, because in (
        ("10.0.0.2", smaller, "it gives this node ranks 0 1, and the run ranks 2 3"),
        ("10.0.0.2", text(table).encode(), "it gives this node ranks 2 3, and the run ranks 4 5"),
        ("10.0.0.3", text(table_v1(2)).encode(), "it names 2 ranks, and the run has 6"),
        ("10.0.0.9", smaller, "none of its servers is this node (10.0.0.9), which has ranks 2 3"),
    ):
        path.write_bytes(content)
        with pytest.raises(NotFinished) as caught:
            of_nodes(path, address).look(of(AT_SECOND_AND_THIRD, 0))
        assert caught.value.because == because
