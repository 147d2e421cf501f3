"""A rank dies: by whose hand, with which code, alone or in company; all train again."""

import pytest

from support.runs import Launcher


def test_any_rank_may_be_killed_the_first_too(launcher: Launcher) -> None:
    run = launcher.run("if life < 3: train()", "--backoff=10ms..20ms", workers=3)
    for rank in range(3):
        run.trains(range(3), incarnation=rank)
        run.kill(rank)
    assert run.ends() == 0
    for rank in range(3):
        others = " ".join(str(other) for other in range(3) if other != rank)
        who = f"rank {rank} of 3 killed by SIGKILL   failed first; ranks {others} stopped because of it"
        assert run.card(rank + 1).splitlines()[0] == f"incident {rank + 1}  {who}"
        assert f"; {2 - rank} of 3 left this hour" in run.card(rank + 1)
    assert run.events("RunFinished", incarnation=3, exit_code=0)


@pytest.mark.slow
def test_sixty_four_workers_start_and_survive_a_kill(launcher: Launcher) -> None:
    run = launcher.run("train_in_the_first_life()", workers=64).trains(range(64))
    run.kill(17)
    assert run.ends() == 0
    assert "ranks 0-16 18-63 stopped because of it" in run.card(1)
    (asked,) = run.events("GaspRequested")
    before = [line["rank"] for line in run.events("WorkerExit") if line["seq"] < asked["seq"]]
    assert before == [17], "63 are asked as soon as one has died"
