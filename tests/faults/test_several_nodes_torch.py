"""A real torch training with gloo over two hosts: a rank dies in a collective, all begin again together."""

from pathlib import Path

import pytest

from support.several_nodes import job

pytestmark = [pytest.mark.slow, pytest.mark.torch]

TRAINS = """
import torch
import torch.distributed as dist

if os.path.exists("/sys/class/net/eth0"):
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
dist.init_process_group("gloo")
total = torch.ones(1)
for step in range(20 if life else 10_000_000):
    dist.all_reduce(total)
    total /= dist.get_world_size()
    if step == 5:
        say("ready")
say("sum", float(total), "of", dist.get_world_size())
dist.destroy_process_group()
"""


def test_a_rank_that_is_killed_in_a_collective_costs_one_restart_of_both_hosts(tmp_path: Path) -> None:
    with job(tmp_path, "a", "b", script=TRAINS, framework="torch") as one:
        one.start("a", "b")
        one.trains("a", "b")
        one.run("b").kill(one.rank_on("b"))
        assert [one.run(name).ends() for name in "ab"] == [0, 0]
        for name in "ab":
            assert "sum 1.0 of 2" in one.run(name).log(one.rank_on(name, 1), 1)
