"""An etcd of three members below a run, from which one member after the other is taken."""

from pathlib import Path

import pytest
from benchmarks.harness.netns import refused

from support.machine.processes import wait_until
from support.nodes.several_nodes import Job, job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(refused()), reason=f"members need hosts of their own: {refused()}"),
]

COUNTS = """
import time
if life == 0:
    say("ready")
    for step in range(10**9):
        time.sleep(0.02)
        say(step)
"""


def steps(one: Job, name: str) -> int:
    """Steps of the first life."""
    return one.run(name).log(one.rank_on(name)).count("\n")


def both_go_on(one: Job) -> None:
    """Wait until each rank of the first life has done more steps."""
    until = {name: steps(one, name) + 10 for name in "ab"}
    wait_until(lambda: all(steps(one, name) >= until[name] for name in "ab"), what="more steps")


def test_members_that_are_lost_end_no_step_and_a_restart_waits_for_two_of_three(tmp_path: Path) -> None:
    words = ("--lease_ttl=6s",)  # an election and a crowded machine take their part of it
    members = ("e0", "e1", "e2")
    with job(tmp_path, "a", "b", script=COUNTS, words=words, members=members, only_etcd=True) as one:
        assert one.etcd is not None
        dead, *others = one.etcd.members.values()
        dead.kill()
        one.etcd.await_leader(others)
        one.start("a", "b")
        one.trains("a", "b")

        one.etcd.start_member(dead)
        leader = one.etcd.await_leader()
        leader.kill()
        rest = [member for member in one.etcd.members.values() if member is not leader]
        one.etcd.await_leader(rest)
        both_go_on(one)

        rest[0].kill()
        for name in "ab":
            one.run(name).event("AgreementSilent")
        both_go_on(one)
        one.run("a").kill(one.rank_on("a"))
        one.run("b").event("GaspRequested", incarnation=0)
        wait_until(
            lambda: all("waiting for etcd, until" in one.run(name).text for name in "ab"), what="a word of it"
        )
        one.etcd.start_member(rest[0])
        assert [one.run(name).ends() for name in "ab"] == [0, 0]
        for name in "ab":
            assert not one.run(name).events("MembershipLost")
            assert len(one.run(name).events("IncarnationStarted")) == 2
