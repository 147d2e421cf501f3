"""Values as people write them: each is read as it is meant or refused with a reason."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.cli.options.node_addresses import endpoint
from faultrun.cli.options.values import (
    backoff,
    patience_s,
    ranks,
    rewrite,
    run_id,
    seconds,
    streams,
    switch,
    whole,
)
from faultrun.model.spec.output import Logs, Stream

few = settings(max_examples=50)


@pytest.mark.parametrize(
    ("text", "length_s"),
    [
        *(("250ms", 0.25), ("30s", 30), (" 2 s", 2), ("5m", 300), ("5min", 300), ("1h", 3600), ("1d", 86400)),
        *(("30", 30), ("1.5", 1.5), ("0", 0)),
    ],
)
def test_a_time_is_a_number_with_a_unit_or_bare_seconds(text: str, length_s: float) -> None:
    assert seconds()(text) == length_s


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "-5s", "1:30", "5x", "1h30m", "nan", "inf", "1e3", "٣s", "25h"]
)
def test_what_is_no_time_or_longer_than_a_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        seconds()(text)


def test_backoff_is_a_span_or_one_time_for_both_ends() -> None:
    assert backoff("1s..60s") == (1, 60)
    assert backoff("500ms..1m") == (0.5, 60)
    assert backoff("5s") == (5, 5)


@pytest.mark.parametrize("text", ["60s..1s", "..", "1s..", "1s...2s", "1s-60s"])
def test_a_backoff_that_runs_backwards_or_misses_an_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        backoff(text)


@few
@given(st.integers(-50, 50))
def test_a_whole_number_is_read_within_its_bounds_only(number: int) -> None:
    if 1 <= number <= 20:
        assert whole(1, 20)(str(number)) == number
    else:
        with pytest.raises(ValueError, match="between 1 and 20"):
            whole(1, 20)(str(number))


@pytest.mark.parametrize("text", ["", "4.0", "four", "True", "0x4", "1_000", "9" * 5000])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        whole(0, 10)(text)


def test_switches_are_read_in_the_spelling_of_msrun_and_of_yaml() -> None:
    assert [switch(text) for text in ("True", "true", "1", "yes", "on")] == [True] * 5
    assert [switch(text) for text in ("False", "false", "0", "no", "off")] == [False] * 5
    with pytest.raises(ValueError):
        switch("maybe")


def test_streams_are_one_number_or_one_for_each_local_rank() -> None:
    assert streams("3") == {None: Stream.ALL}
    assert streams("0:1,1:2") == {0: Stream.OUT, 1: Stream.ERR}
    for text in ("4", "", "0:4", "0:1,", "a:1", "0:1 1:2"):
        with pytest.raises(ValueError):
            streams(text)


def test_the_console_shows_what_redirects_leave_and_tee_and_tail_add() -> None:
    logs = Logs(
        tail=frozenset({2}),
        tee=(Stream.NONE, Stream.OUT, Stream.NONE, Stream.NONE),
        redirects=(Stream.ALL, Stream.ALL, Stream.ALL, Stream.OUT),
    )
    assert [logs.console(rank, rank) for rank in range(4)] == [
        Stream.NONE,
        Stream.OUT,
        Stream.ALL,
        Stream.ERR,
    ]
    assert Logs().console(0, 0) is Stream.NONE
    assert Logs(tail=frozenset({5})).console(5, 1) is Stream.ALL


def test_ranks_to_tail_are_listed_or_all() -> None:
    assert ranks("0,3") == (0, 3)
    assert ranks("-1") == ()
    for text in ("", "0,,1", "-2", "a"):
        with pytest.raises(ValueError):
            ranks(text)


def test_an_endpoint_is_a_host_with_or_without_a_port() -> None:
    assert endpoint("node0:29500") == ("node0", 29500)
    assert endpoint("node0") == ("node0", None)
    assert endpoint("[::1]:29400") == ("[::1]", 29400)
    for text in ("", ":1", "a:b", "a:99999", "::1", "a:1:2"):
        with pytest.raises(ValueError):
            endpoint(text)


def test_the_time_out_of_the_cluster_may_be_for_ever() -> None:
    assert patience_s("300") == 300
    assert patience_s("5m") == 300
    assert patience_s("-1") == -1
    assert patience_s("200ms") == 1


def test_a_rewrite_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "a:b.yaml"
    config.write_text("key: 0\n")
    assert rewrite(f"{config}:key={{step}}").file == str(config)
    with pytest.raises(ValueError, match="ckpt"):
        rewrite(f"{config}:key={{ckpt}}")


@few
@given(st.text(max_size=20))
def test_a_run_id_is_a_name_that_can_be_a_folder(text: str) -> None:
    try:
        name = run_id(text)
    except ValueError:
        return
    assert name == text
    assert "/" not in name
    assert name not in ("", ".", "..")
