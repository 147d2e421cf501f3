"""A listener that takes connections and says nothing, or what it was told to."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Listener:
    """Answers one request a connection: ``answers`` in turn, then the last for ever; None is silence."""

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = list(answers) or [None]
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._kept: list[socket.socket] = []
        self.heard = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        for sock in (self._server, *self._kept):
            sock.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._server.accept()
                self._kept.append(sock)
                while b"\r\n\r\n" not in (request := sock.recv(1 << 16)) and request:
                    pass
                self.heard += bool(request)
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if answer is not None:
                    sock.sendall(answer)
                    sock.close()


@contextlib.contextmanager
def listening(*answers: bytes | None) -> Iterator[Listener]:
    """``answers`` are whole HTTP answers."""
    listener = Listener(*answers)
    try:
        yield listener
    finally:
        listener.close()


def http_answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
