"""What etcd's JSON gateway answers, and what an error of it means. Pure.

Errors come in four shapes: ``{"code", "message", "error": TEXT}`` (one answer, etcd 3.4 and 3.5; without
``error`` in 3.6), ``{"error": {"grpc_code", "message"}}`` (streams of 3.4 and 3.5), ``{"error": {"code",
"message"}}`` (streams of 3.6), and plain text, which comes from the HTTP server in front of the gateway.
"""

import json
from dataclasses import dataclass
from typing import Any

from faultrun.errors import FaultrunError

Json = dict[str, Any]

_CANCELLED, _UNKNOWN, _INVALID, _DEADLINE, _NOT_FOUND, _DENIED, _EXHAUSTED = 1, 2, 3, 4, 5, 7, 8
_ABORTED, _INTERNAL, _UNAVAILABLE, _UNAUTHENTICATED = 10, 13, 14, 16
_ELSEWHERE = {_CANCELLED, _UNKNOWN, _DEADLINE, _EXHAUSTED, _ABORTED, _INTERNAL, _UNAVAILABLE}
_BEFORE_IT_IS_PROPOSED = ("etcdserver: no leader", "etcdserver: too many requests", "etcdserver: not capable")
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old")
_OPERATOR = "etcdctl endpoint status --cluster shows what etcd's members say of themselves"
_HINTS = (
    ("CommonName of client", "issue client certificates without a CN: openssl req -subj /O=faultrun ..."),
    ("database space exceeded", "etcdctl compact, defrag and alarm disarm; a larger --quota-backend-bytes"),
    (
        "authentication is not enabled",
        "leave username and password_file out of --rdzv-conf; or etcdctl auth enable",
    ),
    ("user name is empty", "--rdzv-conf=username=NAME,password_file=FILE as etcd asks for"),
    ("invalid user ID or password", "--rdzv-conf=username=NAME,password_file=FILE as etcd knows them"),
    ("permission denied", "a user with: etcdctl role grant-permission ROLE readwrite --prefix /faultrun/"),
    ("HTTP request to an HTTPS server", "https:// before each endpoint"),
    (
        "closed connection without response",
        "https:// before each endpoint if etcd wants TLS; etcd's log if not",
    ),
    ("TLS: ", "https:// only where etcd has TLS; a certificate for this client that etcd's CA has signed"),
    ("certificate is not trusted", "the CA that has signed etcd's certificates; a name that is in them"),
    ("Host header was unrecognized", "etcd --host-whitelist='*', or TLS"),
    ("404 page not found", "etcd 3.4 or newer, and not --enable-grpc-gateway=false"),
)


class EtcdError(FaultrunError):
    """etcd cannot be used as it is (EX_UNAVAILABLE)."""

    exit_code = 69


class EtcdSilent(EtcdError):
    """No endpoint answered in time, and nothing was done."""


class EtcdReplaced(EtcdError):
    """Another etcd answers than the one before: its revisions mean nothing here."""


class EtcdRefused(EtcdError):
    """etcd has answered no, and nothing was done."""

    def __init__(self, failure: "Failure", where: str) -> None:
        hint = hint_for(failure.message) or _OPERATOR
        super().__init__(f"etcd refuses at {where}", because=failure.message, hint=hint)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error in etcd's own words; ``code`` is that of gRPC."""

    code: int
    message: str

    @property
    def elsewhere(self) -> bool:
        """Whether another member may answer otherwise, or this one in a moment."""
        return self.code in _ELSEWHERE and "database space exceeded" not in self.message

    @property
    def stale_token(self) -> bool:
        """Whether a new token may help: tokens expire, and change with users and roles."""
        return self.code == _UNAUTHENTICATED or any(words in self.message for words in _STALE_TOKEN)

    @property
    def nothing_done(self) -> bool:
        """Whether a write that got this answer has certainly changed nothing."""
        return not self.elsewhere or self.message in _BEFORE_IT_IS_PROPOSED

    @property
    def lease_gone(self) -> bool:
        """Whether a lease that the request names has ended."""
        return self.code == _NOT_FOUND and "lease not found" in self.message


def read_answer(status: int, text: bytes) -> Json | Failure:
    """Read one whole answer. What is not JSON is a failure that quotes it."""
    try:
        answer = json.loads(text.split(b"\n", 1)[0] if text.startswith(b'{"result"') else text)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return read_message(answer)
    said = text.decode(errors="replace").strip()[:300] or f"HTTP status {status} and nothing else"
    # A proxy in front of a member, or a member that has no gateway; the next one may do better.
    return Failure(code=_INVALID if status == 400 else _UNAVAILABLE, message=said)


def read_message(message: Json) -> Json | Failure:
    """Read one answer or one message of a stream: its result, or the error in it."""
    if isinstance((error := message.get("error")), dict):
        code = error["grpc_code"] if "grpc_code" in error else error.get("code", _UNKNOWN)
        return Failure(code=int(code), message=str(error.get("message", error)))
    if error is not None or "code" in message:
        said = message.get("message") or error or message
        return Failure(code=int(message.get("code", _UNKNOWN)), message=str(said))
    result = message.get("result", message)
    return result if isinstance(result, dict) else Failure(code=_UNKNOWN, message=f"etcd answers {message}")


def watch_refused(message: Json) -> Failure:
    """Why etcd has cancelled a watch, from the message that says so."""
    why = str(message.get("cancel_reason") or "etcd has cancelled a watch and does not say why")
    return Failure(code=_DENIED, message=why)


def hint_for(words: str) -> str:
    """What a person can do about an error with these words; empty if nothing is known."""
    return next((hint for known, hint in _HINTS if known in words), "")
