"""What people see of a real run of several nodes with nothing but its etcd, and a spare that is warm."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from support.machine.processes import PATIENCE_S
from support.nodes.several_nodes import Job, job
from support.runs import FAULTRUN

pytestmark = pytest.mark.slow

TRAINS = "train()\n"


def asked(one: Job, name: str, *words: str) -> str:
    """What a verb answers on this host, with the endpoint alone."""
    assert one.etcd is not None
    output = one.folder / f"{len(list(one.folder.glob('*.answer')))}.answer"
    at = (f"--rdzv-endpoint={one.etcd.endpoints}", "--rdzv-id=job42")
    verb = one.host(name).start((*FAULTRUN, *words, *at), log=output, cwd=one.folder)
    assert verb.wait(PATIENCE_S) == 0, output.read_text()
    return output.read_text()


def test_a_spare_takes_over_with_a_standby_and_etcd_alone_tells_of_it_and_of_the_end(tmp_path: Path) -> None:
    program = (sys.executable, "-u", str(tmp_path / "train.py"))
    words = ("--standby=1", "--max_restarts=0")
    with job(tmp_path, "a", "b", "c", script=TRAINS, program=program, words=words) as one:
        one.trains_with_a_spare("a", "b", spare="c")
        standby = one.run("c").event("StandbyChanged", state="ready")
        assert standby["rank"] == 0, "the first of its ranks, before it knows which"
        rank = one.rank_on("b")
        one.host("b").kill()
        started = one.run("c").event("WorkerStarted", incarnation=1)
        assert (started["rank"], started["standby"]) == (rank, True)
        one.trains("a", "c", incarnation=1)
        card = (one.run("c").log_dir / "incident_1.txt").read_text()
        assert asked(one, "a", "incident") == card
        assert "node b was lost" in card
        one.run("c").kill(rank)
        assert [one.run(name).ends() for name in "ac"] == [137, 137]
        last = asked(one, "a", "incident")
        assert last.startswith(
            f"incident 2  rank {rank} of 2 killed by SIGKILL   failed first; rank {1 - rank} "
        )
        assert "  restart   none: restarts are turned off (--max_restarts=0)\n" in last
        status = json.loads(asked(one, "a", "status", "--json"))
        assert (status["restarts_left"], status["ended"]["exit_code"], status["phase"]) == (0, 137, "ended")
        shutil.move(tmp_path / "logs", tmp_path / "elsewhere")
        assert "node a (10." in asked(one, "a", "report", "--markdown")
