"""What is typed about etcd, as connections need it."""

import subprocess
from pathlib import Path

import pytest

from faultrun.errors import UsageError
from faultrun.model.spec.nodes_spec import EtcdAccess
from faultrun.nodes.etcd.endpoints import host_and_port, in_order_of, password, tls_context


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [("etcd0:2379", ("etcd0", 2379)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:2379", ("::1", 2379))],
)
def test_an_endpoint_is_a_host_and_a_port(endpoint: str, expected: tuple[str, int]) -> None:
    assert host_and_port(endpoint) == expected


def test_nodes_begin_at_different_members_and_know_all_of_them() -> None:
    three = EtcdAccess(endpoints=("a:1", "b:2", "c:3"))
    orders = {in_order_of(three, f"node{number}") for number in range(100)}
    assert {order[0] for order in orders} == set(three.endpoints)
    assert all(set(order) == set(three.endpoints) for order in orders)
    assert in_order_of(three, "node0") == in_order_of(three, "node0")


def test_a_password_is_read_when_it_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "password"
    access = EtcdAccess(endpoints=("a:1",), username="run", password_file=str(file))
    with pytest.raises(UsageError, match="password") as error:
        password(access)
    assert str(file) in error.value.because
    file.write_text("geheim ü \n")
    assert password(access) == "geheim ü "


def test_without_tls_there_is_no_context() -> None:
    assert tls_context(EtcdAccess(endpoints=("a:1",))) is None


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be used") as error:
        tls_context(EtcdAccess(endpoints=("a:1",), tls=True, ca_file=str(tmp_path / "ca.pem")))
    assert "ca.pem" in error.value.because


def test_a_key_with_a_passphrase_asks_no_terminal(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made: list[str | Path] = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
    ]
    named: list[str | Path] = ["-subj", "/O=x", "-passout", "pass:secret", "-keyout", key, "-out", cert]
    subprocess.run([*made, *named], check=True, capture_output=True)
    with pytest.raises(UsageError, match="cannot be used"):
        tls_context(EtcdAccess(endpoints=("a:1",), tls=True, cert_file=str(cert), key_file=str(key)))
