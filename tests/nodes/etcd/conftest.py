"""The etcd that these tests ask: one member that all of them share, each below a prefix of its own."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.model.spec.nodes_spec import EtcdAccess
from faultrun.nodes.etcd.gateway import Gateway
from support.nodes.etcd_cluster import EtcdMember, one_etcd, programs

PROGRAMS = programs()


@pytest.fixture(scope="session", params=sorted(PROGRAMS) or ["no etcd"])
def program(request: pytest.FixtureRequest) -> Path:
    """Each etcd of this machine in turn."""
    if not PROGRAMS:
        pytest.skip("no etcd in PATH, and faultrun[etcd] is not installed")
    return PROGRAMS[request.param]


@pytest.fixture(scope="session")
def member(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    with one_etcd(tmp_path_factory.mktemp("etcd"), program) as alone:
        yield alone


@pytest.fixture
def open_gateway() -> Iterator[Callable[..., Gateway]]:
    """Makes gateways, and closes them."""
    opened: list[Gateway] = []

    def open_one(*endpoints: str, access: EtcdAccess | None = None, attempt_s: float = 20.0) -> Gateway:
        access = replace(access or EtcdAccess(endpoints=()), endpoints=endpoints)
        opened.append(Gateway(access, attempt_s=attempt_s))
        return opened[-1]

    yield open_one
    for gateway in opened:
        gateway.close()


@pytest.fixture
def gateway(member: EtcdMember, open_gateway: Callable[..., Gateway]) -> Gateway:
    return open_gateway(member.endpoint)


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Keys of this test alone."""
    return f"/{request.node.name}/"
