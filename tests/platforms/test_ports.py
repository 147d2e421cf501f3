"""A port is free, and one of the range that was asked for; one that is shut is told from a quiet one."""

import socket

import pytest

from faultrun.cli.options.values import ports
from faultrun.platforms.ports import fresh_port, is_free, is_shut, port_in
from support.machine.free_port import free_port


@pytest.mark.parametrize("size", [1, 2, 5, 300])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_is_one_of_the_range_and_an_avoided_one_only_where_there_is_no_other(
    size: int, address: str
) -> None:
    low = free_port()
    span = (low, low + size - 1)
    avoid: frozenset[int] = frozenset()
    for _ in range(min(size, 5) + 1):
        try:
            port = fresh_port(address, avoid, span)
        except OSError:
            assert not any(is_free(address, one) for one in range(low, low + size))
            return
        assert low <= port <= span[1]
        assert port not in avoid or not any(
            is_free(address, one) for one in {*range(low, low + size)} - avoid
        )
        avoid |= {port}


def test_a_range_without_a_free_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        with pytest.raises(OSError, match=rf"no free port on 127.0.0.1 in {port}-{port}"):
            port_in("127.0.0.1", (port, port))
    assert port_in("127.0.0.1", None) == 0


@pytest.mark.parametrize(
    ("text", "means"),
    [("29500-29599", (29500, 29599)), ("29500", (29500, 29500)), ("5-4", None), ("x", None), ("0-9", None)],
)
def test_a_range_of_ports_is_read(text: str, means: tuple[int, int] | None) -> None:
    if means is not None:
        assert ports(text) == means
        return
    with pytest.raises(ValueError, match="is not"):
        ports(text)


def test_where_nobody_listens_the_port_is_not_shut() -> None:
    assert not is_shut("127.0.0.1", free_port())
    with socket.create_server(("127.0.0.1", 0)) as open_one:
        assert not is_shut("127.0.0.1", int(open_one.getsockname()[1]))
    assert not is_shut("no.such.host.invalid", 1)
