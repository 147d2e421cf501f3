"""What is chosen at the start decides what is loaded; a fault, which may be the disk's, loads nothing."""

import re
import signal
from pathlib import Path

import pytest

from support.runs import Launcher, Run

HEAVY = {
    *(
        "asyncio",
        "concurrent",
        "decimal",
        "difflib",
        "email",
        "filelock",
        "_hashlib",
        "hmac",
        "http",
        "jinja2",
    ),
    *("importlib.metadata", "logging", "multiprocessing", "psutil", "rich", "shutil", "sqlite3", "ssl"),
    *("statistics", "tempfile", "traceback", "xml", "yaml", "zipfile"),
}
"""Of libraries."""
NOT_ASKED_FOR = (
    *(
        "adopt",
        "cli.adopt",
        "cli.ckpt",
        "cli.doctor",
        "cli.nodes",
        "cli.rehearse",
        "cli.report",
        "cli.status",
    ),
    *(
        "configs.apply",
        "configs.editors",
        "configs.originals",
        "configs.recipes.recipe",
        "manifests",
        "nodes",
    ),
    *("frameworks.mindspore_cluster", "observe.account", "observe.outlets.sidecar", "observe.report", "sdk"),
    *("observe.status", "rehearse", "standby", "supervisor.platform.capacity", "supervisor.launch.rewriting"),
    *("supervisor.platform.fault_files", "supervisor.stay.rendezvous_store", "text.yaml_tree"),
)
"""Of ours, by one node that only runs a script."""
MOST_MIB = 32


def imported(said: str) -> list[str]:
    """The modules that a console tells of, with ``PYTHONPROFILEIMPORTTIME``."""
    return re.findall(r"^import time: +\d+ \| +\d+ \| +([\w.]+)$", said, re.MULTILINE)


def told(launcher: Launcher, *options: str) -> Run:
    """A run of two workers whose console tells what is imported, once both train."""
    words = ("--worker_num=2", "--report=False", *options, *launcher.program("train()"))
    return launcher.command(*words, environ={"PYTHONPROFILEIMPORTTIME": "1"}).trains((0, 1))


def resident_mib(pid: int) -> float:
    """The memory of a process that is in use."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def test_one_node_that_runs_a_script_loads_nothing_of_what_it_does_not_ask_for(launcher: Launcher) -> None:
    run = told(launcher)
    names = imported(run.text)
    assert "faultrun.supervisor.loop" in names
    ours = {name.removeprefix("faultrun.") for name in names if name.startswith("faultrun.")}
    assert [one for one in ours if f"{one}.".startswith(tuple(f"{room}." for room in NOT_ASKED_FOR))] == []
    assert HEAVY & set(names) == set()
    run.signal(signal.SIGTERM)
    run.ends()


@pytest.mark.parametrize("options", [(), ("--checkpoint_dir=ckpt", "--resume_arg=--from={checkpoint}")])
def test_a_death_a_restart_and_a_stop_import_nothing(launcher: Launcher, options: tuple[str, ...]) -> None:
    run = told(launcher, *options)
    begun = len(imported(run.text))
    run.kill(1)
    run.trains((0, 1), incarnation=1)
    run.signal(signal.SIGTERM)
    run.ends()
    assert imported(run.text)[begun:] == []


@pytest.mark.parametrize("workers", [2, 16])
def test_the_supervisor_of_one_node_is_small(launcher: Launcher, workers: int) -> None:
    run = launcher.run("train()", workers=workers).trains(range(workers))
    assert resident_mib(run.pid) <= MOST_MIB
    for life in range(3):
        run.kill(1)
        run.trains(range(workers), incarnation=life + 1)
    assert resident_mib(run.pid) <= MOST_MIB
    run.signal(signal.SIGTERM)
    run.ends()
