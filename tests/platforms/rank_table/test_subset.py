"""A table of fewer devices is the platform's own, with ranks and counts of the smaller world."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.platforms.rank_table.rank_table import parse_rank_table
from faultrun.platforms.rank_table.subset import smaller_table
from support.checkpoints.platform_files import table_v0, table_v1, table_v2, table_v12

FORMATS: tuple[Callable[..., dict[str, Any]], ...] = (table_v0, table_v1, table_v12, table_v2)


@given(st.sampled_from(FORMATS), st.integers(1, 8), st.data())
def test_what_is_left_keeps_its_device_and_its_order(
    table: Callable[..., dict[str, Any]], size: int, data: st.DataObject
) -> None:
    left = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    content = json.dumps(table(size)).encode()
    before, after = parse_rank_table(content), parse_rank_table(smaller_table(content, left))
    assert after.world_size == len(left)
    (server,) = after.servers
    assert server.ranks == tuple(range(len(left)))
    assert server.devices == tuple(place.device for place in before.servers[0].places if place.rank in left)
    assert server.names == before.servers[0].names


def test_what_is_not_known_here_stays_as_it_was_written() -> None:
    table = table_v12(3)
    made = json.loads(smaller_table(json.dumps(table).encode(), (0, 2)))
    device = table["server_list"][0]["device"][2]
    assert made["server_list"][0]["device"][1] == {**device, "rank_id": "1"}
    assert made["super_pod_list"] == table["super_pod_list"]
    assert made["server_count"] == "1"


def test_no_super_pod_names_a_server_that_no_rank_is_left_of() -> None:
    """HCCL looks each of them up in the list of servers, and refuses the table where it is not there."""
    table = table_v12(2, 2, 2)
    one, *others = table["super_pod_list"][0]["server_list"]
    table["super_pod_list"] = [
        {"super_pod_id": "0", "server_list": [one]},
        {"super_pod_id": "1", "server_list": others},
    ]
    made = json.loads(smaller_table(json.dumps(table).encode(), (2, 3)))
    assert made["super_pod_list"] == [{"super_pod_id": "1", "server_list": others[:1]}]
    shapeless: tuple[object, ...] = ({}, [1], [{"server_list": 1}])
    for nonsense in shapeless:
        table["super_pod_list"] = nonsense
        made = json.loads(smaller_table(json.dumps(table).encode(), (2, 3)))
        assert made["super_pod_list"] == nonsense


def test_ranks_of_legacy_instances_that_say_them_are_numbered_anew() -> None:
    table = table_v0(3)
    for rank, instance in zip((2, 0, 1), table["group_list"][0]["instance_list"], strict=True):
        instance["rank_id"] = str(rank)
    made = parse_rank_table(smaller_table(json.dumps(table).encode(), (0, 2)))
    assert [place.device for place in made.servers[0].places] == [1, 0]


@pytest.mark.parametrize("left", [(), (0, 3)])
def test_a_rank_that_it_does_not_name_is_refused(left: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="it names 3 ranks"):
        smaller_table(json.dumps(table_v1(3)).encode(), left)
