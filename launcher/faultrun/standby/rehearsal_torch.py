"""torch, rehearsed on the processor: imports, first updates, a process group of one, a checkpoint."""

import io
import sys
import warnings
from typing import Any

from .openmp import one_thread
from .package_files import Identity, identity


def make() -> "TorchRehearsal":
    """The rehearsal of torch."""
    return TorchRehearsal()


class TorchRehearsal:
    """See ``Rehearsal``. Never touches an accelerator: everything happens on the processor, in tiny."""

    name = "torch"
    threads = 0
    frozen = False

    def __init__(self) -> None:
        self._files: Identity | None = None

    def load(self) -> None:
        """See ``Rehearsal``."""
        import torch
        import torch.distributed
        import torch.nn.parallel
        import torch.optim

        # Its first optimizer imports torch._dynamo: half of a cold start, hidden in a constructor.
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        self._files = identity(torch)

    def rehearse(self) -> str:
        """See ``Rehearsal``."""
        import torch

        generator = torch.get_rng_state()
        try:
            with one_thread(), warnings.catch_warnings():
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

    def changed(self) -> str:
        """See ``Rehearsal``."""
        import torch

        return "" if identity(torch) == self._files else "torch was changed on the disk"

    def reseed(self) -> None:
        """See ``Rehearsal``: torch's own generator begins with a constant, numpy's does not."""
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed()
