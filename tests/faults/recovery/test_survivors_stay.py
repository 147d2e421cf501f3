"""A rank dies and the others keep their processes: the real program, with real ranks and real kills."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.codes import undisturbed
from support.machine.processes import lives, wait_until
from support.places import TESTS
from support.runs import FAULTRUN, Launcher, Run

STAYS = TESTS / "faults" / "scripts" / "stays.py"
TRAIN = TESTS / "sdk" / "scripts" / "train_stay.py"


def staying(launcher: Launcher, *words: str, options: tuple[str, ...] = (), last: int = 100_000) -> Run:
    """Three ranks that can rejoin, all of which have said so."""
    own = ("--worker_num=3", "--checkpoint_dir=ck", "--backoff=10ms..20ms", *options)
    run = launcher.command(*own, sys.executable, "-u", str(STAYS), str(last), *words).trains(range(3))
    for rank in range(3):
        run.event("RankCanRejoin", rank=rank)
    return run


def pids(run: Run) -> list[int]:
    return [run.worker(rank) for rank in range(3)]


def meeting_files(run: Run) -> list[Path]:
    boots = {line["boot"] for line in run.events("RunStarted")}
    there = [*Path("/dev/shm").glob("faultrun-*"), *run.log_dir.glob("faultrun-*")]
    return [path for path in there if any(f"-{boot}-" in path.name for boot in boots)]


def rejoined(run: Run, incarnation: int) -> None:
    for rank in range(3):
        run.event("RankRejoined", rank=rank, incarnation=incarnation)


def both_are_new(run: Run, *gone: int) -> None:
    """Wait until no rank is one of the processes that are ``gone``, and all train together again."""
    wait_until(lambda: not {*gone} & {*pids(run)}, while_runs=run.pid, what="two newcomers")
    newest = run.event("PlanAdopted")["incarnation"]
    run.event("FirstStep", incarnation=newest)
    rejoined(run, newest)


IMPORTS = ("torch.distributed.fsdp", "torch.distributed.device_mesh", "torch.nn.parallel")


def ends(out: Path, world: int) -> list[str]:
    """What each rank of ``train_stay.py`` ended with, to the bit."""
    return [(out / f"final_{rank}").read_text() for rank in range(world)]


def ends_undisturbed(out: Path, world: int, *words: str) -> list[str]:
    """The same of a run without a launcher."""
    out.mkdir()
    environ = {"OUT": str(out), "CKPT": str(out / "ck")}
    undisturbed(TRAIN, *words, imports=IMPORTS, cwd=out, workers=world, environ=environ)
    return ends(out, world)


def test_survivors_keep_their_processes_through_one_death_after_the_other(launcher: Launcher) -> None:
    run = staying(launcher, "forks-1")
    first = pids(run)
    forked = launcher.folder / "forked_1"
    said = wait_until(lambda: (forked.read_text() if forked.exists() else "") or None, what="who is left")
    left = int(said)
    run.kill(1)
    rejoined(run, 1)
    assert [pid == before for pid, before in zip(pids(run), first, strict=True)] == [True, False, True]
    wait_until(lambda: not lives(left), what="the end of what the dead rank left behind")
    run.event("FirstStep", incarnation=1)
    shown = subprocess.run(
        [*FAULTRUN, "status", "--json"], cwd=launcher.folder, capture_output=True, check=True
    )
    status = json.loads(shown.stdout)
    assert status["outlook"]["text"].endswith(" in 1h, of that rank alone: the others stay")
    ranks = {rank["rank"]: rank for rank in status["ranks"]}
    assert {number: rank["pid"] for number, rank in ranks.items()} == dict(enumerate(pids(run)))
    assert all(rank["step"] >= 3 for rank in ranks.values())
    before = pids(run)
    run.kill(0, 2)
    both_are_new(run, before[0], before[2])
    assert run.worker(1) not in first
    assert not run.events("GaspRequested")
    card = run.card(1)
    assert "resume    step " in card
    assert " in the memory of ranks 0 2, which stayed, lost " in card
    assert "1 worker stayed" in run.text or "started again, " in run.text
    run.signal(15)
    assert run.ends() == 143
    assert [line["rank"] for line in run.events("WorkerStarted", incarnation=0)] == [0, 1, 2]
    assert not meeting_files(run)


def test_the_next_supervisor_reads_how_far_survivors_were_where_they_wrote_it(launcher: Launcher) -> None:
    run = staying(launcher)
    run.kill(1)
    run.event("FirstStep", incarnation=1)
    assert meeting_files(run)
    run.kill_supervisor()
    again = staying(launcher)
    lost = again.event("WorkersLost", incarnation=1)
    assert [one["rank"] for one in lost["steps"]] == [0, 1, 2]
    assert again.event("IncarnationStarted", incarnation=2)["ranks"] == [0, 1, 2]
    again.trains(range(3), incarnation=2)
    assert not meeting_files(run), "the killed supervisor could not end the file over which ranks had met"
    again.signal(15)
    assert again.ends() == 143


@pytest.mark.torch
def test_a_parked_standby_takes_the_place_and_speaks_where_its_rank_does(tmp_path: Path) -> None:
    for name in ("out", "ck"):
        (tmp_path / name).mkdir()
    own = Launcher(tmp_path)
    words = ("--framework=torch", "--worker_num=2", "--standby=2", str(TRAIN), "100000", "ddp", "gate")
    os.mkfifo(tmp_path / "out" / "gate")  # training waits, so that its standby has the processors
    run = own.command(*words, environ={"OUT": str(tmp_path / "out"), "CKPT": str(tmp_path / "ck")})
    try:
        parked = "its standby at the first step"
        wait_until(
            lambda: bool(run.events("StandbyChanged", state="parked", rank=0)), within_s=240, what=parked
        )
        assert run.log(0) == ""
        run.kill(0)
        gate = os.open(tmp_path / "out" / "gate", os.O_RDWR)
        for rank in range(2):
            run.event("RankRejoined", incarnation=1, rank=rank)
        (came,) = run.events("WorkerStarted", incarnation=1)
        assert (came["rank"], came["standby"]) == (0, True)
        assert Path(f"/proc/{came['pid']}/fd/1").readlink() == (
            run.log_dir / "incarnation_0" / "worker_0.log"
        )
        run.event("FirstStep", incarnation=1)
        run.signal(15)
        assert run.ends() == 143
        assert "1 restart" in run.text
    finally:
        assert own.close() == []
    os.close(gate)


@pytest.mark.torch
def test_one_standby_serves_whatever_rank_dies(launcher: Launcher) -> None:
    for name in ("out", "ck"):
        (launcher.folder / name).mkdir()
    environ = {"OUT": str(launcher.folder / "out"), "CKPT": str(launcher.folder / "ck")}
    words = ("--framework=torch", "--worker_num=3", "--standby=1", "--backoff=10ms..20ms", "--max_restarts=9")
    run = launcher.command(*words, str(TRAIN), "100000", "ddp", environ=environ)
    for life, rank in enumerate((2, 0, 1)):
        ready = life + 1

        def is_ready(ready: int = ready) -> bool:
            return len(run.events("StandbyChanged", state="ready")) == ready

        wait_until(is_ready, while_runs=run.pid, within_s=240, what="a standby")
        for one in range(3):
            run.event("RankCanRejoin", rank=one, incarnation=life)
        run.kill(rank)
        run.event("FirstStep", incarnation=life + 1)
        (came,) = run.events("WorkerStarted", incarnation=life + 1)
        assert (came["rank"], came["standby"]) == (rank, True)
    assert not run.events("StandbyChanged", state="parking")
    assert not run.events("StandbyChanged", state="lost")
    run.signal(15)
    assert run.ends() == 143


def trained(folder: Path, *words: str) -> Run:
    """A whole real training of torch without standbys, which ended well and left nothing behind."""
    for name in ("out", "ck"):
        (folder / name).mkdir()
    own = Launcher(folder)
    environ = {"OUT": str(folder / "out"), "CKPT": str(folder / "ck")}
    run = own.command("--framework=torch", "--standby=none", *words, environ=environ)
    try:
        assert run.ends(300) == 0, run.text
    finally:
        assert own.close() == []
    return run


@pytest.mark.torch
@pytest.mark.parametrize(("mode", "second"), [("ddp", "hang-0-16-begin"), ("fsdp", "kill-0-16-update")])
def test_a_real_training_ends_in_the_bits_of_an_undisturbed_one(
    mode: str, second: str, tmp_path: Path
) -> None:
    words = ("24", mode, "every-1")
    options = ("--worker_num=3", "--hang_limits=step=5s", "--rejoin_timeout=120s")
    run = trained(tmp_path, *options, str(TRAIN), *words, "kill-1-8-backward", second, "bad-2-20-reduced")
    assert ends(tmp_path / "out", 3) == ends_undisturbed(tmp_path / "undisturbed", 3, *words)
    assert [line["plan"]["kept"] for line in run.events("PlanAdopted")] == [[], [0, 2], [1, 2], [0, 1, 2]]
    started = [(line["incarnation"], line["rank"]) for line in run.events("WorkerStarted")]
    assert started == [(0, 0), (0, 1), (0, 2), (1, 1), (2, 0)]
    assert ", lost 0 steps" in run.card(1)
    # A shard that was killed in its update goes on from the step before, and the others with it: that step
    # is lost for those who had ended their own update when the death was seen.
    seen = max(one["step"] for one in run.events("Heartbeat", incarnation=1)[-1]["steps"])
    assert seen in (15, 16) if mode == "fsdp" else seen == 15
    assert f", lost {'1 step' if seen == 16 else '0 steps'}" in run.card(2)
    if mode == "ddp":
        stood = run.card(2)
        assert "rank 0 of 3 hung at step 15" in stood
        assert "train_stay.py" in next(line for line in stood.splitlines() if "stacks" in line)
        assert "resume    step 15 in the memory of ranks 1 2, which stayed" in stood
        assert sorted(one.name for one in (run.log_dir / "incident_2").iterdir()) == [
            f"rank_{rank}.txt" for rank in range(3)
        ]
    repaired = run.card(3)
    assert "rank 2 of 3 has bad memory at step " in repaired
    assert "persistent memory fault in 12.weight" in repaired
    assert " in the memory of all ranks: rank 2 was repaired in place, lost " in repaired
    assert "incarnation 3: 3 workers stayed, one of them repaired in place" in run.text


@pytest.mark.torch
@pytest.mark.parametrize("layout", [(), ("nested",)], ids=["flat", "nested"])
def test_a_killed_shard_is_saved_from_memory_where_all_start_again(
    layout: tuple[str, ...], tmp_path: Path
) -> None:
    words = ("12", "fsdp", *layout, "every-1")
    options = ("--worker_num=2", "--on_fault=restart", "--checkpoint_dir=ck", "--backoff=10ms..20ms")
    run = trained(tmp_path, *options, str(TRAIN), *words, "kill-1-8-backward")
    assert ends(tmp_path / "out", 2) == ends_undisturbed(tmp_path / "undisturbed", 2, *words)
    assert [line["memory"] for line in run.events("GaspSaved") if line["rank"] == 1] == [True]
    assert "ranks 0 1 saved step 7 in " in run.card(1)
    assert "rank 1 by its memory snapshot" in run.card(1)
    assert "lost 0 steps" in run.card(1)


@pytest.mark.torch
def test_shards_of_a_rejoin_that_failed_are_of_the_life_in_which_their_step_was_made(tmp_path: Path) -> None:
    """A survivor waits in the next group for a newcomer that is late, then has not heard of the death."""
    words = ("12", "fsdp", "every-1", "waits-8")
    options = ("--worker_num=2", "--rejoin_timeout=300ms", "--max_restarts=10", "--backoff=10ms..20ms")
    faults = ("kill-1-5-backward", "kill-1-8-after")
    run = trained(tmp_path, *options, "--checkpoint_dir=ck", str(TRAIN), *words, *faults)
    assert ends(tmp_path / "out", 2) == ends_undisturbed(tmp_path / "undisturbed", 2, *words[:-1])
    saved = [(line["rank"], line["step"], line["memory"]) for line in run.events("GaspSaved")]
    assert sorted(saved) == [(0, 4, False), (0, 8, False), (1, 4, True), (1, 8, True)]
    chosen = [line["point"]["global_step"] for line in run.events("RecoveryPointChosen") if line["point"]]
    assert chosen == [4, 8]
