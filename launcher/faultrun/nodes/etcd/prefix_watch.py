"""Keeps a copy of everything below a prefix, whatever becomes of members and connections.

It gives the state, not the events: states in between may be left out, so a listener must
answer for the newest one, whatever came before. No key that is there is missed.
"""

import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from faultrun.nodes.etcd import store
from faultrun.nodes.etcd.answers import EtcdRefused, Json, watch_refused
from faultrun.nodes.etcd.connection import NoAnswer
from faultrun.nodes.etcd.gateway import Gateway, MessageStream
from faultrun.nodes.etcd.restarting_thread import RestartingThread, Troubled

_SILENCE_S, _AGAIN_S = 60.0, 0.05
_TOKENS = 3


class PrefixWatch:
    """Rings ``changed`` after the first look and after every change, from a thread of its own.

    It shares the gateway's current endpoint with the keepalives: one that is not answered moves both.
    Without keepalives it looks for itself after a minute of silence.
    """

    def __init__(
        self,
        gateway: Gateway,
        prefix: str,
        *,
        changed: Callable[[], object],
        troubled: Troubled,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self._gateway, self._prefix, self._changed = gateway, prefix, changed
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._keys: dict[str, store.KeyValue] = {}
        self._revision = 0
        self._newest: store.PrefixState | None = None
        self._read_again = True
        self._cancelled = 0
        self._stream: MessageStream | None = None
        self._thread = RestartingThread(f"watch {prefix}", self._turn, troubled, self._cut)

    def state(self) -> store.PrefixState | None:
        """The newest state; None before anything was read, which is not the same as an empty one."""
        with self._lock:
            if self._newest is None and self._revision:
                keys = MappingProxyType(dict(self._keys))
                self._newest = store.PrefixState(keys=keys, revision=self._revision)
            return self._newest

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no longer."""
        self._thread.close()

    def _cut(self) -> None:
        if (stream := self._stream) is not None:
            stream.cut()

    def _turn(self) -> float:
        """Read if that is needed, then follow one stream to its end."""
        if self._read_again:
            found = store.read(self._gateway, self._prefix)
            self._check(found.revision)
            self._set(dict(found.keys), found.revision)
            self._read_again = False
        else:
            self._check(store.newest_revision(self._gateway, self._prefix))
        create = {
            **store.key_range(self._prefix),
            # The revision of the last event, not that of a message's header, which may be ahead of us.
            "start_revision": str(self._revision + 1),
        }
        try:
            with self._gateway.stream(
                "watch", {"create_request": create}, silence_s=self._silence_s
            ) as stream:
                self._stream = stream
                if not self._thread.closed:
                    self._follow(stream)
        except NoAnswer:
            return _AGAIN_S  # the next look at another endpoint tells whether that is worth a word
        except EtcdRefused as error:
            if not error.failure.stale_token:
                raise
        finally:
            self._stream = None
        return _AGAIN_S

    def _follow(self, stream: MessageStream) -> None:
        for message in stream:
            if message.get("canceled"):
                self._answer_cancelled(message)
                return
            self._cancelled = 0
            if events := message.get("events"):
                self._apply(events)

    def _answer_cancelled(self, message: Json) -> None:
        """Revisions that we have not seen were compacted away; or a token has expired, or is not enough."""
        self._read_again = True
        if "compact_revision" in message:
            return
        self._gateway.forget_token()
        self._cancelled += 1
        if self._cancelled >= _TOKENS:
            raise EtcdRefused(watch_refused(message), self._gateway.current)

    def _apply(self, events: list[dict[str, Any]]) -> None:
        with self._lock:
            for event in events:
                key, value = store.key_value(event["kv"])
                if event.get("type") == "DELETE":
                    self._keys.pop(key, None)
                else:
                    self._keys[key] = value
                self._revision = value.changed
            self._newest = None
        self._changed()

    def _set(self, keys: dict[str, store.KeyValue], revision: int) -> None:
        with self._lock:
            self._keys, self._revision, self._newest = keys, revision, None
        self._changed()

    def _check(self, revision: int) -> None:
        """An etcd that was set back is behind what we have seen, and a watch would wait for ever."""
        store.check_not_behind(self._gateway, revision, self._revision)
