"""``--restore_configs=end``: rewritten configurations are restored, however the run ends."""

import signal

from support.places import TESTS
from support.runs import Launcher, Run

COUNT = TESTS / "faults" / "scripts" / "gasp_count.py"
CONFIG = "# ours\nmodel:\n  pre_trained: ''   # from here\n  heads: 2\n"


def stands_in_its_second_life(launcher: Launcher) -> Run:
    """Rank 1 was killed at step 5; the configuration names that step's gasp; all stand at step 8."""
    (launcher.folder / "train.yaml").write_text(CONFIG)
    run = started(launcher)
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


def started(launcher: Launcher) -> Run:
    options = ("--rewrite=train.yaml:model.pre_trained", "--restore_configs=end", "--backoff=10ms..20ms")
    return launcher.command("--worker_num=3", "--checkpoint_dir=ck", *options, str(COUNT), "1")


def text(launcher: Launcher) -> str:
    return (launcher.folder / "train.yaml").read_text()


def test_a_stopped_run_gives_the_file_back_too_and_the_next_start_sets_it_again(launcher: Launcher) -> None:
    run = stands_in_its_second_life(launcher)
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    assert text(launcher) == CONFIG
    again = started(launcher)
    assert again.ends() == 0
    assert "train.yaml is restored (--restore_configs)" in again.text
    assert again.events("ConfigRewritten", incarnation=2)[0]["after"].endswith('count-step_8.json"')
    assert text(launcher) == CONFIG


def test_what_somebody_else_changed_meanwhile_is_left_alone_and_said(launcher: Launcher) -> None:
    run = stands_in_its_second_life(launcher)
    with (launcher.folder / "train.yaml").open("a") as file:
        file.write("epochs: 9\n")
    edited = text(launcher)
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    assert text(launcher) == edited
    assert "a rewritten configuration was left as it is:" in run.text
    assert "train.yaml was changed by somebody else" in run.text
