"""What a supervisor keeps of lives that are over: nothing, however many there were."""

import json
import sys
from pathlib import Path

from support.places import TESTS
from support.runs import Launcher

COUNTS = TESTS / "faults" / "scripts" / "counts_objects.py"
EARLY, LATE = 8, 24
"""Incarnations: what is kept of the newest saves only is full by the first of them."""

SAVES_AND_FAILS = """
import json, struct
os.makedirs("ck", exist_ok=True)
step = 2 * life + 1
say(f"step {step} loss 0.5")
header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
with open(f"ck/step-{step}.part", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + struct.pack("<f", step))
os.rename(f"ck/step-{step}.part", f"ck/step-{step}.safetensors")
for name in os.listdir("ck"):
    if int(name[5:].split(".")[0]) < step - 4:
        os.unlink(f"ck/{name}")
say(f"step {step + 1} loss 0.5")
sys.exit(1)
"""


def objects(folder: Path, incarnation: int) -> dict[str, int]:
    """How many of each kind of ours, and of compiled patterns, the supervisor had then."""
    kinds = json.loads((folder / f"objects_{incarnation}.json").read_text())
    return {kind: many for kind, many in kinds.items() if kind.startswith(("faultrun.", "re.Pattern"))}


def test_a_supervisor_has_as_many_objects_after_many_restarts_as_after_a_few(launcher: Launcher) -> None:
    launcher.faultrun = (sys.executable, str(COUNTS))
    words = ("--checkpoint_dir=ck", "--backoff=1ms..2ms", "--standby=0", "--max_restarts=50")
    run = launcher.run(SAVES_AND_FAILS, *words, workers=1)
    run.event("IncarnationStarted", incarnation=LATE)
    run.signal(15)
    assert run.ends() in (1, 143)
    early, late = (objects(launcher.folder, incarnation) for incarnation in (EARLY, LATE))
    grown = {kind: many - early.get(kind, 0) for kind, many in late.items()}
    assert {kind: more for kind, more in grown.items() if more >= (LATE - EARLY) // 2} == {}
