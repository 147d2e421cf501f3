"""Whole runs over several hosts with a real etcd: real supervisors, real ranks, and what befalls them."""

import signal
from pathlib import Path

import pytest

from faultrun.nodes.etcd.own_server import find_etcd
from support.machine.processes import lives, wait_until
from support.nodes.several_nodes import LEASE_S, LONG_LEASE, STORE, Job, job
from support.runs import Run

pytestmark = pytest.mark.slow

TRAINS = "train()\n"
ENDS_IN_THE_SECOND_LIFE = "train_in_the_first_life()\n"


def seated(one: Job, *names: str) -> list[str]:
    """The two of these hosts that got a seat in the first life, once they train."""

    def with_rank() -> list[str] | None:
        found = [name for name in names if one.run(name).events("IncarnationStarted")]
        return found if len(found) == 2 else None

    members = wait_until(with_rank, what="two hosts with a rank")
    one.trains(*members)
    return members


def one_card(one: Job, *names: str) -> str:
    """The card of the first incident, which is the same text on all of these hosts."""
    (text,) = {(one.run(name).log_dir / "incident_1.txt").read_text() for name in names}
    return text


def fenced(run: Run) -> str:
    """The cause that a node tells which ended its own ranks; later it has the card of the others."""
    wait_until(
        lambda: "\n  cause " in run.text.partition("was fenced")[2], while_runs=run.pid, what="its cause"
    )
    told = run.text.partition("was fenced")[2]
    return told.partition("\n  cause ")[2].splitlines()[0].strip()


def test_all_start_together_and_end_with_one_code(tmp_path: Path) -> None:
    script = "say(os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'])\n"
    with job(tmp_path, "a", "b", script=script, words=(LONG_LEASE,)) as one:
        one.start("a", "b")
        assert [one.run(name).ends() for name in "ab"] == [0, 0]
        assert len({one.run(name).log(one.rank_on(name)) for name in "ab"}) == 1
        assert {one.rank_on(name) for name in "ab"} == {0, 1}


def test_the_first_node_serves_etcd_until_all_know_the_end(tmp_path: Path) -> None:
    assert find_etcd()
    with job(tmp_path, "a", "b", script=ENDS_IN_THE_SECOND_LIFE, served=True, words=(LONG_LEASE,)) as one:
        one.start("b", "a")
        one.trains("a", "b")
        one.run("b").kill(one.rank_on("b"))
        assert [one.run(name).ends() for name in "ab"] == [0, 0]
        wait_until(lambda: not one.host("a").pids, what="the end of etcd and of all helpers")


@pytest.mark.parametrize("dies_on", ["a", "b"])
def test_a_rank_that_dies_anywhere_has_all_drain_and_restart(tmp_path: Path, dies_on: str) -> None:
    with job(tmp_path, "a", "b", script=ENDS_IN_THE_SECOND_LIFE, words=(LONG_LEASE,)) as one:
        one.start("a", "b")
        one.trains("a", "b")
        one.run(dies_on).kill(one.rank_on(dies_on))
        assert [one.run(name).ends() for name in "ab"] == [0, 0]
        (other,) = {"a", "b"} - {dies_on}
        assert one.run(other).events("GaspRequested", incarnation=0)
        for name in "ab":
            assert [line["incarnation"] for line in one.run(name).events("IncarnationStarted")] == [0, 1]
        rank = one.rank_on(dies_on)
        card = one_card(one, "a", "b")
        assert card.startswith(
            f"incident 1  rank {rank} of 2 killed by SIGKILL   failed first; rank {1 - rank} stop"
        )
        assert f"+00:00 on {dies_on}\n" in card


