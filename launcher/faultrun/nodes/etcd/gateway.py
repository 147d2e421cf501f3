"""The client of etcd's JSON gateway: one request, on whichever endpoint answers. etcd 3.4, 3.5 and 3.6.

It knows endpoints, tokens and time; keys, leases and watches are in the modules beside it. All
of them share its current endpoint: who finds it silent (``suspect``) moves all of them.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from faultrun.model.spec.nodes_spec import EtcdAccess
from faultrun.nodes.etcd.answers import EtcdRefused, EtcdReplaced, EtcdSilent, Failure, Json, hint_for
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.etcd.connection import Connection, NoAnswer, Resolver
from faultrun.nodes.etcd.endpoints import password, tls_context

WITHIN_S = 3.0
"""Patience of one request, over all endpoints that it takes."""
_ATTEMPT_S, _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 0.02, 0.25
_TOKENS_A_REQUEST, _LEFT_MOST_IDLE = 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """etcd's answer, and when the request that it answers was sent (``clock.boot_now``)."""

    result: Json
    sent_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLost:
    """The request may have been carried out, or be carried out yet: that is unknown."""

    why: str


class MessageStream:
    """What etcd tells through one request, message by message."""

    def __init__(self, messages: Iterator[Json], connection: Connection) -> None:
        self._messages, self._connection = messages, connection

    def __iter__(self) -> Iterator[Json]:
        """Wait for each message, and end with the stream. EtcdRefused, EtcdReplaced, NoAnswer."""
        return self._messages

    def cut(self) -> None:
        """End it now; from any thread."""
        self._connection.cut()


