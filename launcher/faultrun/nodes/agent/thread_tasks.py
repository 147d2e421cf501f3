"""What a member process waits for, in threads: its own loop never does."""

import os
import threading
from collections import deque
from collections.abc import Callable

Answer = Callable[[], object]
"""Called in the loop with what came of a task."""


class ThreadTasks:
    """At most one of a name at a time. What they bring is called by the loop that watches ``fd``."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._brought: deque[Answer] = deque()
        self._busy: set[str] = set()
        self._bug: BaseException | None = None

    def send(self, name: str, work: Callable[[], Answer]) -> bool:
        """Do ``work`` in a thread, then its answer in the loop; False while one of that name is under way."""
        if name in self._busy:
            return False
        self._busy.add(name)

        def run() -> None:
            try:
                answer = work()
            except BaseException as bug:  # noqa: BLE001  carried to the loop, which re-raises it
                self._bug = bug
                answer = _nothing
            self.bring(lambda: self._done(name, answer))

        try:
            threading.Thread(target=run, name=name, daemon=True).start()
        except RuntimeError:  # there are as many processes as there may be: it is done at once
            run()
        return True

    def _done(self, name: str, answer: Answer) -> object:
        self._busy.discard(name)
        return answer()

    def bring(self, answer: Answer) -> None:
        """Have ``answer`` called by the loop; from any thread."""
        self._brought.append(answer)
        os.eventfd_write(self.fd, 1)

    def answered(self) -> list[object]:
        """In the loop: call all that was brought, and return what each says. What a task raised is raised."""
        os.eventfd_read(self.fd)
        if self._bug is not None:
            raise self._bug
        said = []
        while self._brought:
            said.append(self._brought.popleft()())
        return said


def _nothing() -> None:
    """What a task brings that failed."""
