"""Each shape in which etcd 3.4, 3.5 and 3.6 have been seen to say no, read as what it means."""

import pytest

from faultrun.nodes.etcd.answers import EtcdRefused, Failure, hint_for, read_answer

COMMON_NAME = (
    b"CommonName of client sending a request against gateway will be ignored and not used as expected\n"
)

SHAPES = {
    "one answer, 3.4": (
        b'{"error":"etcdserver: requested lease not found",'
        b'"message":"etcdserver: requested lease not found","code":5}',
        5,
    ),
    "one answer, 3.5": (b'{"error":"etcdserver: no leader","code":14,"message":"etcdserver: no leader"}', 14),
    "one answer, 3.6": (b'{"code":14,"message":"etcdserver: no leader","details":[]}', 14),
    "stream, 3.4 and 3.5": (
        b'{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader",'
        b'"http_status":"Service Unavailable"}}\n',
        14,
    ),
    "stream, 3.6": (b'{"error":{"code":14,"message":"etcdserver: no leader"}}\n', 14),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_error_is_read_in_every_shape(shape: str) -> None:
    text, code = SHAPES[shape]
    failure = read_answer(503, text)
    assert isinstance(failure, Failure)
    assert failure.code == code
    assert failure.message.startswith("etcdserver: ")


def test_results_are_taken_out_of_a_stream() -> None:
    assert read_answer(200, b'{"result":{"ID":"5","TTL":"10"}}\n') == {"ID": "5", "TTL": "10"}
    assert read_answer(200, b'{"header":{"revision":"1"}}') == {"header": {"revision": "1"}}
    assert read_answer(200, b"{}") == {}


@pytest.mark.parametrize(
    ("status", "text", "elsewhere"),
    [
        (400, COMMON_NAME, False),
        (400, b"Client sent an HTTP request to an HTTPS server.\n", False),
        (404, b"404 page not found\n", True),
        (503, b"<html>no healthy upstream</html>", True),
        (502, b"", True),
        (200, b"[1, 2]", True),
        (200, b'"ok"', True),
    ],
)
def test_plain_text_is_a_failure_that_quotes_it(status: int, text: bytes, elsewhere: bool) -> None:
    failure = read_answer(status, text)
    assert isinstance(failure, Failure)
    assert failure.elsewhere is elsewhere
    assert failure.message == (text.decode().strip() or f"HTTP status {status} and nothing else")


def test_a_client_certificate_with_a_name_is_told_with_what_to_do() -> None:
    failure = read_answer(400, COMMON_NAME)
    assert isinstance(failure, Failure)
    assert str(EtcdRefused(failure, "etcd0:2379")) == (
        "etcd refuses at etcd0:2379\n"
        "  because: CommonName of client sending a request against gateway will be ignored and not used as "
        "expected\n"
        "  try:     issue client certificates without a CN: openssl req -subj /O=faultrun ..."
    )


def test_a_full_store_is_no_reason_to_ask_another_member() -> None:
    full = Failure(code=8, message="etcdserver: mvcc: database space exceeded")
    busy = Failure(code=8, message="etcdserver: too many requests")
    assert (full.elsewhere, busy.elsewhere) == (False, True)
    assert "defrag" in hint_for(full.message)


def test_no_user_where_etcd_asks_for_one_is_said_with_what_to_give() -> None:
    failure = read_answer(400, b'{"error":"x","code":3,"message":"etcdserver: user name is empty"}')
    assert isinstance(failure, Failure)
    assert not failure.elsewhere
    assert hint_for(failure.message) == "--rdzv-conf=username=NAME,password_file=FILE as etcd asks for"


def test_an_error_that_came_before_the_proposal_has_done_nothing_and_a_timeout_may_have() -> None:
    def done(code: int, message: str) -> bool:
        return not Failure(code=code, message=message).nothing_done

    assert not done(14, "etcdserver: no leader")
    assert not done(8, "etcdserver: too many requests")
    assert not done(7, "etcdserver: permission denied")
    assert not done(16, "etcdserver: invalid auth token")
    assert done(14, "etcdserver: request timed out")
    assert done(14, "etcdserver: leader changed")
    assert done(14, "etcdserver: request timed out, possibly due to previous leader failure")


def test_tokens_that_a_new_one_may_replace() -> None:
    assert Failure(code=16, message="etcdserver: invalid auth token").stale_token
    assert Failure(code=3, message="etcdserver: revision of auth store is old").stale_token
    assert not Failure(code=3, message="etcdserver: user name is empty").stale_token
    assert not Failure(code=7, message="etcdserver: permission denied").stale_token
