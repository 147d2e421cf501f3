"""One HTTP connection to one endpoint: every wait in it is bounded, the resolver's too."""

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from faultrun.files import readable
from faultrun.nodes.etcd.answers import Failure, Json, read_answer, read_message
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.etcd.endpoints import host_and_port

_LOST_AFTER_MS = 3000
_KERNEL = (
    (socket.TCP_NODELAY, 1),
    # A link that goes down sends nothing. These have the kernel notice: unanswered data, then an idle line.
    (socket.TCP_USER_TIMEOUT, _LOST_AFTER_MS),
    (socket.TCP_KEEPIDLE, 1),
    (socket.TCP_KEEPINTVL, 1),
    (socket.TCP_KEEPCNT, 2),
)
_SHORTEST_S = 0.01
_LEADER = {"Grpc-Metadata-hasleader": "true"}
"""A member that is cut off from its cluster answers with an error, where it would be silent for ever."""

Address = tuple[int, tuple[Any, ...]]


class NoAnswer(OSError):
    """Nothing, or nothing that can be read, came back; ``sent`` if the request may have been taken."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class Resolver:
    """Addresses of names. A name server that is slow or away holds no caller up longer than asked for."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], list[Address]] = {}
        self._asked: dict[tuple[str, int], threading.Event] = {}

    def addresses(self, endpoint: str, within_s: float) -> list[Address]:
        """Where ``endpoint`` is now, or was by the last answer; OSError if there never was one."""
        if _is_address((name := host_and_port(endpoint))[0]):
            self._known[name] = _resolved(*name)
        else:
            self._ask(name).wait(within_s)
        if name in self._known:
            return self._known[name]
        raise TimeoutError(f"the name {name[0]} has no address, or no server tells it in time")

    def _ask(self, name: tuple[str, int]) -> threading.Event:
        """Ask once at a time: a name server that is away for an hour must not cost a thread an attempt."""
        if (asked := self._asked.get(name)) is None:
            asked = self._asked[name] = threading.Event()
            thread = f"resolve {name[0]}"
            threading.Thread(target=self._look_up, args=(name,), name=thread, daemon=True).start()
        return asked

    def _look_up(self, name: tuple[str, int]) -> None:
        try:
            self._known[name] = _resolved(*name)
        except OSError:
            pass  # the last addresses, if there were any, are as good as anything
        finally:
            self._asked.pop(name).set()


class Connection(http.client.HTTPConnection):
    """Connected at once, or NoAnswer. One request at a time."""

    auto_open = 0  # it would connect anew by itself, and wait as long as the kernel likes

    def __init__(
        self, endpoint: str, context: ssl.SSLContext | None, resolver: Resolver, until_s: float
    ) -> None:
        super().__init__(*host_and_port(endpoint))
        self.endpoint = endpoint
        try:
            self.sock = _connected(resolver.addresses(endpoint, _left(until_s)), until_s)
            if context is not None:
                self.sock.settimeout(_left(until_s))
                self.sock = context.wrap_socket(self.sock, server_hostname=self.host)
        except (OSError, ValueError) as error:
            self.close()
            raise NoAnswer(f"{endpoint}: {_words(error)}", sent=False) from error
        self._wire = self.sock  # http.client forgets its own once an answer says that it is the last

    @property
    def fresh(self) -> bool:
        """Whether an idle connection can still be used: the other end has neither closed it nor spoken."""
        return self.sock is not None and not readable(0.0, self.sock.fileno())

    def exchange(self, path: str, body: Json, headers: Mapping[str, str], until_s: float) -> Json | Failure:
        """Send one request and read its whole answer."""
        response = self._begin(path, body, headers, until_s)
        text = b""
        try:
            while part := response.read(1 << 16):
                text += part
                self._patience(until_s)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error
        if response.will_close:
            self.close()
        return read_answer(response.status, text)

    def messages(
        self, path: str, body: Json, headers: Mapping[str, str], until_s: float, silence_s: float
    ) -> Iterator[Json | Failure]:
        """Send one request and read its answer message by message; a silence ends it, too."""
        response = self._begin(path, body, headers, until_s)
        try:
            self._patience(boot_now() + silence_s)
            if response.status != http.client.OK:
                yield read_answer(response.status, response.read())
                return
            while line := response.readline():
                yield read_message(json.loads(line))
        except TimeoutError:
            return
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._broken(error) from error

    def cut(self) -> None:
        """End it for its reader now; from any thread."""
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)

    def _begin(
        self, path: str, body: Json, headers: Mapping[str, str], until_s: float
    ) -> http.client.HTTPResponse:
        try:
            self._patience(until_s)
            self.request("POST", f"/v3/{path}", json.dumps(body), {**_LEADER, **headers})
            return self.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error

    def _patience(self, until_s: float) -> None:
        self._wire.settimeout(_left(until_s))

    def _broken(self, error: Exception) -> NoAnswer:
        self.close()
        return NoAnswer(f"{self.endpoint}: {_words(error)}", sent=True)


def _resolved(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(int(family), address) for family, _, _, _, address in found]


def _connected(addresses: list[Address], until_s: float) -> socket.socket:
    trouble: OSError = TimeoutError("timed out")
    for left, (family, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(max(_left(until_s) / left, _SHORTEST_S))
            sock.connect(address)
        except OSError as error:
            trouble = error
            sock.close()
            continue
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KERNEL:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        return sock
    raise trouble


def _left(until_s: float) -> float:
    """Never 0, which would mean "do not wait" to a socket, and never less."""
    return max(until_s - boot_now(), _SHORTEST_S)


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False


def _words(error: Exception) -> str:
    """What went wrong, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
