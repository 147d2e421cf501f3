"""What people are told at the first save: what would be handed over, or why nothing would be."""

import io
import signal
from functools import cache

import pytest

from faultrun.cli.status.gather import gather
from faultrun.observe.status.ranks import Pace
from faultrun.observe.status.words import facts
from support.runs import Launcher, Run

TRAINS = """
say("step 1 loss 0.5")
say("step 2 loss 0.4")
for name in NAMES:
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "wb") as file:
        file.write(bytes.fromhex("CONTENT"))
for step in range(3, 6):
    say(f"step {step} loss 0.3")
train()
"""


@cache
def weights() -> str:
    """A file of torch.save that tells no step, in hexadecimal digits."""
    import torch

    written = io.BytesIO()
    torch.save({"w": torch.zeros(3)}, written)
    return written.getvalue().hex()


def told(launcher: Launcher, names: list[str], *options: str) -> tuple[str, Run]:
    """The line of the console."""
    code = TRAINS.replace("NAMES", repr(names)).replace("CONTENT", weights())
    run = launcher.run(code, *options)
    run.event("FirstSaveTold", incarnation=0)
    shown = dict(facts(gather(run.log_dir, Pace())))
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    assert shown["first save"] in run.text
    return next(line for line in run.text.splitlines() if "first save: " in line), run


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["ckpt/step_2/model.pt", "ckpt/step_2/optimizer.pt"], "ckpt/step_2 (with model.pt, optimizer.pt)"),
        (["ckpt/G_2.pth", "ckpt/D_2.pth"], "ckpt/G_2.pth (with D_2.pth) would be handed over"),
    ],
)
def test_what_would_be_handed_over_is_told_with_what_belongs_to_it(
    launcher: Launcher, names: list[str], said: str
) -> None:
    line, run = told(launcher, names, "--checkpoint_dir=ckpt", "--resume_arg=--resume={checkpoint}")
    assert said in line
    assert "as --resume=ckpt/" in line
    assert said in run.events("FirstSaveTold")[0]["words"]


def test_that_nobody_can_tell_which_file_is_loaded_is_told_with_the_option(launcher: Launcher) -> None:
    names = [f"ckpt/{part}_2.pt" for part in ("first", "second", "third")]
    line, _ = told(launcher, names, "--checkpoint_dir=ckpt")
    assert "that is a guess among 3 files that the script saves: --checkpoint_pattern=" in line


@pytest.mark.parametrize("options", [("--checkpoint_dir=logs",), ()])
def test_a_save_where_nobody_looks_is_told_with_the_folder(
    launcher: Launcher, options: tuple[str, ...]
) -> None:
    line, _ = told(launcher, ["out/step_2/model.pt"], *options)
    assert "out/step_2/model.pt lies where faultrun does not look" in line
    assert "--checkpoint_dir=out has it checked" in line


EPOCHS = """
import time
for batch in range(1, 26) if life == 0 else ():
    say("LINE".format(epoch=1 + batch // 20, batch=batch % 20))
    if batch % 10 == 0 and rank == 0:
        with open("ckpt/model.part", "wb") as file:
            file.write(bytes.fromhex("CONTENT"))
        os.rename("ckpt/model.part", "ckpt/model.pt")
if life == 0:
    open(f"trained_{rank}", "w").close()
    while rank == 0 or not os.path.exists("trained_0"):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    "line",
    [
        "Train Epoch: {epoch} [{batch}/20 (5%)]\tLoss: 0.5",
        "| epoch {epoch} | {batch}/20 batches | loss 0.5",
        "{batch}/20 [==>....] - 1s - loss: 0.5",
    ],
)
def test_a_save_counts_although_steps_begin_anew_in_epochs_of_unknown_length(
    launcher: Launcher, line: str
) -> None:
    (launcher.folder / "ckpt").mkdir()
    code = EPOCHS.replace("LINE", line.replace("\t", "\\t")).replace("CONTENT", weights())
    run = launcher.run(code, "--checkpoint_dir=ckpt", "--backoff=1ms..1ms", "--max_restarts=1")
    assert run.ends() == 0
    (point,) = [one["point"] for one in run.events("RecoveryPointChosen") if one["incarnation"] == 0]
    assert point["path"].endswith("/ckpt/model.pt")
