"""What a program imports at its top, preloaded in its standby; and imports that make it a plainer one."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultrun.model.exits import Exited
from support.machine.processes import wait_until
from support.machine.standby_stage import Stage, hears, ready, status_of

pytestmark = pytest.mark.long

TELLS = """
import json, os, sys, threading
sys.stdout.write(json.dumps({
    "early": sorted(name for name in sys.modules if name.startswith("pack_")),
    "threads": threading.active_count(),
    "sockets": [one for one in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{one}")
                and os.readlink(f"/proc/self/fd/{one}").startswith("socket")],
    "children": open(f"/proc/self/task/{os.getpid()}/children").read().split(),
    "ours": sorted(name for name in os.environ if name.startswith("FAULTRUN_STANDBY") or name == "LEFT"),
    "path": os.environ["PYTHONPATH"],
}) + "\\n")
"""
GOOD = """
from os import environ, get_exec_path
get_exec_path()  # asks for b'PATH' first
environ.setdefault('PACK_ADDED', '1')
lazy = 1
copied = dict(environ)
environ.clear()
environ.update(copied)
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "train.py").write_text(TELLS)
    yield stage
    stage.close()


def package(stage: Stage, name: str, code: str) -> None:
    (stage.folder / "site-packages" / f"{name}.py").write_text(code)


def told(
    stage: Stage, *imports: str, sets: tuple[str, ...] = (), **environ: str
) -> tuple[dict[str, object], str]:
    """What the program finds in a standby with these imports, and why it is a plainer one, if it is."""
    launch = stage.launch(
        str(stage.folder / "train.py"), PYTHONPATH=str(stage.folder / "site-packages"), **environ
    )
    standby = stage.standby(launch, "plain", *imports, sets=sets)
    said = hears(standby)
    assert said["kind"] == "ready", said
    pid = standby.process.pid
    assert standby.hand_over(launch, (), None)
    assert hears(standby) == {"kind": "taken"}
    assert status_of(standby.process) == Exited(code=0)
    assert pid == standby.process.pid
    return json.loads((stage.folder / "out").read_text()), str(said["plain"])


def test_the_program_finds_its_imports_done(stage: Stage) -> None:
    package(stage, "pack_good", GOOD)
    package(stage, "pack_other", "x = 1\n")
    found, plain = told(stage, "from pack_good import lazy", "import pack_other", "import pack_missing")
    assert plain == ""
    assert found == {
        "early": ["pack_good", "pack_other"], "threads": 1, "sockets": [], "children": [], "ours": [],
        "path": str(stage.folder / "site-packages"),
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
            "a thread",
        ),
        ("import socket\nkept = socket.socket()", "opened socket"),
        (
            "import os, socket\nkept = socket.socket()\nos.set_inheritable(kept.fileno(), True)",
            "opened socket",
        ),
        ("import subprocess\nkept = subprocess.Popen(['sleep', '600'])", "started a process"),
        ("import os\nos.environ['LEFT'] = 'other'", "changed LEFT"),
        ("import os\nos.chdir('/')", "changed the folder"),
        ("import os\nport = os.getenv('MASTER_PORT')", "read MASTER_PORT"),
        ("import os\nhome = os.environ.get('PACK_HOME')", "read PACK_HOME"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
        ("1 / 0", "raised ZeroDivisionError"),
    ],
)
def test_an_import_that_would_show_leads_to_a_plainer_standby_and_leaves_nothing(
    stage: Stage, code: str, why: str
) -> None:
    package(stage, "pack_good", GOOD)
    package(stage, "pack_bad", code + "\n")
    found, plain = told(
        stage, "import pack_good", "import pack_bad", sets=("PACK_HOME",), LEFT="as it was", MASTER_PORT="1"
    )
    assert why in plain
    assert found == {
        "early": [], "threads": 1, "sockets": [], "children": [], "ours": ["LEFT"],
        "path": str(stage.folder / "site-packages"),
    }  # fmt: skip


def test_a_module_of_the_programs_own_is_never_taken_from_elsewhere(stage: Stage) -> None:
    package(stage, "pack_good", "import pack_own\n")
    package(stage, "pack_own", "")
    (stage.folder / "pack_own.py").write_text("")
    _, plain = told(stage, "import pack_good")
    assert "the program has its own pack_own" in plain


def test_what_is_not_installed_is_left_to_the_program(stage: Stage) -> None:
    (stage.folder / "work").mkdir()
    (stage.folder / "work" / "pack_mine.py").write_text("")
    launch = stage.launch(str(stage.folder / "train.py"), PYTHONPATH=str(stage.folder / "work"))
    standby = ready(stage, launch, "plain", "import pack_mine")
    assert standby.hand_over(launch, (), None)
    status_of(standby.process)
    assert json.loads((stage.folder / "out").read_text())["early"] == []


@pytest.mark.parametrize(
    ("now", "touched"), [({"PACK_KIND": "b"}, False), ({"PACK_KIND": "a"}, True), ({}, False)]
)
def test_a_standby_whose_imports_would_see_another_thing_now_gives_its_place_up(
    stage: Stage, now: dict[str, str], touched: bool
) -> None:
    package(stage, "pack_kind", "import os\nkind = os.getenv('PACK_KIND')\n")
    path = str(stage.folder / "site-packages")
    before = stage.launch(str(stage.folder / "train.py"), PYTHONPATH=path, PACK_KIND="a")
    standby = ready(stage, before, "plain", "import pack_kind")
    if touched:
        package(stage, "pack_kind", "kind = 'another'\n")
    after = stage.launch(str(stage.folder / "train.py"), PYTHONPATH=path, **now)
    assert standby.hand_over(after, (), None)
    said = hears(standby)
    assert said["kind"] == "refuse"
    assert ("pack_kind was changed" if touched else "PACK_KIND, which") in said["why"]


def test_one_that_begins_again_dies_with_its_supervisor_and_keeps_ignored_signals(stage: Stage) -> None:
    package(stage, "pack_bad", "import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\n1 / 0\n")
    launch = stage.launch(str(stage.folder / "train.py"), PYTHONPATH=str(stage.folder / "site-packages"))
    standby = ready(stage, launch, "plain", "import pack_bad")
    ignored = next(
        int(line.split()[1], 16)
        for line in Path(f"/proc/{standby.process.pid}/status").read_text().splitlines()
        if line.startswith("SigIgn")
    )
    assert not ignored & 1 << (signal.SIGUSR1 - 1)
    standby.close()
    wait_until(lambda: standby.process.reap() is not None, what="its end")
