"""``fault-npus`` and ``reset.json``: every shape that was ever written, and all that must change nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.observed.platform_notice import (
    FaultRanks,
    RankStatus,
    ReportedRank,
    ResetNotice,
    RestartKind,
)
from faultrun.platforms.fault_files import parse_fault_ranks, parse_reset, parse_restart_kind, parse_version
from faultrun.platforms.untrusted_files import Unfinished
from support.checkpoints.platform_files import INITIALIZING, reset, text


def ranks(content: str) -> set[int] | None:
    found = parse_fault_ranks(content.encode())
    return None if found is None else set(found.ranks)


@pytest.mark.parametrize(
    ("shape", "content", "expected"),
    [
        ("A'", '{"FaultRankIds":null,"CreatTime":1650000000}', set()),
        ("B", """{"FaultRankIds":"['0','1']"}""", {0, 1}),
        ("B", '{"FaultRankIds":"[0, 1]"}', {0, 1}),
        ("B", '{"FaultRankIds":"[]"}', set()),
        ("C", '{"FaultRankIds":"3"}', {3}),
        ("C", '{"FaultRankIds":""}', set()),
        ("E", '{"FaultRankIds":["0","1"],"CreatTime":1,"RestoreRankIds":["2"]}', {0, 1}),
        ("E", "{'FaultRankIds': None, 'RestoreRankIds': ['2']}", set()),
        ("many", text({"FaultRankIds": [str(rank) for rank in range(4096)]}), set(range(4096))),
        ("twice", '{"FaultRankIds":["1","1","2"]}', {1, 2}),
        ("none yet", INITIALIZING, None),
        ("none yet", "{'status': 'initializing'}", None),
    ],
)
def test_every_shape_of_the_fault_ranks_is_read(shape: str, content: str, expected: set[int] | None) -> None:
    assert ranks(content) == expected


def test_the_time_of_writing_tells_two_faults_of_one_rank_apart() -> None:
    for key in ("CreatTime", "CreateTime", "UpdateTime"):
        content = text({"FaultRankIds": ["1"], key: 1700000000})
        assert parse_fault_ranks(content.encode()) == FaultRanks(ranks=frozenset({1}), created_at=1700000000)


@pytest.mark.parametrize(
    "content",
    [
        '{"FaultRankIds":["-1"]}',
        '{"FaultRankIds":["4096"]}',
        '{"FaultRankIds":["1","x"]}',
        '{"FaultRankIds":[true]}',
        '{"FaultRankIds":[1.0]}',
        '{"FaultRankIds":[[1]]}',
        '{"FaultRankIds":{"0":1}}',
        '{"FaultRankIds":7}',
        '{"FaultRankIds":"0;1"}',
        '{"FaultRankIds":"[0,"}',
        '{"FaultRankIds":"[0]*4000"}',
        """{"FaultRankIds":"[__import__('os').getpid()]"}""",
        "{'FaultRankIds': [print(1)]}",
        "__import__('os').system('true')",
        '{"FaultRankIds":["1"],"FaultRankIds":["2"]}',
        '{"status":"completed"}',
        '{"ranks":["1"]}',
        '["1"]',
        "1",
        "null",
        "\ufeff\ufeff{}",
        '{"FaultRankIds":"' + "1," * 8000 + '1"}',
    ],
)
def test_fault_ranks_that_are_not_understood_are_refused_as_a_whole(content: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_fault_ranks(content.encode())


def test_reset_json_is_read_as_the_device_plugin_writes_it() -> None:
    content = text(reset({3: "unrecovered", 2: "recovered"}, RetryTime=2, FaultFlushing=True, GracefulExit=1))
    assert parse_reset(content.encode()) == ResetNotice(
        ranks=(
            ReportedRank(rank=2, status=RankStatus.RECOVERED, policy="reset", error="20ff02"),
            ReportedRank(rank=3, status=RankStatus.UNRECOVERED, policy="reset", error="20ff02"),
        ),
        flushing=True,
        graceful_exit=True,
        retry_time=2,
        update_time=1_700_000_000,
    )


@pytest.mark.parametrize("status", ["unrecovered", "recovered", "failed", "fault"])
def test_every_documented_status_is_known(status: str) -> None:
    notice = parse_reset(text(reset({0: status}, RestartFaultProcess=True)).encode())
    assert notice is not None
    assert [one.status.value for one in notice.ranks] == [status]
    assert notice.restart_in_place


def test_reset_json_may_say_little() -> None:
    assert parse_reset(INITIALIZING.encode()) is None
    assert parse_reset(text(reset({})).encode()) == ResetNotice(update_time=1_700_000_000)
    assert parse_reset(b'{"RankList": []}') == ResetNotice()
    assert parse_reset(b'{"GracefulExit": 1}') == ResetNotice(graceful_exit=True)


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"RankList": {}}, "its RankList is not a list"),
        ({"RankList": [3]}, "an entry of RankList is not an object"),
        ({"RankList": [{"RankId": 3}]}, "rank 3 has the unknown status"),
        (
            {"RankList": [{"RankId": 3, "Status": "Unrecovered"}]},
            "rank 3 has the unknown status 'Unrecovered'",
        ),
        ({"RankList": [{"Status": "fault"}]}, "'None' in RankId is not a rank"),
        ({"RankList": [{"RankId": 5000, "Status": "fault"}]}, "5000 in RankId is not a rank of 0 to 4095"),
        ({"RetryTime": -1}, "RetryTime is '-1', not a whole number"),
        ({"RetryTime": "1"}, "RetryTime is '1', not a whole number"),
        ({"GracefulExit": 2}, "GracefulExit is '2', neither 0 nor 1"),
        ({"FaultFlushing": "true"}, "FaultFlushing is 'true', neither 0 nor 1"),
    ],
)
def test_reset_json_that_is_not_understood_is_refused_whole(change: dict[str, Any], because: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_reset(text(reset({1: "unrecovered"}) | change).encode())
    assert because in str(caught.value)


def test_a_rank_may_be_listed_twice_but_not_in_two_minds() -> None:
    entry = reset({1: "unrecovered"})["RankList"][0]
    same = parse_reset(text({"RankList": [entry, entry]}).encode())
    assert same is not None
    assert len(same.ranks) == 1
    with pytest.raises(ValueError, match="lists rank 1 twice with different states"):
        parse_reset(text({"RankList": [entry, entry | {"Status": "recovered"}]}).encode())


def test_reset_json_is_json_and_never_a_python_literal() -> None:
    with pytest.raises(Unfinished):
        parse_reset(repr(reset({1: "unrecovered"})).encode())


def test_what_people_are_shown_is_one_short_printable_line() -> None:
    entry = reset({1: "unrecovered"})["RankList"][0] | {"Policy": "re\nset\x1b" * 99, "ErrorCodeHex": 7}
    notice = parse_reset(text({"RankList": [entry]}).encode())
    assert notice is not None
    assert (len(notice.ranks[0].policy), notice.ranks[0].policy.isprintable()) == (64, True)
    assert notice.ranks[0].error == ""


def test_the_files_beside_reset_json_and_the_table_are_read() -> None:
    assert parse_restart_kind(b"hotReset\n") is RestartKind.HOT_RESET
    assert parse_restart_kind(b'"podReschedule"') is RestartKind.POD_RESCHEDULE
    assert parse_restart_kind(b"") is parse_restart_kind(b"\xff\xfe" * 99) is RestartKind.UNSTATED
    assert parse_version(b" 12\n") == 12
    for bad in (b"", b"1.0", b"-1", b"9" * 30, b"\xd9\xa1", b"\xff"):
        with pytest.raises(ValueError, match="is not a version number"):
            parse_version(bad)


@pytest.mark.parametrize("parse", [parse_fault_ranks, parse_reset])
def test_no_beginning_of_a_file_is_a_file(parse: Any) -> None:
    document = reset({1: "unrecovered"}) if parse is parse_reset else {"FaultRankIds": ["1"], "CreatTime": 1}
    content = text(document).encode()
    for end in range(len(content)):
        with pytest.raises(ValueError, match=r"."):
            parse(content[:end])


@pytest.mark.parametrize("parse", [parse_fault_ranks, parse_reset])
def test_gigantic_and_hostile_files_are_refused_without_an_effort(parse: Any) -> None:
    for content in (
        b"[" * (1 << 20),
        b"{'a':" * 100_000,
        b"(" * 60_000,
        b"-" * 60_000,
        b'{"FaultRankIds": ' + b"9" * 100_000 + b"}",
        b'{"RankList": [], "RetryTime": 1e400}',
        b"1_" * 30_000 + b"1",
        b"\xff\xfe" + text(reset({1: "fault"})).encode("utf-16-le"),
        b"'" + b"\\N{BULLET}" * 5000 + b"'",
        b"\0" * 4096,
    ):
        with pytest.raises(ValueError, match=r"."):
            parse(content)


_VALUES: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5000) | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["FaultRankIds", "FaultRank", "RankList", "RankId", "Status", "RetryTime", "status"]
            ),
            inner | st.sampled_from(["unrecovered", "recovered", "['1']", "0,1", "initializing"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


def understood_or_refused(parse: Any, content: bytes) -> bool:
    try:
        found = parse(content)
    except ValueError as error:
        return bool(str(error))
    return found is None or isinstance(found, FaultRanks | ResetNotice)


@given(_VALUES, st.booleans())
def test_any_document_is_understood_or_refused_in_words(document: object, as_repr: bool) -> None:
    content = (repr(document) if as_repr else json.dumps(document)).encode(errors="replace")
    for parse in (parse_fault_ranks, parse_reset):
        assert understood_or_refused(parse, content)


@given(st.binary(max_size=80))
def test_whatever_bytes_come_nothing_but_a_refusal_in_words_is_raised(content: bytes) -> None:
    for parse in (parse_fault_ranks, parse_reset):
        assert understood_or_refused(parse, content)


@given(st.sets(st.integers(0, 4095), max_size=20), st.sampled_from(["A", "B", "C", "D", "E"]))
def test_the_same_ranks_are_read_from_every_shape(faulty: set[int], shape: str) -> None:
    names = [str(rank) for rank in faulty]
    content = {
        "A": text({"FaultRankIds": names, "CreatTime": 1}),
        "B": text({"FaultRankIds": repr(names)}),
        "C": text({"FaultRankIds": ",".join(names)}),
        "D": text({"FaultRank": sorted(faulty), "UpdateTime": 1}),
        "E": repr({"FaultRankIds": names, "CreatTime": 1, "RestoreRankIds": []}),
    }[shape]
    assert ranks(content) == faulty
