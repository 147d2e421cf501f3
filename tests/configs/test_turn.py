"""Of several runs that rewrite one file each has its turn; real files, locks and processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from faultrun.configs.turn import ConfigTurns
from faultrun.errors import ConfigError

ANOTHER = """
import sys
from pathlib import Path
from faultrun.configs.turn import ConfigTurns
turns = ConfigTurns(sys.argv[2])
turns.take([Path(sys.argv[1])], within_s=0.0, pause=lambda: None)
print("mine", flush=True)
sys.stdin.read()
"""


class Another:
    """A process in which run ``run`` has its turn, until it is killed."""

    def __init__(self, file: Path, run: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ANOTHER, str(file), run],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "mine\n"

    def killed(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "[a]*.yaml").write_text("a: 1\n")
    return tmp_path / "[a]*.yaml"


def taken(turns: ConfigTurns, file: Path, pauses: list[Another]) -> int:
    """How often ``turns`` had to wait; at each wait one of ``pauses`` is killed."""
    waits = 0

    def pause() -> None:
        nonlocal waits
        waits += 1
        pauses.pop().killed()

    turns.take([file], within_s=60.0, pause=pause)
    return waits


def test_a_run_waits_until_another_has_had_its_turn(file: Path) -> None:
    other = Another(file, "b")
    mine = ConfigTurns("a")
    assert taken(mine, file, [other]) == 1
    with pytest.raises(ConfigError) as refused:
        ConfigTurns("c").take([file], within_s=0.0, pause=lambda: None)
    assert refused.value.what == f"{file} is rewritten by another run, too"
    assert taken(mine, file, []) == 0, "it still has it"
    mine.release()
    assert taken(ConfigTurns("c"), file, []) == 0


def test_the_nodes_of_a_run_have_their_turn_together(file: Path) -> None:
    other = Another(file, "a")
    assert taken(ConfigTurns("a"), file, []) == 0
    other.killed()


def test_what_a_turn_leaves_beside_the_file_goes_with_it(file: Path) -> None:
    Another(file, "killed").killed()
    turns = ConfigTurns("a")
    taken(turns, file, [])
    turns.release()
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_where_no_lock_can_be_made_nobody_waits(tmp_path: Path) -> None:
    turns = ConfigTurns("a")
    assert taken(turns, tmp_path / "gone" / "a.yaml", []) == 0
    turns.release()
