"""A torch training that says nothing at its end, and whose processes crash while they are taken down."""

import pytest

from support.machine.installed import need
from support.runs import Launcher

need("torch")

pytestmark = [pytest.mark.torch]

TRAINS = """
import atexit
atexit.register(os.abort)  # as gloo does in one process of twelve
import torch
import torch.distributed as dist
from faultrun import sdk
torch.set_num_threads(1)
def main():
    dist.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    guard = sdk.torch.protect(net, optimizer, directory="ck")
    guard.resume()
    while guard.global_step < 12:
        net(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        guard.step()
    print("the last line")
"""


@pytest.mark.parametrize("end", ["main()", "sys.exit(main())"])
def test_a_complete_training_is_not_repeated_because_its_processes_crash_as_they_leave(
    launcher: Launcher, end: str
) -> None:
    path = launcher.folder / "train.py"
    launcher.program(TRAINS + end, path.name)
    run = launcher.command("--worker_num=2", "--standby=none", "--framework=torch", str(path))
    assert run.ends() == 0
    assert [run.log(rank).count("the last line") for rank in (0, 1)] == [1, 1]
    assert len(run.events("IncarnationStarted")) == 1
    assert [left["done"] for left in run.events("WorkerExit")] == [True, True]
    assert not run.events("HangDetected")
