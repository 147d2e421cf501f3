"""Ascend's rank table in all its versions, and in all the ways in which it can be wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.platforms.rank_table.rank_table import RankTable, node_names, parse_rank_table, seen_devices
from faultrun.platforms.untrusted_files import Unfinished
from support.checkpoints.platform_files import INITIALIZING, table_v0, table_v1, table_v2, table_v12, text


def parse(document: object) -> RankTable:
    return parse_rank_table(text(document).encode())


def mistake(document: object) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        parse(document)
    assert not isinstance(caught.value, Unfinished), "it would be waited for"
    return str(caught.value)


@pytest.mark.parametrize("form", [table_v0, table_v1, table_v12, table_v2])
@pytest.mark.parametrize("sizes", [(1,), (8,), (4, 4), (8, 8, 8, 8)])
def test_every_version_gives_the_same_places(form: Any, sizes: tuple[int, ...]) -> None:
    table = parse(form(*sizes))
    assert table.world_size == sum(sizes)
    assert [server.devices for server in table.servers] == [tuple(range(size)) for size in sizes]
    ranks = [rank for server in table.servers for rank in server.ranks]
    assert ranks == list(range(sum(sizes)))


def test_ranks_and_devices_are_those_of_the_table_and_not_counted() -> None:
    document = table_v1(2, 2, devices=(5, 3))
    document["server_list"].reverse()
    for server in document["server_list"]:
        server["device"].reverse()
    table = parse(document)
    assert [(server.ranks, server.devices) for server in table.servers] == [
        ((0, 1), (5, 3)),
        ((2, 3), (5, 3)),
    ]


def test_numbers_may_be_texts_or_numbers_and_nothing_else() -> None:
    document = table_v1(1)
    device = document["server_list"][0]["device"][0]
    device |= {"rank_id": 0, "device_id": 7}
    assert parse(document).servers[0].devices == (7,)
    bads: tuple[object, ...] = ("", " 1", "-1", "+1", "1.0", "٣", 1.0, True, None, [], "1" * 40, -1, 10**9)
    for bad in bads:
        device["device_id"] = bad
        assert "device_id" in mistake(document)


def test_a_table_on_one_line_and_one_with_blanks_everywhere_are_the_same() -> None:
    document = table_v12(4, 4, 4, 4)
    assert parse_rank_table(json.dumps(document, separators=(",", ":")).encode()) == parse_rank_table(
        json.dumps(document, indent=4, separators=(" , ", " : ")).encode()
    )


def test_what_is_not_needed_may_be_missing() -> None:
    document = table_v1(2)
    for key in ("version", "status", "server_count"):
        del document[key]
    assert parse(document).world_size == 2
    for device in document["server_list"][0]["device"]:
        del device["device_ip"]
    assert parse(document).world_size == 2


def test_a_byte_order_mark_is_no_reason_to_refuse() -> None:
    assert parse_rank_table(b"\xef\xbb\xbf" + text(table_v1(2)).encode()).world_size == 2


def test_legacy_instances_of_several_devices_count_in_the_order_of_their_ranks() -> None:
    devices = [{"device_id": str(local)} for local in range(4)]
    instances = [{"devices": devices, "server_id": name} for name in ("a", "b")]
    document = {"status": "completed", "group_list": [{"instance_list": instances}]}
    assert [server.ranks for server in parse(document).servers] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    for ids in ((0, 1), (0, 4)):
        numbered = [one | {"rank_id": str(rank)} for one, rank in zip(instances, ids, strict=True)]
        document = {"group_list": [{"instance_list": numbered}]}
        assert parse(document).servers[1].ranks == (4, 5, 6, 7)
    assert "not in the order" in mistake({"group_list": [{"instance_list": numbered[::-1]}]})


@pytest.mark.parametrize(
    ("document", "because"),
    [
        ({"status": "failed"}, 'its status is "failed", not "completed"'),
        ({"status": 3}, 'its status is "3"'),
        ({}, "neither server_list nor rank_list nor group_list"),
        ([], "not a JSON object"),
        (None, "not a JSON object"),
        ({"server_list": []}, "it names no device"),
        ({"server_list": {}}, "its server_list is not a list of objects"),
        ({"server_list": [3]}, "its server_list is not a list of objects"),
        ({"server_list": [{"device": []}]}, "a server of it has no server_id"),
        (
            {"server_list": [{"server_id": "a", "device": [{"rank_id": "0"}]}]},
            "a rank of it has no device_id",
        ),
        ({"rank_list": [{"rank_id": 0, "device_id": 0}]}, "a rank of it has no local_id"),
        ({"group_list": [{"instance_list": [{"devices": []}]}]}, "a server of it has no server_id"),
        (table_v1(2) | {"server_count": "2"}, "it says server_count 2 and names 1"),
        (table_v2(2) | {"rank_count": 3}, "it says rank_count 3 and names 2"),
        (table_v1(4, 2), "its servers have 2 and 4 devices"),
    ],
)
def test_what_is_wrong_is_said(document: object, because: str) -> None:
    assert because in mistake(document)


def test_a_legacy_table_must_have_as_many_devices_as_it_says() -> None:
    document = table_v0(4)
    document["group_list"][0]["device_num"] = "8"
    assert mistake(document) == "it says device_num 8 and names 4"
    per_server = table_v0(4, 4)
    per_server["group_list"][0]["device_num"] = "4"
    assert parse(per_server).world_size == 8


def test_ranks_must_be_all_from_zero_on_and_each_once() -> None:
    document = table_v1(4)
    devices = document["server_list"][0]["device"]
    devices[2]["rank_id"] = "1"
    assert mistake(document) == "it gives rank 1 to several devices"
    devices[2]["rank_id"] = "7"
    assert mistake(document) == "it names 4 ranks up to 7, and rank 2 is not among them"


def test_a_device_belongs_to_one_rank_and_a_server_is_listed_once() -> None:
    document = table_v1(4)
    document["server_list"][0]["device"][3]["device_id"] = "1"
    assert mistake(document) == "it gives device 1 of server 10.0.0.1 to 2 ranks"
    twice = table_v1(2)
    twice["server_list"] *= 2
    assert mistake(twice) == "it lists server 10.0.0.1 twice"


def test_a_node_is_found_by_its_whole_address_only() -> None:
    document = table_v1(*[2] * 11)
    table = parse(document)
    assert table.server_of(["10.0.0.1"]).ranks == (0, 1)
    assert table.server_of(["10.0.0.11"]).ranks == (20, 21)
    for names in (["10.0.0"], ["0.0.0.1"], [], [""]):
        with pytest.raises(ValueError, match="0 of its servers are this node"):
            table.server_of(names)
    with pytest.raises(ValueError, match=r"2 of its servers are this node \(10\.0\.0\.1 10\.0\.0\.2\)"):
        table.server_of(["10.0.0.1", "10.0.0.2"])


def test_a_host_or_container_address_names_a_node_too_and_the_only_server_needs_no_name() -> None:
    document = table_v12(4, 4, 4, 4)
    assert parse(document).server_of(["172.16.0.2"]).ranks == (4, 5, 6, 7)
    assert parse(table_v2(8)).server_of([]).ranks == tuple(range(8))
    with pytest.raises(ValueError, match="it has none by name"):
        parse(table_v2(8, 8)).server_of(["10.0.0.1"])


def test_the_nodes_names_are_the_addresses_that_the_manifest_gives() -> None:
    assert node_names({"XDL_IP": "10.0.0.1", "POD_IP": "", "HOST": "x"}) == ("10.0.0.1",)


def test_devices_are_renumbered_where_the_runtime_is_told_what_it_may_see(tmp_path: Path) -> None:
    none = tmp_path / "dev"
    assert seen_devices((4, 5), {}, none) == (4, 5)
    assert seen_devices((4, 5), {"ASCEND_RT_VISIBLE_DEVICES": "5,4,6"}, none) == (0, 1)
    assert seen_devices((4, 5), {"ASCEND_RT_VISIBLE_DEVICES": "0,1"}, none) == (4, 5)


def test_a_container_counts_the_device_files_that_it_was_given(tmp_path: Path) -> None:
    for name in ("davinci4", "davinci5", "davinci10", "davinci_manager", "null"):
        (tmp_path / name).touch()
    assert seen_devices((10, 4), {}, tmp_path) == (2, 0)
    assert seen_devices((10, 4), {"ASCEND_RT_VISIBLE_DEVICES": "0,2"}, tmp_path) == (1, 0)
    assert seen_devices((0, 1), {}, tmp_path) == (0, 1)


def test_a_table_that_is_being_made_is_not_finished() -> None:
    for content in (INITIALIZING, '{"status" : "initializing", "version": "2.0", "rank_count": 0}', "", "  "):
        with pytest.raises(Unfinished):
            parse_rank_table(content.encode())


@pytest.mark.parametrize("form", [table_v0, table_v1, table_v12, table_v2])
def test_no_beginning_of_a_table_is_a_table(form: Any) -> None:
    content = text(form(2)).encode()
    for end in range(len(content)):
        with pytest.raises(Unfinished):
            parse_rank_table(content[:end])


def test_hostile_documents_are_refused_and_quickly() -> None:
    for content in (
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"server_list": ' + b"9" * 100_000 + b"}",
        b'{"status": "completed", "status": "initializing"}',
        b'{"server_count": NaN}',
        b'{"status": "\xff"}',
        text(table_v1(2)).encode("utf-16"),
        b"\0" * 1000,
    ):
        with pytest.raises(ValueError, match=r"."):
            parse_rank_table(content)


_SCALARS: st.SearchStrategy[object] = (
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.floats()
    | st.sampled_from(["0", "1", "completed", "x"])
)
_KEYS = st.sampled_from(
    ["status", "server_list", "rank_list", "group_list", "device", "devices", "instance_list", "rank_id",
     "device_id", "local_id", "server_id", "server_count", "rank_count", "device_num"]
)  # fmt: skip
_DOCUMENTS = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5)
)


@given(_DOCUMENTS)
def test_whatever_json_comes_it_is_a_table_or_refused_in_words(document: object) -> None:
    try:
        table = parse_rank_table(json.dumps(document).encode())
    except ValueError as error:
        assert str(error)
    else:
        assert sorted(rank for server in table.servers for rank in server.ranks) == list(
            range(table.world_size)
        )


@given(st.binary(max_size=60))
def test_whatever_bytes_come_they_are_refused_in_words(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_rank_table(content)
