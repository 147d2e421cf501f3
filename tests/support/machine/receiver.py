"""A server on this machine that keeps what it is sent, and answers when and as it is told."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.machine.processes import PATIENCE_S


@dataclass(slots=True)
class Receiver:
    """``bodies`` holds each POST as ``(path, body)``; no answer comes before ``answers`` is set."""

    address: str = ""
    answers: threading.Event = field(default_factory=threading.Event)
    bodies: list[tuple[str, bytes]] = field(default_factory=list)

    def sent_to(self, path: str) -> list[bytes]:
        """What was sent to ``path``, oldest first."""
        return [body for where, body in self.bodies if where == path]


@contextmanager
def receiving(*, at_once: bool = True) -> Iterator[Receiver]:
    """A receiver that listens; with ``at_once`` it answers at once."""
    receiver = Receiver()
    if at_once:
        receiver.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.bodies.append((self.path, body))
            receiver.answers.wait(PATIENCE_S * 3)
            self.send_response(204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    receiver.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        receiver.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()
