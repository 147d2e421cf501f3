"""A real torch training with gloo over two hosts: a rank hangs while the other waits in a collective."""

from pathlib import Path

import pytest

from support.nodes.several_nodes import LONG_LEASE, job

pytestmark = [pytest.mark.slow, pytest.mark.torch]

TRAINS = """
import time
import torch
import torch.distributed as dist
from faultrun import sdk

def stuck():
    time.sleep(1)
    sdk.step(step)  # so that the limit of the other node is over first
    while True:
        signal.pause()

if os.path.exists("/sys/class/net/eth0"):
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
dist.init_process_group("gloo")
total = torch.ones(1)
sdk.start()
for step in range(20):
    if (life, rank, step) == (0, 1, 10):
        stuck()
    time.sleep(0.3 if life == 0 else 0)  # no limit is learned of steps that nobody sees one by one
    dist.all_reduce(total)
    total /= dist.get_world_size()
    sdk.step(step)
say("sum", float(total), "of", dist.get_world_size())
dist.destroy_process_group()
"""


def test_a_rank_that_hangs_is_named_on_both_hosts_and_costs_one_restart_of_both(tmp_path: Path) -> None:
    words = ("--hang_limits=step=2s..30m", LONG_LEASE)
    with job(tmp_path, "a", "b", script=TRAINS, framework="torch", words=words) as one:
        one.start("a", "b")
        assert [one.run(name).ends() for name in "ab"] == [0, 0]
        for name in "ab":
            assert "sum 1.0 of 2" in one.run(name).log(one.rank_on(name, 1), 1)
        where = {one.rank_on(name): name for name in "ab"}
        (card,) = {(one.run(name).log_dir / "incident_1.txt").read_text() for name in "ab"}
        assert card.startswith("incident 1  rank 1 of 2 hung at step 10   failed first; rank 0 stopped")
        assert f"+00:00 on {where[1]}\n" in card
        assert " in stuck; node_" in card
        assert "(state S" in card
        for asked in one.run(where[0]).events("HangElsewhere"):
            assert "waits in a collective for ranks of other nodes (1)" in asked["because"]
