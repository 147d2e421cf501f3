"""SIGTERM heard at once, even while the main thread is stuck inside a collective."""

import os
import signal
import threading

from benchmarks.jobs.tell import Teller


def hear_sigterm(tell: Teller) -> None:
    """Tell the moment, then end with 143. Call it from the main thread, before anything slow is imported."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def wait() -> None:
        os.read(read_end, 1)
        tell("signalled")
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
