"""A port is free, and one of the range that was asked for; one that is shut is told from a quiet one."""

import socket

import pytest

from faultrun.cli.options.values import ports
from faultrun.platforms.ports import fresh_port, is_free, is_shut, port_in
from support.machine.free_port import free_port


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_is_one_of_the_range_and_an_avoided_one_only_where_there_is_no_other(address: str) -> None:
    low = next(port for port in range(21000, 30000) if all(is_free(address, port + at) for at in range(3)))
    first, second, third = low, low + 1, low + 2
    assert fresh_port(address, frozenset({first, third}), (first, third)) == second
    assert fresh_port(address, frozenset({first}), (first, first)) == first
    assert fresh_port(address, frozenset(), (second, third)) in (second, third)


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
