"""A worker's voice: one line for each thing that happened, written before anything else happens.

Imported by programs that start with ``python -S`` and must be small: the standard library only.
"""

import os
import signal
import threading
import time

BORN_S = time.monotonic()
"""When this process came to run Python code of ours."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def rank() -> int:
    """The rank that any launcher gives; -1 for MindSpore's scheduler, the same script under msrun."""
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        return -1
    return int(os.environ.get("RANK") or os.environ.get("RANK_ID") or 0)


def life() -> int:
    """How often the worker group was started before: by the launcher, and by whoever starts the launcher."""
    return int(os.environ.get("BENCH_LIFE") or 0) + int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)


def forked_s() -> float:
    """When the kernel made this process, to a clock tick."""
    with open("/proc/self/stat", encoding="utf-8") as file:  # noqa: PTH123  pathlib costs 5 ms here
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[19]) / _TICKS_PER_S


class Teller:
    """Callable: ``tell("step", 7)``. A pipe without a reader means that nobody wants this worker any more."""

    def __init__(self) -> None:
        self._fd = os.open(os.environ["BENCH_NOTES"], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(self._fd, True)
        self._who = f"{rank()} {life()} {os.getpid()}"

    def __call__(self, what: str, value: object = "", *, at_s: float | None = None) -> None:
        """Say it, as of now or of ``at_s``. Less than a page goes into a pipe in one piece."""
        moment = time.monotonic() if at_s is None else at_s
        os.write(self._fd, f"{moment:.6f} {self._who} {what} {value}\n".encode())


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
