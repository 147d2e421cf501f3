"""A run that was given up: somebody mends something and gives the same command again."""

from support.runs import Launcher

WORKER = """
import json, struct
os.makedirs("ck", exist_ok=True)
if not os.path.exists("ck/step_7.safetensors"):
    tensor = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    head = json.dumps({"__metadata__": {"step": "7"}, "w": tensor})
    with open("ck/step_7.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head.encode() + bytes(4))
say("from", os.environ.get("FAULTRUN_RESUME_STEP") or "zero")
if not os.path.exists("mended"):
    raise ValueError("a bug")
"""
OPTIONS = ("--checkpoint_dir=ck", "--backoff=1ms..1ms")


def test_it_goes_on_from_its_checkpoint_and_only_a_training_that_ended_makes_room_for_a_new_run(
    launcher: Launcher,
) -> None:
    first = launcher.run(WORKER, *OPTIONS, workers=1)
    assert first.ends() == 93
    lives = len(first.events("IncarnationStarted"))
    again = launcher.run(WORKER, *OPTIONS, workers=1)
    assert again.ends() == 93
    assert "with a fresh budget: it had been given up (exit code 93), the same failure twice" in again.text
    assert len(again.events("IncarnationStarted")) > lives + 1, "the first failure is tried again"
    (launcher.folder / "mended").touch()
    mended = launcher.run(WORKER, *OPTIONS, workers=1)
    assert mended.ends() == 0
    assert not (mended.log_dir / "runs").exists()
    assert (mended.log_dir / "worker_0.log").read_text() == "from 7\n"
    new = launcher.run(WORKER, *OPTIONS, workers=1)
    assert new.ends() == 0
    assert len(list((new.log_dir / "runs").iterdir())) == 1
    assert (new.log_dir / "worker_0.log").read_text() == "from zero\n"
