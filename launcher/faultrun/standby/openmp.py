"""No OpenMP pool before the program makes one: a process that has one must not fork without an exec."""

import contextlib
import ctypes
from collections.abc import Iterator

_RUNTIMES = ("libgomp", "libiomp5", "libomp")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Have OpenMP use the calling thread alone, by its own call.

    Not ``torch.set_num_threads``, which also takes MKL's own choice of
    threads away for good.
    """
    runtimes = [ctypes.CDLL(path) for path in _loaded()]
    before = [runtime.omp_get_max_threads() for runtime in runtimes]
    for runtime in runtimes:
        runtime.omp_set_num_threads(1)
    try:
        yield
    finally:
        for runtime, threads in zip(runtimes, before, strict=True):
            runtime.omp_set_num_threads(threads)


def _loaded() -> set[str]:
    """Paths of the OpenMP runtimes in this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(None, 5)[5].rstrip() for line in maps if line.count("/")}
    return {path for path in paths if path.rpartition("/")[2].startswith(_RUNTIMES)}
