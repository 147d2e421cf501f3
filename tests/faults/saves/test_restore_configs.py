"""Rewritten configurations are restored when a run has ended, and stay while it may go on."""

import shutil
import signal

from support.places import TESTS
from support.runs import Launcher, Run

COUNT = TESTS / "faults" / "scripts" / "gasp_count.py"
CONFIG = "# ours\nmodel:\n  pre_trained: ''   # from here\n  heads: 2\n"


def stands_in_its_second_life(launcher: Launcher, *more: str) -> Run:
    """Rank 1 was killed at step 5; the configuration names that step's gasp; all stand at step 8."""
    (launcher.folder / "train.yaml").write_text(CONFIG)
    run = started(launcher, *more)
    run.trains(range(3)).kill(1)
    run.trains(range(3), incarnation=1)
    changed = [
        (old, new)
        for old, new in zip(CONFIG.splitlines(), text(launcher).splitlines(), strict=True)
        if old != new
    ]
    ((_, now),) = changed
    assert "count-step_5.json" in now
    assert now.endswith("# from here")
    return run


def started(launcher: Launcher, *more: str) -> Run:
    options = ("--rewrite=train.yaml:model.pre_trained", *more, "--backoff=10ms..20ms")
    return launcher.command("--worker_num=3", "--checkpoint_dir=ck", *options, str(COUNT), "1")


def text(launcher: Launcher) -> str:
    return (launcher.folder / "train.yaml").read_text()


def test_at_the_end_a_rewritten_file_is_as_it_was(launcher: Launcher) -> None:
    run = stands_in_its_second_life(launcher)
    run.kill(0)
    assert run.ends() == 0
    assert text(launcher) == CONFIG
    assert "train.yaml is restored (--restore_configs)" in run.text


def test_with_never_the_file_stays_as_it_is(launcher: Launcher) -> None:
    run = stands_in_its_second_life(launcher, "--restore_configs=never")
    run.kill(0)
    assert run.ends() == 0
    assert "count-step_8.json" in text(launcher)


def test_a_stopped_run_keeps_the_file_and_goes_on_from_it(launcher: Launcher) -> None:
    run = stands_in_its_second_life(launcher)
    rewritten = text(launcher)
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    assert text(launcher) == rewritten
    again = started(launcher)
    assert again.ends() == 0
    assert "train.yaml is restored (--restore_configs)" in again.text
    assert again.events("ConfigRewritten", incarnation=2)[0]["after"].endswith('count-step_8.json"')
    assert text(launcher) == CONFIG


def test_what_somebody_else_changed_meanwhile_stays_and_only_our_value_goes(launcher: Launcher) -> None:
    run = stands_in_its_second_life(launcher)
    with (launcher.folder / "train.yaml").open("a") as file:
        file.write("epochs: 9\n")
    run.kill(0)
    assert run.ends() == 0
    assert text(launcher) == CONFIG + "epochs: 9\n"


def test_the_next_training_begins_without_the_path_of_a_run_whose_log_dir_is_lost(launcher: Launcher) -> None:
    run = stands_in_its_second_life(launcher)
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    assert text(launcher) != CONFIG
    shutil.rmtree(run.log_dir)
    other = started(launcher, "--resume=never")
    other.trains(range(3)).signal(signal.SIGTERM)
    assert other.ends() == 143
    assert "train.yaml named the recovery point of another run; it is as it was before that" in other.text
    assert text(launcher) == CONFIG
