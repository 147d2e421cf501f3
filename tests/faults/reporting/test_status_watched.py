"""``faultrun status --watch`` on two real terminals, small and large, while a rank is killed and replaced."""

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.machine.processes import let_go, wait_until
from support.machine.tmux import Tmux
from support.places import TESTS
from support.runs import FAULTRUN, Launcher, Run

COUNT = (sys.executable, str(TESTS / "faults" / "scripts" / "gasp_count.py"), "0", "held", "stays")
SIZES = {"small": (80, 24), "large": (200, 50)}

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed (Debian: tmux)")


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Tmux]:
    tmux = Tmux(tmp_path)
    yield tmux
    tmux.close()


def shown(tmux: Tmux, name: str, title: str, ranks: Sequence[tuple[str, ...]], *below: str) -> str:
    """Wait until the screen is whole, has ``title`` and says what is given of rank 0 and 1: pid, state, step

    A screen is drawn from top to bottom, and may be captured before all of it is: ``below`` must be there
    too, each a pattern, and the last row.
    """

    def there() -> str | None:
        screen = "\n".join(tmux.screen(name))
        table = [rf"^ +{rank} +{' +'.join(words)}( |$)" for rank, words in enumerate(ranks)]
        right = all(re.search(line, screen, re.MULTILINE) for line in (*table, *below))
        return screen if right and title in screen and "Ctrl-C leaves" in screen else None

    screen = wait_until(there, what=f"{title!r} and {ranks} on the {name} screen")
    columns, lines = SIZES[name]
    assert len(screen.split("\n")) <= lines
    assert max(map(len, screen.split("\n"))) <= columns
    return screen


def kept(screen: str, moment: str, name: str, folder: Path) -> str:
    artifacts = Path(os.environ.get("FAULTRUN_TEST_ARTIFACTS", folder))
    (artifacts / f"status_{moment}_{name}.txt").write_text(screen + "\n")
    return screen


def pids(run: Run) -> list[str]:
    return [str(run.worker(0)), str(run.worker(1))]


def test_the_screen_is_right_before_during_and_after_a_kill(
    launcher: Launcher, terminals: Tmux, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "let_go_0")
    run = launcher.command("--worker_num=2", "--grace=300s", "--checkpoint_dir=ck", *COUNT).trains((0, 1))
    run.event("FirstStep")
    look = [*FAULTRUN, "status", "--watch", "--interval=0.2", "--log_dir", str(run.log_dir)]
    for name, size in SIZES.items():
        terminals.open(name, size, look, {"PYTHONPATH": os.pathsep.join(sys.path)})

    zero, one = pids(run)
    for name in SIZES:
        title = "running  incarnation 0  2 of 2 ranks up"
        ranks = [(zero, "training", "5"), (one, "training", "5")]
        outlook = "restart 1 of 3 in 1h, from the newest whole checkpoint"
        screen = shown(terminals, name, title, ranks, "0 so far; 3 of 3 left in 1h", outlook)
        kept(screen, "before", name, tmp_path)

    run.kill(1)
    for name in SIZES:
        title = "draining  incarnation 0  1 of 2 ranks up"
        why = ("killed by SIGKILL",) if name == "large" else ()
        ranks = [(zero, "saving", "5"), (one, "failed", "5", *why)]
        screen = shown(terminals, name, title, ranks, "rank 1: killed by SIGKILL; 1 get 300 s to save")
        kept(screen, "during", name, tmp_path)
        assert screen.count("killed by SIGKILL") == (2 if name == "large" else 1)

    let_go(tmp_path / "let_go_0")
    run.trains((0, 1), incarnation=1)
    zero, one = pids(run)
    for name in SIZES:
        title = "running  incarnation 1  2 of 2 ranks up"
        below = (
            "1 so far; 3 of 3 left in 1h",  # refunded: it has come further
            "rank 1 of 2 killed by SIGKILL at step 5",
            "checkpoint +step 5 .* not verified",
        )
        screen = shown(terminals, name, title, [(zero, "training", "8"), (one, "training", "8")], *below)
        kept(screen, "after", name, tmp_path)

    terminals.resize("large", SIZES["small"])
    small = terminals.screen("small")[2:]
    wait_until(lambda: terminals.screen("large")[2:4] == small[:2] or None, what="the new size")
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    for name in SIZES:
        wait_until(
            lambda name=name: "ended with exit code 143" in "\n".join(terminals.screen(name)) or None,  # type: ignore[misc]
            what="its last word",
        )
