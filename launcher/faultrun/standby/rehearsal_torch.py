"""torch, rehearsed on the processor: imports, first updates, a process group of one, a checkpoint."""

import contextlib
import ctypes
import io
import warnings
from collections.abc import Iterator
from typing import Any

from .rehearsal import Rehearsal

_OPENMP_RUNTIMES = ("libgomp", "libiomp5", "libomp")


class TorchRehearsal(Rehearsal):
    """Rehearses torch on the processor alone, in tiny; it never touches an accelerator."""

    name = "torch"
    modules = ("torch", "torch.distributed", "torch.nn.parallel", "torch.optim")

    def load(self) -> None:
        """Import torch, and make an optimizer: the first one imports much more."""
        super().load()
        import torch

        # Its first optimizer imports torch._dynamo: half of a cold start, hidden in a constructor.
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)

    def rehearse(self) -> str:
        """Train a few tiny steps, alone and in a group of one; return what could not be done."""
        import torch

        generator = torch.get_rng_state()
        try:
            with _one_thread(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._train(torch)
                return self._train_in_a_group(torch)
        finally:
            torch.set_rng_state(generator)

    def _train(self, torch: Any) -> None:
        """The first optimizer, the first backward pass, the first checkpoint."""
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self._steps(torch, net)
        file = io.BytesIO()
        torch.save(net.state_dict(), file)
        file.seek(0)
        torch.load(file, weights_only=True)

    def _train_in_a_group(self, torch: Any) -> str:
        """A process group of this process alone, over a store in its memory."""
        from torch import distributed
        from torch.nn.parallel import DistributedDataParallel

        if not distributed.is_available():
            return "torch.distributed is not built in"
        try:
            distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        except (RuntimeError, ValueError) as error:
            return f"no process group: {str(error).splitlines()[0][:200]}"
        try:
            self._steps(torch, DistributedDataParallel(torch.nn.Linear(4, 4)))
        finally:
            distributed.destroy_process_group()
        return ""

    def _steps(self, torch: Any, net: Any) -> None:
        optimizers = (torch.optim.SGD(net.parameters(), lr=0.1), torch.optim.AdamW(net.parameters(), lr=0.1))
        for optimizer in optimizers:
            loss = torch.nn.functional.cross_entropy(net(torch.zeros(2, 4)), torch.tensor([0, 1]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Have OpenMP use the calling thread alone: a process that has a pool must not fork without an exec.

    By its own call, not ``torch.set_num_threads``, which also ends MKL's own choice of threads for good.
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
    return {path for path in paths if path.rpartition("/")[2].startswith(_OPENMP_RUNTIMES)}
