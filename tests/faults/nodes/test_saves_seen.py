"""Two hosts with a disk each: what either sees of saves and loads counts for both."""

import sys
from pathlib import Path

import pytest

from support.nodes.several_nodes import LONG_LEASE, job

pytestmark = pytest.mark.slow

SCRIPT = """
import time
from faultrun import sdk
def write(name, text):
    os.makedirs("ck", exist_ok=True)
    with open(f"ck/{name}", "w") as file:
        file.write(text)
if life == 0:
    sdk.start()
    sdk.step(1)
    while not os.path.exists("go_on"):
        time.sleep(0.05)
    write("step-1.bin", "1")
    for save in range(6):
        write(f"of_{sys.argv[1 + rank]}.bin", str(save))
        time.sleep(0.2)
    train()
if life == 1:
    if "opens" in sys.argv and rank == 0:
        open(os.environ["FAULTRUN_RESUME_FROM"]).read()
    if rank == 1:
        time.sleep(2)
        sys.exit(3)
    train()
"""


@pytest.mark.parametrize("opens", [True, False])
def test_a_checkpoint_is_charged_if_any_host_has_opened_it(tmp_path: Path, opens: bool) -> None:
    program = (sys.executable, str(tmp_path / "train.py"), "x", "y", *(("opens",) if opens else ()))
    words = ("--checkpoint_dir=ck", r"--checkpoint_pattern=step-(?P<step>\d+)\.bin", LONG_LEASE)
    with job(tmp_path, "a", "b", script=SCRIPT, program=program, words=words) as one:
        one.start("a", "b")
        for name in "ab":
            one.run(name).event("FirstStep")
            (tmp_path / name / "go_on").touch()
        one.trains("a", "b")
        one.run("a").kill(one.rank_on("a"))
        before, after = (one.run("b").event("PlanAdopted", incarnation=life)["plan"] for life in (1, 2))
        assert before["point"] is not None
        assert bool(after["ledger"]["attempts"]) == opens
        assert (after["aftermath"]["incident"].get("opened") == []) != opens
        seen = {path.rpartition("/")[2] for save in before["seen"]["saves"] for path in save["files"]}
        assert {"of_x.bin", "of_y.bin"} <= seen, "by either node, and known to both"
        assert [one.run(name).ends() for name in "ab"] == [0, 0]
