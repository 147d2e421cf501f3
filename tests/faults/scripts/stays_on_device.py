"""Training whose survivors stay, on an emulated device of 1000 MiB for each rank, of which it holds some.

The words: how many MiB a rank holds, and how many more it holds in each step once ``grow`` is in the folder.
"""

import os
import sys
import time
from pathlib import Path

import torch

from faultrun import sdk

sys.path.insert(0, str(Path(__file__).parents[2]))
from support.emulated_memory import MIB, install

HOLDS, GROWS = map(int, sys.argv[1:])
RANK = int(os.environ["RANK"])


def main() -> None:
    torch.set_num_threads(1)
    memory = install(Path(f"device_{RANK}"), 1000 * MIB, 10 * MIB)
    sdk.torch.init_process_group("gloo")
    torch.manual_seed(1)  # ranks that stay for one another have the same weights
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    memory.reserve(HOLDS * MIB)
    guard = sdk.torch.protect(net, optimizer, directory="ckpt")
    guard.resume()
    more = 0
    for _ in guard.steps(10**6):
        with guard.attempt():
            net(torch.ones(2, 4)).sum().backward()
            for parameter in net.parameters():
                torch.distributed.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
        if Path("grow").exists() and HOLDS + more + GROWS <= 960:
            more += GROWS
            memory.reserve((HOLDS + more) * MIB)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