@pytest.mark.parametrize("coordinates", [True, False])
def test_the_place_of_a_host_that_dies_goes_to_a_spare(tmp_path: Path, coordinates: bool) -> None:
    with job(tmp_path, "a", "b", "c", script=ENDS_IN_THE_SECOND_LIFE) as one:
        one.start("a", "b", "c")
        members = seated(one, "a", "b", "c")
        (spare,) = {"a", "b", "c"} - set(members)
        wait_until(lambda: "spare of run job42" in one.run(spare).text, what="a spare that knows the plan")
        ranks = {name: one.rank_on(name) for name in members}
        dead = next(name for name in members if (ranks[name] == 0) == coordinates)
        one.host(dead).kill()
        others = [name for name in "abc" if name != dead]
        assert [one.run(name).ends() for name in others] == [0, 0]
        assert one.rank_on(spare, incarnation=1) == ranks[dead]
        assert all("every rank finished; exit code 0, 1 restart\n" in one.run(name).text for name in others)
        rank, (other,) = ranks[dead], set(members) - {dead}
        names = " ".join(sorted(members, key=ranks.__getitem__))
        told = [one.run(other).text, one.run(spare).text]
        assert f"spare of run job42: nodes {names} train; takes the place of a lost one\n" in told[1]
        assert (
            f"node {dead} was lost: it ended, or etcd heard nothing of it for {LEASE_S} s; rank {rank}\n"
            in told[0]
        )
        assert f"node {spare} takes the place of node {dead}: rank {rank}\n" in told[0]
        assert f"takes the place of node {dead}: rank {rank}\n" in told[1]
        assert all("incarnation 1: 1 worker running, port" in text for text in told), told[1]
        card = one_card(one, other, spare)
        assert card.startswith(
            f"incident 1  node {dead} was lost   rank {rank} died with it; rank {1 - rank} stop"
        )
        assert f"place     node {spare} takes the place of node {dead}: rank {rank}\n" in card


def test_ranks_of_a_frozen_supervisor_are_dead_before_anybody_takes_their_place(tmp_path: Path) -> None:
    with job(tmp_path, "a", "b", "c", script=TRAINS) as one:
        one.trains_with_a_spare("a", "b", spare="c")
        rank = one.rank_on("b")
        pid = one.run("b").worker(rank)
        one.run("b").signal(signal.SIGSTOP)
        one.run("c").event("WorkerStarted", incarnation=1, rank=rank)
        assert not lives(pid)
        one.run("b").signal(signal.SIGCONT)
        one.run("b").event("MembershipLost")
        one.trains("a", "c", incarnation=1)
        assert fenced(one.run("b")).startswith("its supervisor stood still for ")


def test_a_node_that_is_cut_off_kills_its_ranks_in_time_and_comes_back_as_a_spare(tmp_path: Path) -> None:
    with job(tmp_path, "a", "b", "c", script=TRAINS) as one:
        one.trains_with_a_spare("a", "b", spare="c")
        rank = one.rank_on("b")
        pid = one.run("b").worker(rank)
        one.network.cut(one.host("b"))
        one.run("c").event("WorkerStarted", incarnation=1, rank=rank)
        assert not lives(pid)
        one.run("b").event("MembershipLost")
        one.trains("a", "c", incarnation=1)
        assert fenced(one.run("b")).startswith("etcd has not answered this node for ")
        one.network.heal()
        one.host("c").kill()
        assert one.run("b").event("WorkerStarted", incarnation=2)["rank"] == rank
        one.trains("a", "b", incarnation=2)


def test_etcd_that_is_away_ends_no_rank_and_one_that_dies_meanwhile_is_told_at_once(tmp_path: Path) -> None:
    with job(tmp_path, "a", "b", script=ENDS_IN_THE_SECOND_LIFE, only_etcd=True) as one:
        one.start("a", "b")
        one.trains("a", "b")
        one.host(STORE).freeze()
        for name in "ab":
            one.run(name).event("AgreementSilent")
        one.run("a").kill(one.rank_on("a"))
        one.run("b").event("GaspRequested", incarnation=0)
        assert not one.run("b").events("MembershipLost")
        one.host(STORE).thaw()
        assert [one.run(name).ends() for name in "ab"] == [0, 0]


def test_a_supervisor_that_is_killed_comes_back_into_the_same_run(tmp_path: Path) -> None:
    with job(tmp_path, "a", "b", script=ENDS_IN_THE_SECOND_LIFE) as one:
        one.start("a", "b")
        one.trains("a", "b")
        one.run("b").kill_supervisor()
        one.start("b")
        assert [one.run(name).ends() for name in "ab"] == [0, 0]
        assert one.run("b").events("IncarnationStarted")[-1]["incarnation"] == 1


def test_a_stop_to_all_ends_the_run_everywhere_with_one_code(tmp_path: Path) -> None:
    with job(tmp_path, "a", "b", script=TRAINS, words=(LONG_LEASE,)) as one:
        one.start("a", "b")
        one.trains("a", "b")
        for name in "ab":
            one.run(name).signal(signal.SIGTERM)
        assert [one.run(name).ends() for name in "ab"] == [143, 143]
