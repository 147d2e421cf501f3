"""Reports steps for ever and computes nothing: what is left of a restart when the job weighs nothing.

``--torch`` trains a network of one layer over gloo instead.
"""

import sys
import threading
from collections.abc import Callable

from faultrun import sdk


def main() -> None:
    update = _torch() if "--torch" in sys.argv else lambda: None
    sdk.start()
    pause = threading.Event()
    step = 0
    while True:
        update()
        step += 1
        sdk.step(step)
        pause.wait(0.02)


def _torch() -> Callable[[], None]:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def update() -> None:
        optimizer.zero_grad()
        net(torch.ones(4, 8)).sum().backward()
        optimizer.step()

    return update


if __name__ == "__main__":
    main()
