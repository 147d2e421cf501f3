"""A DistributedDataParallel training with the SDK in which one rank stands still, or makes a mistake."""

import argparse
import importlib
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from benchmarks.jobs import options as jobs_options
from benchmarks.jobs.pause_deed import Deed, add_options
from benchmarks.jobs.tell import BORN_S, Teller, rank

tell = Teller()
tell("running", at_s=BORN_S)

import torch  # noqa: E402  the note above must not wait for it
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from faultrun import sdk  # noqa: E402

FEATURES, CLASSES, BATCH = 64, 10, 32
LABELS = dict.fromkeys(range(CLASSES))


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.collective_timeout))
    tell("met")
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    guard = sdk.torch.protect(model, optimizer, directory=options.checkpoint_dir)
    guard.resume()
    deed = Deed(options, tell)
    beat = heartbeat()
    while guard.global_step < options.steps:
        step = guard.global_step + 1
        deed.before(step)
        if rank() == 1 and step >= options.mistake_from:
            tell("failing", step)
            print(LABELS[CLASSES + time.time_ns()])  # another key in each life
        time.sleep(options.step_s)
        optimizer.zero_grad()
        outputs, labels = model(torch.randn(BATCH, FEATURES)), torch.arange(BATCH) % CLASSES
        nn.functional.cross_entropy(outputs, labels).backward()
        optimizer.step()
        guard.step()
        tell("step", step)
        beat()
    tell("final")
    os._exit(0)  # gloo's threads may abort an interpreter that is being torn down


def heartbeat() -> Callable[[], object]:
    """What ft_launcher wants to hear after each step; the others want nothing."""
    if "FT_RANK_MONITOR_IPC_SOCKET" not in os.environ:
        return lambda: None
    fault_tolerance = importlib.import_module("nvidia_resiliency_ext.fault_tolerance")
    client = fault_tolerance.RankMonitorClient()
    client.init_workload_monitoring()
    beat: Callable[[], object] = client.send_heartbeat
    return beat


def read_options() -> argparse.Namespace:
    parser = jobs_options.options(
        steps=90, step_s=0.05, collective_timeout=1800.0, checkpoint_dir=Path("checkpoints")
    )
    add_options(parser)
    parser.add_argument("--mistake_from", type=int, default=1 << 30, help="this step, in every life")
    return parser.parse_args()


if __name__ == "__main__":
    main()
