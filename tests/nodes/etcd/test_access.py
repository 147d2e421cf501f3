"""TLS with certificates for both sides, users, passwords, and tokens that expire; against a real etcd."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.model.spec.nodes_spec import EtcdAccess
from faultrun.nodes.etcd.answers import EtcdError, EtcdRefused, EtcdSilent
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.prefix_watch import PrefixWatch
from faultrun.nodes.etcd.store import read, transact
from faultrun.nodes.etcd.transactions import Committed, GuardedWrite, WriteKey
from support.machine.processes import PATIENCE_S, wait_until
from support.nodes.certificates import Authority
from support.nodes.etcd_cluster import EtcdMember, running

pytestmark = pytest.mark.long

Opener = Callable[..., Gateway]

ROOT = {"name": "root", "password": "r"}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def certified(authority: Authority) -> EtcdAccess:
    """A client's certificate without a CN, as etcd's gateway wants it."""
    cert, key = authority.issue("client", "/O=faultrun")
    return EtcdAccess(
        endpoints=(), tls=True, ca_file=str(authority.certificate("ca")), cert_file=cert, key_file=key
    )


@pytest.fixture(scope="session")
def guarded(
    program: Path, authority: Authority, certified: EtcdAccess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EtcdMember]:
    """Takes clients with a certificate, a user and a token of one to two seconds."""
    folder = tmp_path_factory.mktemp("guarded")
    cert, key = authority.issue("server", "/O=etcd")
    private, public = folder / "jwt.key", folder / "jwt.pem"
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    made: list[str | Path] = ["openssl", "rsa", "-in", private, "-pubout", "-out", public]
    subprocess.run(made, check=True, capture_output=True)
    options = (
        f"--cert-file={cert}",
        f"--key-file={key}",
        f"--trusted-ca-file={authority.certificate('ca')}",
        "--client-cert-auth",
        "--bcrypt-cost=4",
        f"--auth-token=jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=2s",
    )
    member = EtcdMember(program=program, folder=folder, secure=True)
    member.options += options
    with running(member):
        gateway = Gateway(replace(certified, endpoints=(member.endpoint,)), attempt_s=20.0)
        for path, body in (
            ("user/add", ROOT),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "run", "password": "secret"}),
            ("role/add", {"name": "below"}),
            ("role/grant", {"name": "below", "perm": _permission("/mine/")}),
            ("user/grant", {"user": "run", "role": "below"}),
            ("enable", {}),
        ):
            gateway.ask(f"auth/{path}", body)
        gateway.close()
        yield member


def _permission(prefix: str) -> dict[str, str]:
    from faultrun.nodes.etcd.store import key_range

    return {"permType": "READWRITE", **key_range(prefix)}


def put(gateway: Gateway, key: str) -> None:
    assert isinstance(
        transact(gateway, GuardedWrite(then=(WriteKey(key=key, value="x"),)), within_s=PATIENCE_S), Committed
    )


def outlive(gateway: Gateway, token: str) -> None:
    """Have ``gateway`` ask until it needs another token."""

    def replaced() -> bool:
        read(gateway, "/mine/", within_s=PATIENCE_S)
        return gateway._token != token

    wait_until(replaced, what="the end of the token")


def with_password(access: EtcdAccess, name: str, word: str) -> EtcdAccess:
    file = Path(access.ca_file).with_name(f"password of {name} {word}")
    if not file.exists():  # somebody may be reading it
        file.write_text(f"{word}\n")
    return replace(access, username=name, password_file=str(file))


def user(access: EtcdAccess) -> EtcdAccess:
    return with_password(access, "run", "secret")


def test_certificates_and_a_password_are_enough(
    guarded: EtcdMember, certified: EtcdAccess, open_gateway: Opener
) -> None:
    gateway = open_gateway(guarded.endpoint, access=user(certified))
    put(gateway, "/mine/a")
    assert "/mine/a" in read(gateway, "/mine/").keys


def test_a_token_that_has_expired_is_replaced(
    guarded: EtcdMember, certified: EtcdAccess, open_gateway: Opener
) -> None:
    gateway = open_gateway(guarded.endpoint, access=user(certified))
    put(gateway, "/mine/a")
    expired = gateway._token
    outlive(gateway, expired)
    put(gateway, "/mine/a")


def test_nobodys_token_is_replaced(guarded: EtcdMember, certified: EtcdAccess, open_gateway: Opener) -> None:
    gateway = open_gateway(guarded.endpoint, access=user(certified))
    gateway._token = "no token of etcd"
    put(gateway, "/mine/a")


def test_a_watch_outlives_its_token(guarded: EtcdMember, certified: EtcdAccess, open_gateway: Opener) -> None:
    gateway = open_gateway(guarded.endpoint, access=user(certified))
    troubles: list[Exception] = []
    rung = threading.Event()
    watch = PrefixWatch(gateway, "/mine/", changed=rung.set, troubled=troubles.append, silence_s=0.2)
    watch.start()
    gateway._token = "no token of etcd"
    other = open_gateway(guarded.endpoint, access=user(certified))
    put(other, "/mine/early")
    outlive(other, other._token)
    put(other, "/mine/late")
    while (state := watch.state()) is None or "/mine/late" not in state.keys:
        assert rung.wait(PATIENCE_S), troubles
        rung.clear()
    watch.close()
    assert [str(error) for error in troubles] == []


def test_a_certificate_is_no_user(guarded: EtcdMember, certified: EtcdAccess, open_gateway: Opener) -> None:
    with pytest.raises(EtcdRefused, match="permission denied") as error:
        read(open_gateway(guarded.endpoint, access=certified), "/mine/")
    assert "a user with" in error.value.hint


def test_keys_that_the_user_may_not_touch_are_refused_with_what_to_do(
    guarded: EtcdMember, certified: EtcdAccess, open_gateway: Opener
) -> None:
    gateway = open_gateway(guarded.endpoint, access=user(certified))
    with pytest.raises(EtcdRefused, match="permission denied") as error:
        read(gateway, "/theirs/")
    assert "grant-permission" in error.value.hint


def test_a_watch_that_is_not_allowed_is_trouble(
    guarded: EtcdMember, certified: EtcdAccess, open_gateway: Opener
) -> None:
    gateway = open_gateway(guarded.endpoint, access=user(certified))
    troubles: list[Exception] = []
    told = threading.Event()

    def troubled(error: Exception) -> None:
        troubles.append(error)
        told.set()

    watch = PrefixWatch(gateway, "/theirs/", changed=lambda: None, troubled=troubled)
    watch.start()
    assert told.wait(PATIENCE_S)
    watch.close()
    assert isinstance(troubles[0], EtcdRefused)


@pytest.mark.parametrize(("name", "word"), [("run", "wrong"), ("nobody", "secret"), ("run", "")])
def test_a_wrong_user_is_refused_at_once(
    guarded: EtcdMember, certified: EtcdAccess, open_gateway: Opener, name: str, word: str
) -> None:
    gateway = open_gateway(guarded.endpoint, access=with_password(certified, name, word))
    with pytest.raises(EtcdRefused) as error:
        read(gateway, "/mine/", within_s=PATIENCE_S)
    assert error.value.hint.startswith("--rdzv-conf=username=NAME,password_file=FILE")


def test_a_user_where_etcd_has_none_is_refused_with_what_to_do(
    member: EtcdMember, certified: EtcdAccess, open_gateway: Opener
) -> None:
    gateway = open_gateway(member.endpoint, access=replace(user(certified), tls=False))
    with pytest.raises(EtcdRefused, match="authentication is not enabled") as error:
        read(gateway, "/mine/", within_s=PATIENCE_S)
    assert "leave username and password_file out" in error.value.hint


def test_a_client_certificate_with_a_name_is_refused_with_what_to_do(
    guarded: EtcdMember, authority: Authority, certified: EtcdAccess, open_gateway: Opener
) -> None:
    cert, key = authority.issue("named", "/O=faultrun/CN=node0")
    gateway = open_gateway(guarded.endpoint, access=replace(user(certified), cert_file=cert, key_file=key))
    with pytest.raises(EtcdRefused, match="CommonName of client") as error:
        read(gateway, "/mine/", within_s=PATIENCE_S)
    assert error.value.hint == "issue client certificates without a CN: openssl req -subj /O=faultrun ..."


def test_what_is_wrong_with_tls_is_said_and_for_plain_http_what_to_type(
    guarded: EtcdMember,
    member: EtcdMember,
    authority: Authority,
    certified: EtcdAccess,
    tmp_path: Path,
    open_gateway: Opener,
) -> None:
    stranger = Authority(tmp_path)
    unknown_cert, unknown_key = stranger.issue("client", "/O=faultrun")

    def error(access: EtcdAccess | None, at: EtcdMember = guarded) -> EtcdError:
        gateway = open_gateway(at.endpoint, access=access)
        with pytest.raises((EtcdSilent, EtcdRefused)) as caught:
            read(gateway, "/mine/", within_s=3.0)
        return caught.value

    with ThreadPoolExecutor() as at_once:
        strange = at_once.submit(error, replace(certified, ca_file=str(stranger.certificate("ca"))))
        wrong = [
            at_once.submit(error, replace(certified, cert_file="", key_file="")),
            at_once.submit(error, replace(certified, cert_file=unknown_cert, key_file=unknown_key)),
            at_once.submit(error, certified, member),
        ]
        plain = at_once.submit(error, None)
    assert "its certificate is not trusted" in strange.result().because
    assert all("TLS" in one.result().because for one in wrong), wrong
    assert "https://" in plain.result().hint
