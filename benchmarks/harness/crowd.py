"""Simulated supervisors by the thousand: what each of them says to etcd, and hears from it, in one process.

They speak to the JSON gateway as the supervisor's client does, one connection a watch; requests share a few
connections to each member, since thousands of processes would measure this machine and not etcd.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

_CONNECTIONS_A_MEMBER = 24
_AT_ONCE = 200
"""So many watches are opened at a time; a listening socket keeps 4,096 waiting at most."""

_AGAIN_S = 0.1
_UNAVAILABLE = 14

Json = dict[str, Any]
Endpoint = tuple[str, int]


class Crowd:
    """``size`` supervisors of one run, spread over the members of one etcd; ``watches_lost`` so far."""

    def __init__(self, endpoints: tuple[Endpoint, ...], size: int) -> None:
        self.size, self._endpoints = size, endpoints
        self._idle: list[asyncio.Queue[_Wire]] = []
        self._watches: list[_Wire] = []
        self._leases: list[str] = []
        self._follows: list[asyncio.Task[None]] = []
        self.watches_lost = 0

    async def connect(self) -> None:
        """Open the connections that requests share, and wait for a leader."""
        for endpoint in self._endpoints:
            queue: asyncio.Queue[_Wire] = asyncio.Queue()
            for _ in range(_CONNECTIONS_A_MEMBER):
                queue.put_nowait(await _Wire.opened(endpoint))
            self._idle.append(queue)
        for at in range(len(self._endpoints)):
            await self.ask(at, "kv/range", {"key": b64("/run/")})

    async def take_leases(self, ttl_s: int) -> None:
        """Each takes a lease."""
        answers = await self.each(lambda at: self.ask(at, "lease/grant", {"TTL": ttl_s}))
        self._leases = [answer["ID"] for answer in answers]

    async def keep_alive(self) -> None:
        """Each renews its lease, all in one moment."""
        answers = await self.each(lambda at: self.ask(at, "lease/keepalive", {"ID": self._leases[at]}))
        assert all(int(answer["result"]["TTL"]) > 0 for answer in answers)

    async def put(self, at: int, key: str, value: str) -> None:
        """One writes a key that ends with its lease."""
        await self.ask(at, "kv/put", {"key": b64(key), "value": b64(value), "lease": self._leases[at]})

    async def create(self, at: int, key: str, value: str) -> bool:
        """One writes a key if nobody has; whether it was the first."""
        absent = {"key": b64(key), "target": "CREATE", "create_revision": 0}
        write = {"request_put": {"key": b64(key), "value": b64(value)}}
        answer = await self.ask(at, "kv/txn", {"compare": [absent], "success": [write]})
        return bool(answer.get("succeeded"))

    async def read(self, at: int, key: str) -> int:
        """One reads a key that never changes, from whichever member; the length of its value."""
        answer = await self.ask(at, "kv/range", {"key": b64(key), "serializable": True})
        return len(base64.b64decode(answer["kvs"][0]["value"]))

    async def watch_all(self, prefix: str, heard: Callable[[int, Json], None]) -> list[asyncio.Task[None]]:
        """Each watches a prefix, and answers when its watch stands; ``heard`` is called for each event."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(at: int) -> asyncio.Task[None]:
            async with gate:
                return await self.watch(at, prefix, lambda event: heard(at, event))

        return await self.each(one)

    async def watch(self, at: int, prefix: str, heard: Callable[[Json], None]) -> asyncio.Task[None]:
        """One watches a prefix, over a connection of its own, until the returned task is cancelled.

        A member that has lost its leader ends its watches; they are opened again where they ended.
        """
        messages = await self._opened(at, prefix, revision=0)

        async def follow() -> None:
            revision, stream = 0, messages
            while True:
                try:
                    async for message in stream:
                        for event in message["result"].get("events", ()):
                            revision = int(event["kv"]["mod_revision"])
                            heard(event)
                except (OSError, EOFError, KeyError):
                    pass  # as after the answer's end
                self.watches_lost += 1
                stream = await self._opened(at, prefix, revision=revision + 1)

        task = asyncio.create_task(follow())
        self._follows.append(task)
        return task

    async def _opened(self, at: int, prefix: str, *, revision: int) -> AsyncIterator[Json]:
        """A watch that stands, from ``revision`` on, 0 for now."""
        start = prefix.encode()
        end = start[:-1] + bytes([start[-1] + 1])
        wanted = {"key": b64(prefix), "range_end": base64.b64encode(end).decode(), "start_revision": revision}
        while True:
            wire = await _Wire.opened(self._endpoint(at))
            self._watches.append(wire)
            messages = wire.messages("watch", {"create_request": wanted})
            if (await anext(messages)).get("result", {}).get("created"):
                return messages
            wire.close()
            await asyncio.sleep(_AGAIN_S)

    async def ask(self, at: int, path: str, body: Json) -> Json:
        """One asks its member, and again while that has no leader. RuntimeError if refused."""
        idle = self._idle[at % len(self._idle)]
        while True:
            wire = await idle.get()
            try:
                answer = await wire.ask(path, body)
            finally:
                idle.put_nowait(wire)
            if "code" not in answer:
                return answer
            if answer["code"] != _UNAVAILABLE:
                raise RuntimeError(answer["message"])
            await asyncio.sleep(_AGAIN_S)

    async def each(self, act: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Everybody does it; what each got."""
        return await asyncio.gather(*map(act, range(self.size)))

    def close(self) -> None:
        """Close every connection."""
        for task in self._follows:
            task.cancel()
        for wire in self._watches:
            wire.close()
        for queue in self._idle:
            while not queue.empty():
                queue.get_nowait().close()

    def _endpoint(self, at: int) -> Endpoint:
        return self._endpoints[at % len(self._endpoints)]


def b64(text: str) -> str:
    """As etcd's gateway wants keys and values."""
    return base64.b64encode(text.encode()).decode()


class _Wire:
    """One connection to one member."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def opened(cls, endpoint: Endpoint) -> "_Wire":
        return cls(*await asyncio.open_connection(*endpoint, limit=1 << 22))

    async def ask(self, path: str, body: Json) -> Json:
        """One request and its whole answer."""
        text = b"".join([part async for part in self._parts(path, body)])
        answer: Json = json.loads(text)
        return answer

    async def messages(self, path: str, body: Json) -> AsyncIterator[Json]:
        """One request, and an answer that comes line by line and never ends."""
        rest = b""
        async for part in self._parts(path, body):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                yield json.loads(line)

    async def _parts(self, path: str, body: Json) -> AsyncIterator[bytes]:
        text = json.dumps(body).encode()
        head = f"POST /v3/{path} HTTP/1.1\r\nHost: etcd\r\nGrpc-Metadata-hasleader: true\r\n"
        self._writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        answered = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if b"transfer-encoding: chunked" not in answered:
            length = int(answered.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            yield await self._reader.readexactly(length)
            return
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readuntil(b"\r\n")

    def close(self) -> None:
        self._writer.close()