class Gateway:
    """For any number of threads. It begins with the first endpoint. ``attempt_s`` is for one of them."""

    def __init__(self, access: EtcdAccess, *, attempt_s: float = _ATTEMPT_S) -> None:
        self.endpoints = endpoints = access.endpoints
        self._access, self._attempt_s = access, attempt_s
        self._context = tls_context(access)
        self._resolver = Resolver()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.current = endpoints[0]
        """The endpoint that is asked first."""
        self._failed_at_s = dict.fromkeys(endpoints, float("-inf"))
        self._idle: dict[str, list[Connection]] = {endpoint: [] for endpoint in endpoints}
        self._streams: dict[str, set[Connection]] = {endpoint: set() for endpoint in endpoints}
        self._token = ""
        self.cluster = ""
        """The id of the etcd cluster that has answered; empty before."""

    def ask(self, path: str, body: Json, *, within_s: float = WITHIN_S) -> Answered:
        """Send what does no harm twice, until an endpoint answers. EtcdRefused, EtcdReplaced, EtcdSilent."""
        answer = self._request(path, body, boot_now() + within_s, once=False)
        assert isinstance(answer, Answered)
        return answer

    def ask_once(self, path: str, body: Json, *, within_s: float = WITHIN_S) -> Answered | AnswerLost:
        """Send once what must not be done twice. AnswerLost: it may be done. EtcdSilent: certainly not."""
        return self._request(path, body, boot_now() + within_s, once=True)

    @contextlib.contextmanager
    def stream(self, path: str, body: Json, *, silence_s: float) -> "Iterator[MessageStream]":
        """Open a stream at the current endpoint; it ends when etcd ends it, is cut, or falls silent.

        NoAnswer: the endpoint is suspected already.
        """
        endpoint = self.current
        try:
            until_s = boot_now() + self._attempt_s
            token = self._valid_token(endpoint, until_s)
            connection = Connection(endpoint, self._context, self._resolver, until_s)
        except NoAnswer:
            self.suspect(endpoint)
            raise
        try:
            if not self._enlisted(endpoint, connection):
                raise NoAnswer(f"{endpoint} is not the endpoint any more", sent=False)
            messages = connection.messages(path, body, _bearer(token), until_s, silence_s)
            yield MessageStream(self._results(endpoint, token, messages), connection)
        finally:
            with self._lock:
                self._streams[endpoint].discard(connection)
            connection.close()

    def suspect(self, endpoint: str) -> None:
        """Leave this endpoint: ask another from now on, and cut the streams that hang on it.

        A stream at a member that hangs, or is cut off from its cluster, is silent for ever, and the
        kernel answers its keepalives. Only an answer of etcd itself shows that it is alive.
        """
        with self._lock:
            self._failed_at_s[endpoint] = boot_now()
            if self.current == endpoint:
                self.current = min(self.endpoints, key=self._failed_at_s.__getitem__)
            streams = tuple(self._streams[endpoint])
            idle, self._idle[endpoint] = self._idle[endpoint], []
        for connection in streams:
            connection.cut()
        for connection in idle:
            connection.close()

    def forget_token(self) -> None:
        """Ask for a new token before the next request."""
        with self._lock:
            self._token = ""

    def close(self) -> None:
        """End every stream and every pause; every waiting request gets EtcdSilent soon."""
        self._closed.set()
        for endpoint in self.endpoints:
            self.suspect(endpoint)

    def _request(self, path: str, body: Json, until_s: float, *, once: bool) -> Answered | AnswerLost:
        pause_s, tokens, why = _FIRST_PAUSE_S, 0, ""
        while not self._closed.is_set() and boot_now() < until_s:
            endpoint, sent, blamed = self.current, False, True
            has_the_rest = pause_s > _FIRST_PAUSE_S and until_s - boot_now() < self._attempt_s
            try:
                answer, sent_at_s, token = self._exchange(endpoint, path, body, until_s)
            except NoAnswer as error:
                # Those before it took the time: that the rest was too short tells nothing of this endpoint.
                sent, blamed = error.sent, not (has_the_rest and boot_now() >= until_s)
                if not (hint_for(why) or (why and boot_now() >= until_s)):
                    why = str(error)  # not what a connection that was reset, or cut by our own deadline, adds
            else:
                if not isinstance(answer, Failure):
                    self._check_cluster(endpoint, answer)
                    return Answered(result=answer, sent_at_s=sent_at_s)
                if answer.stale_token and self._access.username and tokens < _TOKENS_A_REQUEST:
                    tokens += 1
                    self._drop_token(token)
                    continue
                if not answer.elsewhere:
                    raise EtcdRefused(answer, endpoint)
                why, sent = f"{endpoint}: {answer.message}", not answer.nothing_done
            if blamed:
                self.suspect(endpoint)
            if sent and once:
                return AnswerLost(why=why)
            self._closed.wait(min(pause_s, max(until_s - boot_now(), 0.0)))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        what = f"etcd does not answer at {', '.join(self.endpoints)}"
        hint = hint_for(why) or "etcdctl endpoint health with the same endpoints, from this machine"
        raise EtcdSilent(what, because=why or "no endpoint was reached", hint=hint)

    def _exchange(
        self, endpoint: str, path: str, body: Json, until_s: float
    ) -> tuple[Json | Failure, float, str]:
        """One attempt at one endpoint: the answer, when it was asked for, and the token that was shown."""
        until_s = min(until_s, boot_now() + self._attempt_s)
        token = self._valid_token(endpoint, until_s)
        connection = self._connection(endpoint, until_s)
        sent_at_s = boot_now()
        answer = connection.exchange(path, body, _bearer(token), until_s)
        self._keep(connection)
        return answer, sent_at_s, token

    def _connection(self, endpoint: str, until_s: float) -> Connection:
        while True:
            with self._lock:
                idle = self._idle[endpoint]
                connection = idle.pop() if idle else None
            if connection is None:
                return Connection(endpoint, self._context, self._resolver, until_s)
            if connection.fresh:
                return connection
            connection.close()

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            idle = self._idle[connection.endpoint]
            keep = connection.sock is not None and len(idle) < _LEFT_MOST_IDLE and not self._closed.is_set()
            if keep:
                idle.append(connection)
        if not keep:
            connection.close()

    def _enlisted(self, endpoint: str, connection: Connection) -> bool:
        """Have ``suspect`` find the stream; False if it has looked already."""
        with self._lock:
            good = endpoint == self.current and not self._closed.is_set()
            if good:
                self._streams[endpoint].add(connection)
            return good

    def _results(self, endpoint: str, token: str, messages: Iterator[Json | Failure]) -> Iterator[Json]:
        try:
            for message in messages:
                if not isinstance(message, Failure):
                    self._check_cluster(endpoint, message)
                    yield message
                    continue
                if message.stale_token:
                    self._drop_token(token)
                elif message.elsewhere:
                    self.suspect(endpoint)
                    return
                raise EtcdRefused(message, endpoint)
        except NoAnswer:
            self.suspect(endpoint)
            raise

    def _check_cluster(self, endpoint: str, answer: Json) -> None:
        """Another cluster's revisions are not ours: an etcd that was set up anew begins with 1 again."""
        cluster = str(answer.get("header", {}).get("cluster_id", ""))
        with self._lock:
            self.cluster = self.cluster or cluster
            known = self.cluster
        if cluster and cluster != known:
            because = f"it is cluster {cluster}, and {known} has answered before"
            hint = "endpoints of one cluster only; after etcd was set up anew, start the run again"
            raise EtcdReplaced(f"the etcd at {endpoint} is another than before", because=because, hint=hint)

    def _valid_token(self, endpoint: str, until_s: float) -> str:
        """The token of our user; empty where there is no user. Asked for if there is none."""
        if not self._access.username:
            return ""
        with self._lock:
            token = self._token
        if token:
            return token
        connection = self._connection(endpoint, until_s)
        who = {"name": self._access.username, "password": password(self._access)}
        try:
            answer = connection.exchange("auth/authenticate", who, {}, until_s)
        except NoAnswer as error:
            raise NoAnswer(str(error), sent=False) from error  # what the token is for was not
        self._keep(connection)
        if isinstance(answer, Failure):
            if answer.elsewhere:
                raise NoAnswer(f"{endpoint}: {answer.message}", sent=False)
            raise EtcdRefused(answer, endpoint)
        with self._lock:
            self._token = str(answer["token"])
            return self._token

    def _drop_token(self, token: str) -> None:
        with self._lock:
            if self._token == token:
                self._token = ""


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": token} if token else {}
